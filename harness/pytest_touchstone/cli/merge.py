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
from pytest_touchstone.core.files import shown_path, unwritable_reason
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.plugin.gate import apply_gate
from pytest_touchstone.plugin.run_results import RunResults
from pytest_touchstone.reports.files import write_code_files, write_results
from pytest_touchstone.reports.gate import decision_text
from pytest_touchstone.results.merging import (
    MergeReport,
    ShardRun,
    check_same_run,
    check_target,
    find_shards,
    merge,
    merged_run_id,
)
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import Summary, load_summary, summary_json

SHOWN: Final = 3
"""The most items that are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    text = "the folder of a shard's run, or one with such folders up to two levels below"
    add("what", nargs="+", type=Path, metavar="DIR", help=text)
    text = "write the run there (default: merged_HASH in the results folder, the same for the same run)"
    add_target(parser, text)
    add_output(parser)
    add_settings(parser, "gate", "gate_mode", "baseline", "gate_config")


def run(options: argparse.Namespace) -> Output:
    """Write the merged run and show its table. Raises ``HarnessError`` for a mistake."""
    parts = find_shards(options.what)
    check_same_run(parts)
    target = options.to or options.output / merged_run_id(parts)
    plan = _plan(options)
    check_target(target, parts)
    if (why := unwritable_reason(target)) is not None:
        raise HarnessError(f"{shown_path(target)}: {why}; name another folder with -o")
    if plan is not None:  # the names of the gate are those of the run, and there is such a baseline
        root = Path(parts[0].manifest.get("rootdir", "."))
        files = {root / item.item.partition("::")[0] for shard in parts for item in shard.items}
        open_source(plan.baseline, target.parent, folder=Path())
        best = open_source("best", target.parent, folder=Path()).saved
        check_plan(plan, parts[0].declarations, best, files)
    merged = merge(parts, target)
    summary = _summary(merged, parts, plan)
    gate = summary.gate or {}
    data = {
        "run": str(merged.folder),
        "shards": merged.shards,
        "items": merged.items,
        "of": merged.whole,
        "missing": merged.missing,
        "double": merged.double,
        "differing": [conflict._asdict() for conflict in merged.differing],
        "notes": merged.notes,
        "summary": summary_json(summary),
    }
    wrong = merged.missing or merged.differing or summary.faults or summary.failed_to_load
    code = gate.get("exit_code") or (ExitCode.NOT_VALID if wrong else ExitCode.OK)

    def text() -> str:
        from pytest_touchstone.reports.terminal import render

        table = render(summary, **terminal(), details=False).rstrip("\n")
        return "\n".join([table, *_lines(merged), *filter(None, [gate.get("text")])])

    def markdown() -> str:
        from pytest_touchstone.reports.ci import markdown_page

        return markdown_page(summary)

    return Output(data, text, exit_code=int(code), markdown=markdown)


def _plan(options: argparse.Namespace) -> GateConfig | None:
    """Return the requested gate; None without --gate and --baseline."""
    gate = options.gate or options.gate_mode is not None
    if not gate and options.baseline is None:
        if options.gate_config is not None:
            raise HarnessError(
                "--gate-config does nothing alone; give --gate, or --baseline to see verdicts only"
            )
        return None
    path = None if options.gate_config is None else Path(options.gate_config)
    config = read_gate_config(path or Path("pyproject.toml"), required=path is not None, root=Path())
    mode = options.gate_mode or config.mode or "plain" if gate else None
    return replace(config, mode=mode, baseline=options.baseline or config.baseline, sequential=False)


def _summary(merged: MergeReport, parts: Sequence[ShardRun], plan: GateConfig | None) -> Summary:
    """Write and return the results of the merged run. Only a complete run is saved for later runs."""
    results = RunResults(RunDirectory(merged.folder))
    shards = []
    for shard in parts:
        with suppress(HarnessError):  # one that was stopped has none
            shards.append(load_summary(shard.folder))
    seconds = max((shard.seconds for shard in shards), default=0.0)
    summary, records = results.whole(
        lambda _: "its shard has no score of it; the same command goes on", seconds
    )
    failed = {row["name"]: row for shard in shards for row in shard.failed_to_load}
    summary = replace(summary, failed_to_load=list(failed.values()))
    saved = results.save(summary, records, keep=not merged.missing)
    summary = replace(summary, changes=results.changes(saved), leaders=results.leaders(saved))
    if plan is not None:
        gate = apply_gate(
            plan,
            [BenchmarkScores(*entry) for entry in saved],
            summary,
            lambda: open_source(plan.baseline, merged.folder.parent, folder=Path()),
            dict,
        )
        faults = [*merged.missing, *(f"{row['name']} cannot be used" for row in summary.failed_to_load)]
        if faults and gate.fault is None:
            gate = replace(gate, fault=join_names(faults, SHOWN, between="; "))
        code = int(gate.exit_code) or None
        summary = replace(summary, gate=gate_json(gate, decision_text(gate, code), code))
    write_results(summary)
    write_code_files(merged.folder, {record.item for record in records if record.status != "scored"})
    return summary


def _lines(merged: MergeReport) -> Iterator[str]:
    yield f"merged      {count(merged.shards, 'shard')}, {merged.items:,} of {merged.whole:,} items"
    yield from (f"missing     {line}" for line in merged.missing)
    if merged.double:
        yield f"double      {count(merged.double, 'item')} scored in two shards, alike"
    if merged.differing:
        n = count(len(merged.differing), "item")
        yield f"differing   {n} scored otherwise in another shard; the later score stays"
    for item, runs, scores in merged.differing[:SHOWN]:
        yield f"            {item}: {scores[0]} in {runs[0]}, {scores[1]} in {runs[1]}"
    yield from (f"note        {note}" for note in merged.notes)
