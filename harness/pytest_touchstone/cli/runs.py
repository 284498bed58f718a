"""``touchstone list``: the runs of a results folder; ``report RUN``: its table again; ``track RUN``: to a tracker."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import (
    Output,
    add_language,
    add_output,
    add_run,
    form_of,
    run_folder,
    terminal,
)
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.text import count, one_line
from pytest_touchstone.reports.trackers.payload import PLACE, Sent, Tracker, place_option
from pytest_touchstone.reports.trackers.sending import track, trackers
from pytest_touchstone.results.aggregate import COLLECTED, ended, summary_so_far
from pytest_touchstone.results.layout import run_of
from pytest_touchstone.results.live import goes_on
from pytest_touchstone.results.rows import results_csv
from pytest_touchstone.results.run_directory import RunDirectory, files_of_runs, find_run
from pytest_touchstone.results.summary import (
    SUMMARY,
    Summary,
    summary_json,
    totals,
    wholes,
)

FORMS: Final = ("markdown", "latex", "csv")
"""The forms of one table of checkpoints by benchmarks."""

ITEMS: Final = 4
CUT: Final = (2, 3, 5)
"""The columns of ``touchstone list`` with numbers, and those that are cut where a line would be too long."""

SHORTEST: Final = 8

list_add_arguments = add_output


def report_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs, and how much is shown."""
    text = "a run id, a run's folder, or last; with --format also several, or what else study takes"
    parser.add_argument("targets", nargs="+", metavar="RUN", help=text)
    add_output(parser)
    text = "all metrics, groups and notes, as pytest -v shows them"
    parser.add_argument("-v", "--verbose", action="store_true", help=text)
    text = "one table of checkpoints by benchmarks, for a paper: markdown, latex (booktabs) or csv"
    parser.add_argument("--format", choices=FORMS, help=text)
    text = "with --format: standard errors in place of 95 %% intervals"
    parser.add_argument("--stderr", action="store_true", help=text)
    add_language(parser)


def list_run(options: argparse.Namespace) -> Output:
    """Print a row per run, the newest last; one that cannot be read has a line on standard error."""
    paths = [path for file in (SUMMARY, COLLECTED) for path in files_of_runs(options.output, file)]
    found = []
    for folder in sorted(set(map(run_of, paths))):
        try:
            found.append(summary_so_far(folder))
        except HarnessError as error:
            print(f"touchstone: {one_line(str(error))}", file=sys.stderr)
    nothing = f"no runs in {options.output}/\n"
    return Output([_row(one) for one in found], lambda: _table(found) if found else nothing)


def report_run(options: argparse.Namespace) -> Output:
    """Print the report that the end of the run printed, in the width of today's terminal; of a run that was killed,
    that of what it has scored. With ``--format`` it is one table of all that is named. Raises ``HarnessError``."""
    if options.format is not None:
        return _paper_table(options)
    if options.stderr or len(options.targets) > 1:
        what = "--stderr" if options.stderr else f"{len(options.targets)} runs"
        raise HarnessError(f"{what}: is for one table of all; give --format {'|'.join(FORMS)} too")
    folder = find_run(options.targets[0], options.output, SUMMARY, COLLECTED)
    summary = summary_so_far(folder)

    def text() -> str:
        from pytest_touchstone.reports.terminal import render

        return render(summary, *terminal(), details=options.verbose)

    return Output(summary_json(summary), text, csv=lambda: results_csv(summary))


def _paper_table(options: argparse.Namespace) -> Output:
    from pytest_touchstone.cli.study import read_study
    from pytest_touchstone.reports import score_table

    if (form := form_of(options)) is not None:
        raise HarnessError(f"--{form} and --format {options.format}: give one of them")
    table = score_table.table_of_study(read_study(options.targets, options.output))
    made = getattr(score_table, f"{options.format}_table")(table, stderr=options.stderr)
    return Output(None, made)


def _row(summary: Summary) -> dict[str, Any]:
    names = sorted({result.benchmark for result in summary.results})
    whole = wholes(summary)
    marks = {name: [one.mark for one in whole if one.benchmark == name and one.mark] for name in names}
    return {
        "run": summary.run_id,
        "checkpoints": [str(one["name"]) for one in summary.checkpoints],
        "benchmarks": names,
        "items": sum(result.collected for result in whole),
        "of": sum(max(result.of, result.collected) for result in whole),
        "marks": {name: list(dict.fromkeys(found)) for name, found in marks.items() if found},
        "faults": len(summary.faults),
    }


def _began(summary: Summary) -> float:
    began = summary.manifest.get("began")
    return float(began) if began else Path(summary.directory).stat().st_mtime


def _counted(names: Sequence[str]) -> str:
    """Return the first name, and how many others there are."""
    return " ".join([*names[:1], *([f"+{len(names) - 1}"] if len(names) > 1 else [])])


def _state(summary: Summary) -> str:
    """Return whether a run goes on or was stopped, else the gate's decision, and what went wrong."""
    gate, folder = summary.gate or {}, Path(summary.directory)
    if summary.stopped or not ended(folder):
        return "stopped" if ended(folder) or not goes_on(folder, time.time()) else "running"
    wrong = [count(len(summary.faults), "fault")] if summary.faults else []
    wrong += [f"{len(summary.failed_to_load)} failed to load"] if summary.failed_to_load else []
    return ", ".join([*([f"gate {gate['decision']}"] if gate.get("mode") else []), *wrong])


def _table(summaries: Sequence[Summary]) -> str:
    """Return a line per run, by the time at which they began; names are cut where lines would be too long."""
    from rich.cells import cell_len

    width, _ = terminal()
    rows = [("run", "began", "checkpoints", "benchmarks", "items", "")]
    for one in sorted(summaries, key=_began):
        row, sums, state = _row(one), totals(one), _state(one)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(_began(one)))
        items = f"{row['items']:,}" + f"/{row['of']:,}" * (row["of"] > row["items"])
        if state in ("running", "stopped"):
            items = f"{sums['scored']:,}/{sums['collected']:,}"
        names = [_counted(row[key]) for key in ("checkpoints", "benchmarks")]
        rows.append((row["run"], when, *names, items, state))
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + len(widths) - 1 > width and (most := max(widths[one] for one in CUT)) > SHORTEST:
        widths[next(one for one in CUT if widths[one] == most)] -= 1
    return "".join(f"{' '.join(map(_cell, row, widths, range(len(row)))).rstrip()}\n" for row in rows)


def _cell(text: str, width: int, column: int) -> str:
    """Return a text in that many columns of the terminal, numbers at the right."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        return f"{set_cell_size(text, width - 2)}.."
    return text.rjust(width) if column == ITEMS else set_cell_size(text, width)


def track_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run and the tracker."""
    add_run(parser)
    for one in trackers():
        text = f"to {one.title} (default: what the run itself was started with); {one.where}"
        parser.add_argument(f"--{one.name}", action="store_true", help=text)
        text = (
            f"--{one.name}, and the {one.place} there (default: the run's, else {one.variable}, else {PLACE})"
        )
        parser.add_argument(f"--{one.name}-{one.place}", metavar="NAME", help=text)


def track_run(options: argparse.Namespace) -> Output:
    """Send what is lacking; raises ``HarnessError`` where the tracker does not take it."""
    folder = run_folder(options, SUMMARY)
    settings = dict(RunDirectory(folder).read_manifest().get("settings", {}))
    for name in map(place_option, trackers()):
        settings |= {name: given} if (given := getattr(options, name)) else {}
    rows = [_sent(folder, one, settings) for one in _named_trackers(options, settings)]
    return Output(rows[0] if len(rows) == 1 else rows, "\n".join(row["text"] for row in rows))


def _named_trackers(options: argparse.Namespace, settings: dict[str, Any]) -> list[Tracker]:
    """Return the trackers that are named, else those that the run was started with. Raises ``HarnessError``."""
    known = {one.name: one for one in trackers()}
    given = vars(options)
    named, told = (
        [one for name, one in known.items() if those.get(name) or those.get(place_option(one))]
        for those in (given, settings)
    )
    found = named or told
    if not found:
        raise HarnessError(
            f"{options.target}: say to which tracker: {', '.join(f'--{name}' for name in known)}"
        )
    return found


def _sent(folder: Path, tracker: Tracker, settings: dict[str, Any]) -> dict[str, Any]:
    sent = track(folder, tracker, settings)
    return {"tracker": tracker.name, **asdict(sent), "text": _text(tracker, sent)}


def _text(tracker: Tracker, sent: Sent) -> str:
    if sent.new or sent.numbers or sent.files:
        old = f" ({sent.runs - sent.new} were there)" if 0 < sent.new < sent.runs else ""
        what = f"{count(sent.new, 'run')}{old}, {count(sent.numbers, 'number')}, {count(sent.files, 'file')} sent to"
    else:
        what = f"nothing to send: all {count(sent.runs, 'run')} of it are in"
    left = f"; left out: {', '.join(sent.left_out)}" if sent.left_out else ""
    return f"{tracker.title}: {what} {sent.where}{left}"
