"""``touchstone items RUN``: its items; ``touchstone export RUN``: the run as another harness writes it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output, add_run, run_folder, terminal
from pytest_touchstone.compare.formats.lm_eval_export import EXPORTS, ExportedSample
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import shown_path, write_atomic, write_json
from pytest_touchstone.core.text import count, did_you_mean, listed
from pytest_touchstone.plugin.api.items import Item, Items
from pytest_touchstone.plugin.api.view import view_of
from pytest_touchstone.plugin.replay import Replay
from pytest_touchstone.reports.items import rendered
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import (
    SUMMARY,
    Summary,
    base_name,
    finite,
    load_summary,
)

KINDS: Final[dict[str, tuple[str, Callable[[Item], bool]]]] = {
    "wrong": ("only those with a primary score below 1", lambda item: item.right is False),
    "right": ("only those with a primary score of 1", lambda item: item.right is True),
    "invalid": (
        "only those with a text that was cut off at the limit of tokens, or held no answer",
        lambda item: item.invalid,
    ),
    "error": ("only those that should have been scored and were not", lambda item: item.failed),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    text = "only these items, by example (arc_easy/1) or node id"
    parser.add_argument("items", nargs="*", metavar="ITEM", help=text)
    parser.add_argument("--benchmark", metavar="NAME", help="only items of this benchmark")
    parser.add_argument("--checkpoint", metavar="NAME", help="only items of this checkpoint")
    kinds = parser.add_mutually_exclusive_group()
    for name, (text, _) in KINDS.items():
        kinds.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=text)
    parser.add_argument("-n", metavar="N", help="how many (default: 5, or all that are named)")
    parser.add_argument("--full", action="store_true", help="cut no text")
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the run's)")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the folder pytest ran in (default: the run's)"
    )


def run(options: argparse.Namespace) -> Output:
    """Show items; raises ``HarnessError`` for a name that the run does not have."""
    if options.n is not None and (not options.n.isdecimal() or int(options.n) < 1):
        raise HarnessError(f"invalid -n {options.n!r}: expected a whole number from 1 up")
    folder = run_folder(options, "collected.json")
    collected, declarations, _ = RunDirectory(folder).read_collected()
    benchmarks = {one.benchmark for one in collected} | {base_name(one.benchmark) for one in collected}
    _check("--benchmark", options.benchmark, benchmarks)
    _check("--checkpoint", options.checkpoint, {one.checkpoint for one in collected})
    known = {name for one in collected for name in (one.example, one.item)} if options.items else ()
    for name in options.items:
        _check("ITEM", name, known)
    replay = Replay(folder, data=options.data, root=options.root)
    items = Items(folder, list(declarations.values()), replay)
    found = [item for item in items if _wanted(item, options)]
    most = int(options.n or (len(found) if options.items else 5))
    views = [view_of(item) for item in found[:most]]

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
        (not options.items or item.example in options.items or item.record.item in options.items)
        and options.benchmark in (None, item.benchmark, base_name(item.benchmark))
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
    source = run_folder(options, SUMMARY)
    summary = load_summary(source)
    folder: Path = options.folder or source / options.to
    written: list[str] = []
    lines, lacking = [], 0
    for checkpoint in dict.fromkeys(result.checkpoint for result in summary.results):
        samples = [] if options.no_samples else list(_samples(summary, source, checkpoint, options))
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
    summary: Summary, source: Path, checkpoint: str, options: argparse.Namespace
) -> Iterator[ExportedSample]:
    """Yield the scored items of a checkpoint."""
    items = Items(source, summary.declarations, Replay(source, data=options.data, root=options.root))
    for item in items:
        if item.checkpoint == checkpoint and item.status == "scored":
            yield _sample(item)


def _sample(item: Item) -> ExportedSample:
    kept = [one["request"] for one in item.record.exchanges if one["kind"] != "RunProgram"]
    try:
        row = item.row
        cut = any(name.endswith("_sha256") for request in kept for name in request)
        requests = item.again().requests if cut else kept
    except HarnessError:
        row, requests = {}, kept
    return ExportedSample(item.record, requests, row, view_of(item))
