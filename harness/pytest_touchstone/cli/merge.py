"""``touchstone merge DIRS``: the shards of a run as one run, with its table and, if asked for, its gate.

touchstone merge results                  the shards in a folder, into results/merged_HASH
touchstone merge shard-* -o nightly       several folders, into one that is named
touchstone merge results --gate           exit code 8 or 9 as a run of pytest has it
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from pytest_touchstone.cli.command import Output, add_output, add_settings, add_target, terminal
from pytest_touchstone.compare.baseline_source import open_source
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import GateConfig, check_plan, read_gate_config
from pytest_touchstone.compare.gate.result import gate_json
from pytest_touchstone.core.errors import ExitCode, HarnessError
from pytest_touchstone.core.files import shown_path, unwritable
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.plugin.gate import decided
from pytest_touchstone.plugin.run_results import RunResults
from pytest_touchstone.reports.files import write_code_files, write_results
from pytest_touchstone.reports.gate import decision_text
from pytest_touchstone.results.merging import (
    Merged,
    ShardRun,
    check_alike,
    check_target,
    find_parts,
    merge,
    name_of,
)
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.store_entry import ItemScores, StoredResult
from pytest_touchstone.results.summary import Summary, load_summary, summary_json

SHOWN: Final = 3
"""The most items that are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    text = "the folder of a shard's run, or one with such folders up to two levels below"
    add("what", nargs="+", type=Path, metavar="DIR", help=text)
    text = "write the run there (default: merged_HASH in the results folder, the same for the same run)"
    add_target(parser, text)
    add_output(parser)
    add_settings(parser, "gate", "gate_mode", "baseline", "gate_config")


def run(options: argparse.Namespace) -> Output:
    """Write the merged run and show its table. Raises ``HarnessError`` for a mistake."""
    parts = find_parts(options.what)
    check_alike(parts)
    target = options.to or options.output / name_of(parts)
    plan = _plan(options)
    check_target(target, parts)
    if (why := unwritable(target)) is not None:
        raise HarnessError(f"{shown_path(target)}: {why}; name another folder with -o")
    if plan is not None:
        _check(plan, parts, target.parent)
    found = merge(parts, target)
    summary = _summary(found, parts, plan)
    data = {
        "run": str(found.folder),
        "shards": found.shards,
        "items": found.items,
        "of": found.whole,
        "missing": found.missing,
        "double": found.double,
        "differing": [one._asdict() for one in found.differing],
        "notes": found.notes,
        "summary": summary_json(summary),
    }
    lines = list(_lines(found))

    def text() -> str:
        from pytest_touchstone.reports.terminal import render

        gate = [summary.gate["text"]] if summary.gate is not None and summary.gate["text"] else []
        return "\n".join([render(summary, *terminal(), details=False).rstrip("\n"), *lines, *gate])

    def markdown() -> str:
        from pytest_touchstone.reports.ci import markdown_page

        return markdown_page(summary)

    return Output(data, text, exit_code=_exit_code(found, summary), markdown=markdown)


def _plan(options: argparse.Namespace) -> GateConfig | None:
    """The gate that is asked for; None without --gate and --baseline."""
    gate = options.gate or options.gate_mode is not None
    if not gate and options.baseline is None:
        if options.gate_config is not None:
            raise HarnessError(
                "--gate-config does nothing alone; give --gate, or --baseline to see verdicts only"
            )
        return None
    path = None if options.gate_config is None else Path(options.gate_config)
    found = read_gate_config(path or Path("pyproject.toml"), required=path is not None, root=Path())
    mode = options.gate_mode or found.mode or "plain" if gate else None
    return replace(found, mode=mode, baseline=options.baseline or found.baseline, sequential=False)


def _check(plan: GateConfig, parts: Sequence[ShardRun], output: Path) -> None:
    """Raise ``HarnessError`` where the gate's names are not those of the run, or there is no such baseline."""
    root = Path(parts[0].manifest.get("rootdir", "."))
    files = {root / item.item.partition("::")[0] for part in parts for item in part.items}
    open_source(plan.baseline, output, folder=Path())
    check_plan(plan, parts[0].declarations, open_source("best", output, folder=Path()).saved, files)


def _summary(found: Merged, parts: Sequence[ShardRun], plan: GateConfig | None) -> Summary:
    """Write the results of the merged run, and return them; they are saved for later runs only if they are whole."""
    directory = RunDirectory(found.folder)
    results = RunResults(directory)
    told = []
    for part in parts:
        with suppress(HarnessError):  # one that was stopped has none
            told.append(load_summary(part.folder))
    seconds = max((one.seconds for one in told), default=0.0)
    summary, records = results.whole(
        lambda _: "its shard has no score of it; the same command goes on", seconds
    )
    failed = {row["name"]: row for one in told for row in one.failed_to_load}
    summary = replace(summary, failed_to_load=list(failed.values()))
    kept = results.save(summary, records, keep=not found.missing)
    summary = replace(summary, changes=results.changes(kept), leaders=results.leaders(kept))
    if plan is not None:
        summary = _judged(summary, kept, plan, found)
    write_results(summary)
    write_code_files(found.folder, {one.item for one in records if one.status == "scored"})
    return summary


def _judged(
    summary: Summary, kept: Sequence[tuple[StoredResult, ItemScores]], plan: GateConfig, found: Merged
) -> Summary:
    gate = decided(
        plan,
        [BenchmarkScores(*one) for one in kept],
        summary,
        lambda: open_source(plan.baseline, found.folder.parent, folder=Path()),
        dict,
    )
    against = [*found.missing, *(f"{row['name']} cannot be used" for row in summary.failed_to_load)]
    if against and gate.fault is None:
        gate = replace(gate, fault=listed(against, SHOWN, between="; "))
    code = int(gate.exit_code) or None
    return replace(summary, gate=gate_json(gate, decision_text(gate, code), code))


def _exit_code(found: Merged, summary: Summary) -> int:
    if summary.gate is not None and summary.gate.get("exit_code"):
        return int(summary.gate["exit_code"])
    wrong = found.missing or found.differing or summary.faults or summary.failed_to_load
    return ExitCode.NOT_VALID if wrong else ExitCode.OK


def _lines(found: Merged) -> Iterator[str]:
    yield f"merged      {count(found.shards, 'shard')}, {found.items:,} of {found.whole:,} items"
    for line in found.missing:
        yield f"missing     {line}"
    if found.double:
        yield f"double      {count(found.double, 'item')} scored in two shards, alike"
    if found.differing:
        n = count(len(found.differing), "item")
        yield f"differing   {n} scored otherwise in another shard; the later score stays"
    for one in found.differing[:SHOWN]:
        yield f"            {one.item}: {one.scores[0]} in {one.runs[0]}, {one.scores[1]} in {one.runs[1]}"
    for note in found.notes:
        yield f"note        {note}"
