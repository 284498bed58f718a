"""``touchstone page`` makes the page of saved results again, or of several runs; ``touchstone view`` opens one."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from harness.cli.command import Output, add_output, add_run, run_folder
from harness.core.errors import HarnessError
from harness.core.files import shown_path, write_atomic
from harness.results.run_directory import find_run
from harness.results.summary import SUMMARY, load_summary

PAGE: Final = "report.html"
COMPARISON: Final = "comparison.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``touchstone page``."""
    text = "a run id, a run's folder, or last; several runs stand side by side, the first is the baseline"
    parser.add_argument("targets", nargs="+", metavar="RUN", help=text)
    text = f"the file (default: {PAGE} in the run's folder; {COMPARISON} here for several runs)"
    parser.add_argument("-o", dest="file", type=Path, metavar="FILE", help=text)
    add_output(parser)


def view_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``touchstone view``."""
    add_run(parser)


def run(options: argparse.Namespace) -> Output:
    """Write a page. Raises ``HarnessError`` where a run cannot be read, or the file not be written."""
    folders = [find_run(target, options.output, SUMMARY) for target in options.targets]
    if len(set(map(os.path.realpath, folders))) < len(folders):
        raise HarnessError(f"{', '.join(options.targets)}: a run is named twice; name runs that differ")
    path = _written(folders, options.file)
    return Output({"page": str(path)}, shown_path(path))


def view_run(options: argparse.Namespace) -> Output:
    """Open the page of a run, made if it is not there; print its path."""
    folder = run_folder(options, SUMMARY)
    path = folder / PAGE
    if not path.is_file():
        path = _written([folder], None)
    opened = _opened(path)
    how = "" if opened else "no browser could be started; open "
    return Output({"page": str(path), "opened": opened}, f"{how}{shown_path(path)}")


def _written(folders: list[Path], file: Path | None) -> Path:
    from harness.plugin.api.told import Teller
    from harness.reports.page.builder import comparison_page, run_page

    summaries = [load_summary(folder) for folder in folders]
    tells = [Teller(folder, one.declarations) for folder, one in zip(folders, summaries, strict=True)]
    if len(folders) == 1:
        path, text = file or folders[0] / PAGE, run_page(summaries[0], tells[0])
    else:
        path, text = file or Path(COMPARISON), comparison_page(summaries, tells)
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
