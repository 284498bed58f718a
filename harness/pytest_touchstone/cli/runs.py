"""``touchstone list``: the runs of a results folder; ``touchstone report RUN``: the table of a run, again."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output, add_output, add_run, run_folder, terminal
from pytest_touchstone.compare.formats.lm_eval_export import EXPORTS, Sample
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import shown_path, write_atomic, write_json
from pytest_touchstone.core.text import count, did_you_mean, listed
from pytest_touchstone.plugin.api.items import Item, Items
from pytest_touchstone.plugin.api.view import view_of
from pytest_touchstone.plugin.replay import Replay
from pytest_touchstone.reports.items import rendered
from pytest_touchstone.reports.trackers.base import PLACE, Tracker, place_option
from pytest_touchstone.reports.trackers.registry import Outcome, track, trackers
from pytest_touchstone.results.rows import results_csv
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import (
    SUMMARY,
    Summary,
    base_name,
    finite,
    load_summary,
    summary_json,
    totals,
    wholes,
)
from pytest_touchstone.results.unfinished import COLLECTED, ended, summary_so_far

NAMED: Final = 2
"""The most checkpoints or benchmarks of a run that are named."""

list_add_arguments = add_output


def report_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The run, and how much is shown."""
    add_run(parser)
    text = "all metrics, groups and notes, as pytest -v shows them"
    parser.add_argument("-v", "--verbose", action="store_true", help=text)


def list_run(options: argparse.Namespace) -> Output:
    """Print a row per run, the newest last; one that cannot be read has a line below them."""
    paths = [path for file in (SUMMARY, COLLECTED) for path in options.output.glob(f"*/{file}")]
    found, bad = [], []
    for folder in sorted({path.parent for path in paths}):
        try:
            found.append(summary_so_far(folder))
        except HarnessError as error:
            bad.append(f"touchstone: {error}")
    nothing = f"no runs in {options.output}/\n"

    def text() -> str:
        return (_table(found) if found else nothing) + "".join(f"{line}\n" for line in bad)

    return Output([_row(one) for one in found], text)


def report_run(options: argparse.Namespace) -> Output:
    """Print the report that the end of the run printed, in the width of today's terminal; of a run that was killed,
    that of what it has scored."""
    folder = run_folder(options, SUMMARY, COLLECTED)
    summary = summary_so_far(folder)

    def text() -> str:
        from pytest_touchstone.reports.terminal import render

        shown = render(summary, *terminal(), details=options.verbose)
        return shown if ended(folder) else f"{shown}\n{_unfinished(summary)}"

    return Output(summary_json(summary), text, csv=lambda: results_csv(summary))


def _unfinished(summary: Summary) -> str:
    """Return a line about a run that has not summed up."""
    counts = totals(summary)
    return (
        f"unfinished  {counts['scored']:,} of {count(counts['collected'], 'item')} scored: the run goes on, or was "
        "killed; the same command goes on from there"
    )


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
    """Return the first names, after their number where that says more."""
    few = listed(names, NAMED)
    return f"{len(names)}: {few}" if len(names) > NAMED else few


def _outcome(summary: Summary) -> str:
    """Return the gate's decision, and what went wrong."""
    gate = summary.gate or {}
    if not ended(Path(summary.directory)):
        return "unfinished"
    wrong = [count(len(summary.faults), "fault")] if summary.faults else []
    wrong += [f"{len(summary.failed_to_load)} failed to load"] if summary.failed_to_load else []
    return ", ".join([*([f"gate {gate['decision']}"] if gate.get("mode") else []), *wrong])


def _table(summaries: Sequence[Summary]) -> str:
    """Return a table of the runs, by the time at which they began."""
    from rich.text import Text

    from pytest_touchstone.reports.formatting import console_of, open_table, written

    width, color = terminal()
    console = console_of(width, color=color)
    table = open_table()
    for title, fixed in {"run": 1, "began": 1, "checkpoints": 0, "benchmarks": 0, "items": 1, "": 0}.items():
        justify: Any = "right" if title == "items" else "left"
        table.add_column(title, no_wrap=bool(fixed), overflow="fold", justify=justify)
    for one in sorted(summaries, key=_began):
        row = _row(one)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(_began(one)))
        items = f"{row['items']:,}" + f"/{row['of']:,}" * (row["of"] > row["items"])
        names = [_counted(row[key]) for key in ("checkpoints", "benchmarks")]
        table.add_row(*map(Text, (row["run"], when, *names, items, _outcome(one))))
    console.print(table)
    return written(console)


KINDS: Final[dict[str, tuple[str, Callable[[Item], bool]]]] = {
    "wrong": ("only those with a primary score below 1", lambda item: item.right is False),
    "right": ("only those with a primary score of 1", lambda item: item.right is True),
    "invalid": (
        "only those with a text that was cut off at the limit of tokens, or held no answer",
        lambda item: item.invalid,
    ),
    "error": ("only those that should have been scored and were not", lambda item: item.failed),
}


def items_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument("--benchmark", metavar="NAME", help="only items of this benchmark")
    parser.add_argument("--checkpoint", metavar="NAME", help="only items of this checkpoint")
    kinds = parser.add_mutually_exclusive_group()
    for name, (text, _) in KINDS.items():
        kinds.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=text)
    parser.add_argument("-n", metavar="N", default="5", help="how many (default: 5)")
    parser.add_argument("--full", action="store_true", help="cut no text")
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the run's)")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the folder pytest ran in (default: the run's)"
    )


def items_run(options: argparse.Namespace) -> Output:
    """Show items; raises ``HarnessError`` for a name that the run does not have."""
    if not options.n.isdecimal() or int(options.n) < 1:
        raise HarnessError(f"invalid -n {options.n!r}: expected a whole number from 1 up")
    folder = run_folder(options, "collected.json")
    collected, declarations, _ = RunDirectory(folder).read_collected()
    benchmarks = {one.benchmark for one in collected} | {base_name(one.benchmark) for one in collected}
    _check("--benchmark", options.benchmark, benchmarks)
    _check("--checkpoint", options.checkpoint, {one.checkpoint for one in collected})
    replay = Replay(folder, data=options.data, root=options.root)
    items = Items(folder, list(declarations.values()), replay)
    found = [item for item in items if _wanted(item, options)]
    views = [view_of(item) for item in found[: int(options.n)]]

    def text() -> str:
        width, _ = terminal()
        blocks = [rendered(view, width, full=options.full) for view in views]
        what = count(len(found), f"{options.kind} item" if options.kind else "item")
        if options.kind == "error":
            what = f"{count(len(found), 'item')} in error"
        more = f" of {what}; -n {len(found)} shows all" if len(found) > len(views) else f" of {what}"
        return "\n\n".join(
            [*blocks, f"{len(views)}{more}" if found else f"no {options.kind or ''} item".replace("  ", " ")]
        )

    return Output([finite(asdict(view)) for view in views], text)


def _wanted(item: Item, options: argparse.Namespace) -> bool:
    return (
        options.benchmark in (None, item.benchmark, base_name(item.benchmark))
        and options.checkpoint in (None, item.checkpoint)
        and (options.kind is None or KINDS[options.kind][1](item))
    )


def _check(option: str, name: str | None, known: Collection[str]) -> None:
    if name is not None and name not in known:
        near = did_you_mean(name, known) or f"there are {listed(sorted(known))}"
        raise HarnessError(f"{option} {name}: not in this run; {near.rstrip()}")


def export_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    text = "the form: lm-eval (lm-evaluation-harness from 0.4 on) or lm-eval-0.3 (before)"
    parser.add_argument("--to", choices=EXPORTS, default="lm-eval", help=text)
    text = "the folder to write into (default: the form's name, in the run's folder)"
    parser.add_argument("-o", "--folder", type=Path, metavar="DIR", help=text)
    parser.add_argument("--no-samples", action="store_true", help="write totals alone, no items")
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the run's)")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the folder pytest ran in (default: the run's)"
    )


def export_run(options: argparse.Namespace) -> Output:
    """Write the files; raise ``HarnessError`` where the run cannot be read or the folder cannot be written."""
    export_run = run_folder(options, SUMMARY)
    summary = load_summary(export_run)
    folder: Path = options.folder or export_run / options.to
    written: list[str] = []
    lines, lacking = [], 0
    for checkpoint in dict.fromkeys(result.checkpoint for result in summary.results):
        samples = [] if options.no_samples else list(_samples(summary, export_run, checkpoint, options))
        lacking += sum(not sample.row for sample in samples)
        files = EXPORTS[options.to](summary, checkpoint, samples)
        for name, content in files.items():
            _write(folder / name, content)
        written += [str(folder / name) for name in files]
        items = f", samples of {count(len(samples), 'item')} beside it" if samples else ""
        lines.append(f"{checkpoint}: {shown_path(folder / next(iter(files)))}{items}")
    if lacking:
        lines.append(
            f"{count(lacking, 'item')} without the row, and with the end of long prompts alone: data or benchmark "
            "changed or moved; --data and --root say where they are"
        )
    return Output({"files": written, "without_row": lacking}, "\n".join(lines))


def _write(path: Path, content: Any) -> None:
    try:
        (write_atomic if isinstance(content, str) else write_json)(path, content)
    except OSError as error:
        raise HarnessError(f"cannot write {path}: {error.strerror}; give another folder with -o") from error


def _samples(
    summary: Summary, export_run: Path, checkpoint: str, options: argparse.Namespace
) -> Iterator[Sample]:
    """Yield the scored items of a checkpoint."""
    items = Items(export_run, summary.declarations, Replay(export_run, data=options.data, root=options.root))
    for item in items:
        if item.checkpoint == checkpoint and item.status == "scored":
            yield _sample(item)


def _sample(item: Item) -> Sample:
    kept = [one["request"] for one in item.record.exchanges if one["kind"] != "RunProgram"]
    try:
        row = item.row
        cut = any(name.endswith("_sha256") for request in kept for name in request)
        requests = item.again().requests if cut else kept
    except HarnessError:
        row, requests = {}, kept
    return Sample(item.record, requests, row, view_of(item))


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
    outcome = track(folder, tracker, settings)
    return {"tracker": tracker.name, **asdict(outcome.sent), "left_out": outcome.left_out} | {
        "text": _text(tracker, outcome)
    }


def _text(tracker: Tracker, outcome: Outcome) -> str:
    sent = outcome.sent
    if sent.new or sent.numbers or sent.files:
        old = f" ({sent.runs - sent.new} were there)" if 0 < sent.new < sent.runs else ""
        what = f"{count(sent.new, 'run')}{old}, {count(sent.numbers, 'number')}, {count(sent.files, 'file')} sent to"
    else:
        what = f"nothing to send: all {count(sent.runs, 'run')} of it are in"
    left = f"; left out: {', '.join(outcome.left_out)}" if outcome.left_out else ""
    return f"{tracker.title}: {what} {sent.where}{left}"
