"""``touchstone export RUN --to FORM``: the results of a run in the form of another program."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_touchstone.cli.command import Output, add_run, run_folder
from pytest_touchstone.compare.formats.lm_eval_export import EXPORTS, ExportedSample
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import shown_path, write_atomic, write_json
from pytest_touchstone.core.text import count
from pytest_touchstone.plugin.api.items import Item, Items
from pytest_touchstone.plugin.api.view import view_of
from pytest_touchstone.plugin.replay import Replay
from pytest_touchstone.results.summary import SUMMARY, Summary, load_summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> Output:
    """Write the files; raise ``HarnessError`` where the run cannot be read or the folder cannot be written."""
    run = run_folder(options, SUMMARY)
    summary = load_summary(run)
    folder: Path = options.folder or run / options.to
    written: list[str] = []
    lines, lacking = [], 0
    for checkpoint in dict.fromkeys(result.checkpoint for result in summary.results):
        samples = [] if options.no_samples else list(_samples(summary, run, checkpoint, options))
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
    summary: Summary, run: Path, checkpoint: str, options: argparse.Namespace
) -> Iterator[ExportedSample]:
    """Yield the scored items of a checkpoint."""
    items = Items(run, summary.declarations, Replay(run, data=options.data, root=options.root))
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
