"""``touchstone items RUN``: its items; ``touchstone export RUN``: the run as others write theirs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output, add_run, run_folder, terminal
from pytest_touchstone.compare.formats.every_eval_ever_export import every_eval_ever_files
from pytest_touchstone.compare.formats.export import Export, ExportedSample, Files, how_asked, sanitized
from pytest_touchstone.compare.formats.hub_export import hub_files
from pytest_touchstone.compare.formats.lm_eval_export import EXPORTS
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import shown_path, write_atomic, write_json
from pytest_touchstone.core.requests import VERDICT_KINDS
from pytest_touchstone.core.text import count, did_you_mean, listed
from pytest_touchstone.plugin.api.items import Item, Items, view_of
from pytest_touchstone.plugin.replay import Replay
from pytest_touchstone.reports.items import rendered
from pytest_touchstone.results.item_view import is_cut
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import (
    SUMMARY,
    base_name,
    finite,
    load_summary,
)

FORMS: Final = {
    "lm-eval": "lm-eval (lm-evaluation-harness from 0.4 on)",
    "lm-eval-0.3": "lm-eval-0.3 (before)",
    "every-eval-ever": "every-eval-ever (Every Eval Ever 0.3)",
    "hub": "hub (.eval_results and README.md of a model's repository)",
}
"""The forms that a run is exported to, each in words."""

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
    views = [view_of(item, full=options.full) for item in found[:most]]

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
    parser.add_argument(
        "--to", choices=FORMS, default="lm-eval", help="the form: " + ", ".join(FORMS.values())
    )
    text = "the folder to write into (default: the form's name, in the run's folder); for hub, the model's repository"
    parser.add_argument("-o", "--folder", type=Path, metavar="DIR", help=text)
    parser.add_argument("--checkpoint", metavar="NAME", help="only this checkpoint")
    parser.add_argument("--no-samples", action="store_true", help="write totals alone, no items")
    text = "every-eval-ever, hub: the model's name on the Hub (default there: local/NAME)"
    parser.add_argument("--model-id", metavar="ORG/NAME", help=text)
    text = "every-eval-ever, hub: the address at which people find the run"
    parser.add_argument("--source", metavar="URL", help=text)
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the run's)")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the folder pytest ran in (default: the run's)"
    )


def export_run(options: argparse.Namespace) -> Output:
    """Write the files; raise ``HarnessError`` where the run cannot be read or the folder cannot be written."""
    source = run_folder(options, SUMMARY)
    summary = load_summary(source)
    names = list(dict.fromkeys(result.checkpoint for result in summary.results))
    _check("--checkpoint", options.checkpoint, names)
    names = names if options.checkpoint is None else [options.checkpoint]
    _check_publication(options, names)
    folder: Path = options.folder or source / options.to
    items = Items(source, summary.declarations, Replay(source, data=options.data, root=options.root))

    def scored(checkpoint: str) -> Iterator[Item]:
        return (one for one in items if one.checkpoint == checkpoint and one.status == "scored")

    written: list[str] = []
    lines, lacking = [], 0
    for checkpoint in names:
        own = folder / sanitized(checkpoint) if options.to == "hub" and len(names) > 1 else folder
        samples = (
            list(map(_sample, scored(checkpoint))) if not options.no_samples and options.to != "hub" else []
        )
        lacking += sum(not sample.row for sample in samples)
        records = (item.record for item in scored(checkpoint)) if options.to not in EXPORTS else ()
        export = Export(
            summary=summary,
            checkpoint=checkpoint,
            samples=samples,
            asked=how_asked(records),
            model_id=options.model_id,
            source=options.source,
        )
        files, notes = _files(export, own, options.to)
        for name, content in files.items():
            _write(own / name, content)
        written += [str(own / name) for name in files]
        beside = f", samples of {count(len(samples), 'item')} beside it" if samples else ""
        lines.append(f"{checkpoint}: {shown_path(own / next(iter(files)))}{beside}")
        lines += [f"  {note}" for note in notes]
    if lacking:
        lines.append(
            f"{count(lacking, 'item')} without the row, and with the end of long prompts alone: data or benchmark "
            "changed or moved; --data and --root say where they are"
        )
    return Output({"files": written, "without_row": lacking}, "\n".join([*lines, *_to_publish(options)]))


def _to_publish(options: argparse.Namespace) -> Iterator[str]:
    """Yield what to do with the files."""
    if options.to == "every-eval-ever":
        named = "" if options.model_id else "give --model-id ORG/NAME, and "
        yield (
            f"to publish: {named}write who evaluated into source_metadata (source_organization_name, "
            "evaluator_relationship)"
        )
    if options.to == "hub":
        yield (
            "to publish: see that every task_id is one of the dataset's eval.yaml, then hf upload ORG/NAME FOLDER .; "
            "nothing was sent"
        )


def _check_publication(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise ``HarnessError`` for a model's id or an address that cannot be one."""
    model, source = options.model_id, options.source
    if model is not None and not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", model):
        raise HarnessError(f"invalid --model-id {model!r}: expected ORG/NAME, as on the Hub")
    if model is not None and len(names) > 1:
        raise HarnessError(
            f"--model-id {model}: the run has {len(names)} checkpoints; say which with --checkpoint"
        )
    if source is not None and not re.fullmatch(r"https?://\S+", source):
        raise HarnessError(f"invalid --source {source!r}: expected an address that begins with https://")


def _files(export: Export, folder: Path, form: str) -> tuple[Files, list[str]]:
    """Return the files of a checkpoint by their names in the folder, and what must be known of them."""
    if form == "hub":
        return hub_files(export, folder)
    if form == "every-eval-ever":
        return every_eval_ever_files(export), []
    return EXPORTS[form](export.summary, export.checkpoint, export.samples), []


def _write(path: Path, content: Any) -> None:
    try:
        (write_atomic if isinstance(content, str) else write_json)(path, content)
    except OSError as error:
        raise HarnessError(f"cannot write {path}: {error.strerror}; give another folder with -o") from error


def _sample(item: Item) -> ExportedSample:
    exchanges = item.record.exchanges
    try:
        row = item.row
        if is_cut(exchanges):
            exchanges = item.again().exchanges
    except HarnessError:
        row = {}
    requests = [one["request"] for one in exchanges if one["kind"] not in VERDICT_KINDS]
    return ExportedSample(item.record, requests, row, view_of(item))
