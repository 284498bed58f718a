"""The files of a finished run, in its folder; each is written whole or not at all.

    summary.json                       everything the reports show, and the best checkpoints
    BENCHMARK_results.json             one benchmark, all checkpoints, its groups
    CHECKPOINT_results.json            one checkpoint, all tasks (``compare.formats.task_json``)
    CHECKPOINT_eval_results.json       one checkpoint's Korean scores (``compare.formats.korean_mlm``)
    checkpoints.csv                    those scores of all checkpoints
    results.csv                        every number in long form (``results.rows``)
    report.html                        the page for people
    errors.log                         each checkpoint and item that should have been scored and was not

The files of a checkpoint with a benchmark's name have the prefix ``checkpoint-``.

The section ``eval`` of pytest-json-report's file has the same numbers and counts. That plugin calls an item passed as
soon as its setup passed; this section comes from the journal and is the one to read.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from pytest_touchstone.compare.formats import korean_mlm, result_formats
from pytest_touchstone.compare.formats.base import WritableFormat
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import SCHEMA, file_name, pieces_with_checksum, write_atomic, write_json
from pytest_touchstone.core.keys import masked
from pytest_touchstone.core.text import visible
from pytest_touchstone.reports.page.builder import FILE as PAGE
from pytest_touchstone.reports.page.builder import run_page
from pytest_touchstone.results.rows import FILE as RESULTS
from pytest_touchstone.results.rows import results_csv
from pytest_touchstone.results.summary import SUMMARY, Declaration, Summary, finite, keyed, summary_json


def write_results(summary: Summary, directory: Path | None = None) -> list[Path]:
    """Write every file into ``directory`` (the run's own without it) and return their paths.

    Raises ``HarnessError`` when the disk refuses, and ``KeyFoundError`` where all but the page is written.
    """
    folder = Path(summary.directory) if directory is None else directory
    best = korean_mlm.best(korean_mlm.rows(summary))
    numbers = json.dumps(
        {**summary_json(summary), "best": best}, ensure_ascii=False, allow_nan=False, indent=2
    )
    benchmarks = {f"{file_name(one.name)}_results.json": one for one in summary.declarations}
    plain = {name: benchmark_facts(summary, declaration) for name, declaration in benchmarks.items()}
    text = {
        "errors.log": _error_log(summary),
        RESULTS: results_csv(summary),
    }
    files = (
        {SUMMARY: "".join(pieces_with_checksum([numbers]))} | plain | _of_formats(summary, benchmarks) | text
    )
    _write(folder, files)
    _write(folder, {PAGE: run_page(summary)})
    return [folder / name for name in (*files, PAGE)]


def write_checkpoints(summary: Summary) -> None:
    """Write the files of the summary's checkpoints alone, into the run's folder.

    Raises ``HarnessError`` when the disk refuses.
    """
    taken = [f"{file_name(one.name)}_results.json" for one in summary.declarations]
    files = _of_formats(summary, taken)  # there is only one table for all checkpoints
    _write(
        Path(summary.directory), {name: value for name, value in files.items() if not isinstance(value, str)}
    )


def _of_formats(summary: Summary, taken: Container[str]) -> dict[str, Any]:
    """Return the files of all result formats that are written, by name; ``taken`` are names of benchmarks' files."""
    found: dict[str, Any] = {}
    for one in result_formats():
        if isinstance(one, WritableFormat):
            found |= one.write(summary, taken)
    return found


def _write(folder: Path, files: Mapping[str, Any]) -> None:
    try:
        for name, value in files.items():
            (write_atomic if isinstance(value, str) else write_json)(folder / name, value)
    except OSError as error:
        raise HarnessError(f"cannot write results into {folder}: {error.strerror}") from error


def benchmark_facts(summary: Summary, declaration: Declaration) -> dict[str, Any]:
    """Return the results of one benchmark, as its file has them."""
    results = [keyed(result) for result in summary.results if result.benchmark == declaration.name]
    plain: dict[str, Any] = finite(keyed(declaration))
    return {
        "schema": SCHEMA,
        "kind": "benchmark",
        "run_id": summary.run_id,
        **plain,
        "results": finite(results),
    }


def _error_log(summary: Summary) -> str:
    """Return one paragraph per fault: status and item (or checkpoint), then the message indented."""
    paragraphs = [f"failed to load  {one['name']}\n    {one['message']}\n" for one in summary.failed_to_load]
    for fault in summary.faults:
        message = "\n".join(f"    {line}" for line in fault["message"].splitlines())
        paragraphs.append(f"{fault['status']}  {fault['item']}\n{message}\n")
    return visible(masked("".join(paragraphs)))
