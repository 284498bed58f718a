"""``touchstone page`` makes the page of saved results, of one or several side by side; ``touchstone view`` opens it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pytest_touchstone.cli.command import Output, add_language, add_output
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.run import about
from pytest_touchstone.compare.load import only, place_of
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import file_name, shown_path, write_atomic
from pytest_touchstone.core.text import count
from pytest_touchstone.results.run_directory import RunDirectory, find_run
from pytest_touchstone.results.summary import SUMMARY, Summary, load_summary, of_checkpoints

PAGE: Final = "report.html"
COMPARISON: Final = "comparison.html"


class PageTarget(NamedTuple):
    """A run, or one of its checkpoints; ``checkpoint`` is empty for all of them."""

    folder: Path
    summary: Summary
    checkpoint: str = ""

    @property
    def page(self) -> Path:
        """The file of its page."""
        name = f"report-{file_name(self.checkpoint)}.html" if self.checkpoint else PAGE
        return self.folder / name

    @property
    def notes(self) -> list[str]:
        """The facts that a reader of the page must know."""
        if not self.checkpoint or len(self.summary.checkpoints) < 2:
            return []
        return [
            f"Of the {count(len(self.summary.checkpoints), 'checkpoint')} of run {self.summary.run_id} this page has "
            f"{self.checkpoint}. What was decided over all of them is on the page of the run."
        ]

    @property
    def part(self) -> Summary:
        """The summary of what is meant."""
        if not self.checkpoint:
            return self.summary
        collected, _, _ = RunDirectory(self.folder).read_collected()
        return of_checkpoints(self.summary, [self.checkpoint], collected)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``touchstone page``."""
    _add_targets(parser)
    text = (
        f"the file (default: {PAGE} in the run's folder, report-CHECKPOINT.html for one checkpoint; {COMPARISON} "
        "here for several)"
    )
    parser.add_argument("-o", dest="file", type=Path, metavar="FILE", help=text)
    add_language(parser)


def view_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``touchstone view``."""
    _add_targets(parser)


def _add_targets(parser: argparse.ArgumentParser) -> None:
    text = (
        "a run id, a run's folder, or last; one of its checkpoints: RUN#NAME; several stand side by side, the first "
        "is the baseline"
    )
    parser.add_argument("targets", nargs="+", metavar="RUN", help=text)
    add_output(parser)


def run(options: argparse.Namespace) -> Output:
    """Write a page. Raises ``HarnessError`` where a run cannot be read, or the file not be written."""
    path = _written(_targets(options), options.file)
    return Output({"page": str(path)}, shown_path(path))


def view_run(options: argparse.Namespace) -> Output:
    """Open the page of a run, made if it is not there, or of several, made anew; print its path."""
    targets = _targets(options)
    path = targets[0].page
    if len(targets) > 1 or not path.is_file():
        path = _written(targets, None)
    opened = _opened(path)
    how = "" if opened else "no browser could be started; open "
    return Output({"page": str(path), "opened": opened}, f"{how}{shown_path(path)}")


def _targets(options: argparse.Namespace) -> list[PageTarget]:
    """Return what is named; raises ``HarnessError`` for what is not there, and where two overlap."""
    targets = [_target(text, options.output) for text in options.targets]
    named = ", ".join(options.targets)
    for place, one in enumerate(targets):
        for other in targets[:place]:
            if os.path.realpath(one.folder) != os.path.realpath(other.folder):
                continue
            if one.checkpoint == other.checkpoint:
                what = "checkpoint" if one.checkpoint else "run"
                raise HarnessError(f"{named}: a {what} is named twice; name {what}s that differ")
            if not (one.checkpoint and other.checkpoint):
                raise HarnessError(f"{named}: a checkpoint is part of a run that is named too; leave one out")
    return targets


def _target(text: str, output: Path) -> PageTarget:
    place = place_of(text, output)
    run_id, name = place if place is not None else (*re.split("[#:]", text, maxsplit=1), "")[:2]
    folder = find_run(run_id, output, SUMMARY)
    summary = load_summary(folder)
    if not name:
        return PageTarget(folder, summary)
    known = [CheckpointResults(str(row["name"]), "", about(row)) for row in summary.checkpoints]
    return PageTarget(folder, summary, only(known, name, shown_path(folder)).name)


def _written(targets: Sequence[PageTarget], file: Path | None) -> Path:
    from pytest_touchstone.reports.page.builder import comparison_page, run_page

    parts, notes = [one.part for one in targets], [note for one in targets for note in one.notes]
    if len(targets) == 1:
        path, text = file or targets[0].page, run_page(parts[0], notes)
    else:
        path, text = file or Path(COMPARISON), comparison_page(parts, notes)
    try:
        write_atomic(path, text)
    except OSError as error:
        raise HarnessError(
            f"cannot write {shown_path(path)}: {error.strerror}; give another -o FILE"
        ) from None
    return path


def _opened(path: Path) -> bool:
    """Return whether a browser has been started."""
    import webbrowser

    # Without a display, what there is may be a browser in this terminal, which cannot show the page.
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    return webbrowser.open(path.resolve().as_uri())
