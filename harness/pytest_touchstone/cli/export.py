"""``touchstone export RUN``: the run as others write theirs, or in a tracker.

touchstone export RUN                             as lm-evaluation-harness writes it, into RUN/lm-eval
touchstone export RUN --format hub --source URL   for a model's repository on the Hub
touchstone export RUN --format mlflow             what the tracker lacks of it, and nothing twice
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pytest_touchstone.cli.command import Output, add_places, add_run, add_target, run_folder, write
from pytest_touchstone.cli.items import check_name
from pytest_touchstone.compare.formats.every_eval_ever_export import every_eval_ever_files
from pytest_touchstone.compare.formats.export import ExportedCheckpoint, ExportedSample, how_asked, sanitized
from pytest_touchstone.compare.formats.hub_export import hub_files
from pytest_touchstone.compare.formats.lm_eval_export import lm_eval_files
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.core.requests import VERDICT_KINDS
from pytest_touchstone.core.text import count
from pytest_touchstone.plugin.finished_run import Item, Items, build_item_view
from pytest_touchstone.plugin.replay import Replay
from pytest_touchstone.reports.trackers.payload import PLACE, Tracker, UploadResult, place_option
from pytest_touchstone.reports.trackers.sending import track, trackers
from pytest_touchstone.results.item_view import is_shortened
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import SUMMARY, load_summary

FORMS: Final = {
    "lm-eval": "lm-eval (lm-evaluation-harness from 0.4 on)",
    "every-eval-ever": "every-eval-ever (Every Eval Ever 0.3)",
    "hub": "hub (.eval_results and README.md of a model's repository)",
}
"""The forms that a run is exported to, each in words."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    all_trackers = trackers()
    forms = [
        *FORMS.values(),
        *(f"{tracker.name} ({tracker.title}: {tracker.where})" for tracker in all_trackers),
    ]
    names = (*FORMS, *(tracker.name for tracker in all_trackers))
    parser.add_argument("--format", choices=names, default="lm-eval", help=f"one of {', '.join(forms)}")
    text = "the folder to write into (default: the form's name, in the run's folder); for hub, the model's repository"
    add_target(parser, text)
    parser.add_argument("--checkpoint", metavar="NAME", help="only this checkpoint")
    parser.add_argument("--no-samples", action="store_true", help="write totals alone, no items")
    text = "every-eval-ever, hub: the model's name on the Hub (default there: local/NAME)"
    parser.add_argument("--model-id", metavar="ORG/NAME", help=text)
    text = "every-eval-ever, hub: the address at which people find the run"
    parser.add_argument("--source", metavar="URL", help=text)
    text = f"a tracker's experiment or project (default: the run's, else its own variable, else {PLACE})"
    parser.add_argument("--project", metavar="NAME", help=text)
    add_places(parser)


OF_FILES: Final = ("to", "checkpoint", "no_samples", "model_id", "source", "data", "root")
"""The options that a tracker has no use for."""


def run(options: argparse.Namespace) -> Output:
    """Write the files, or send what a tracker lacks. Raises ``HarnessError``."""
    source = run_folder(options, SUMMARY)
    tracker = {tracker.name: tracker for tracker in trackers()}.get(options.format)
    useless = ("project",) if tracker is None else OF_FILES
    if ignored := [name for name in useless if getattr(options, name)]:
        flag = "-o" if ignored[0] == "to" else f"--{ignored[0].replace('_', '-')}"
        raise HarnessError(f"{flag}: does nothing with --format {options.format}; leave it out")
    if tracker is None:
        return _export(options, source)
    settings = dict(RunDirectory(source).read_manifest().get("settings", {}))
    settings |= {place_option(tracker): options.project} if options.project else {}
    return Output(None, _text(tracker, track(source, tracker, settings)))


def _export(options: argparse.Namespace, source: Path) -> Output:
    summary = load_summary(source)
    names = list(dict.fromkeys(result.checkpoint for result in summary.results))
    check_name("--checkpoint", options.checkpoint, names)
    names = names if options.checkpoint is None else [options.checkpoint]
    _check_publication(options, names)
    folder: Path = options.to or source / options.format
    items = Items(source, summary.declarations, Replay(source, data=options.data, root=options.root))

    def scored(checkpoint: str) -> Iterator[Item]:
        return (item for item in items if item.checkpoint == checkpoint and item.status == "scored")

    lines, without_row = [], 0
    for checkpoint in names:
        target = folder / sanitized(checkpoint) if options.format == "hub" and len(names) > 1 else folder
        items_to_write = () if options.no_samples or options.format == "hub" else scored(checkpoint)
        samples = list(map(_sample, items_to_write))
        without_row += sum(not sample.row for sample in samples)
        records = (item.record for item in scored(checkpoint)) if options.format != "lm-eval" else ()
        export = ExportedCheckpoint(
            summary=summary,
            checkpoint=checkpoint,
            samples=samples,
            asked=how_asked(records),
            model_id=options.model_id,
            source=options.source,
        )
        notes: list[str] = []
        if options.format == "hub":
            files, notes = hub_files(export, target)
        else:
            make = every_eval_ever_files if options.format == "every-eval-ever" else lm_eval_files
            files = make(export)
        for name, content in files.items():
            write(target / name, content, "DIR")
        samples_text = f", samples of {count(len(samples), 'item')} beside it" if samples else ""
        lines.append(f"{checkpoint}: {shown_path(target / next(iter(files)))}{samples_text}")
        lines += [f"  {note}" for note in notes]
    if without_row:
        lines.append(
            f"{count(without_row, 'item')} without the row, and with the end of long prompts alone: data or benchmark "
            "changed or moved; --data and --root say where they are"
        )
    if options.format == "every-eval-ever":
        named = "" if options.model_id else "give --model-id ORG/NAME, and "
        lines.append(
            f"to publish: {named}write who evaluated into source_metadata (source_organization_name, "
            "evaluator_relationship)"
        )
    if options.format == "hub":
        lines.append(
            "to publish: see that every task_id is one of the dataset's eval.yaml, then hf upload ORG/NAME FOLDER .; "
            "nothing was sent"
        )
    return Output(None, "\n".join(lines))


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


def _sample(item: Item) -> ExportedSample:
    exchanges = item.record.exchanges
    try:
        row = item.row
        if is_shortened(exchanges):
            exchanges = item.again().exchanges
    except HarnessError:
        row = {}
    requests = [exchange["request"] for exchange in exchanges if exchange["kind"] not in VERDICT_KINDS]
    return ExportedSample(item.record, requests, row, build_item_view(item))


def _text(tracker: Tracker, sent: UploadResult) -> str:
    if sent.new or sent.numbers or sent.files:
        old = f" ({sent.runs - sent.new} were there)" if 0 < sent.new < sent.runs else ""
        text = f"{count(sent.new, 'run')}{old}, {count(sent.numbers, 'number')}, {count(sent.files, 'file')} sent to"
    else:
        text = f"nothing to send: all {count(sent.runs, 'run')} of it are in"
    left_out = f"; left out: {', '.join(sent.left_out)}" if sent.left_out else ""
    return f"{tracker.title}: {text} {sent.where}{left_out}"
