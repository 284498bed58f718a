"""``touchstone validate FILE``: checks a file of ``--eval-config``, and shows what it enables."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_touchstone.cli.command import Output, terminal
from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.declared import shipped_names
from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.eval_config import Choice, ConfigFileError, EvalConfig, read_eval_config
from pytest_touchstone.core.exit_codes import ExitCode
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.core.resources import shipped_evals
from pytest_touchstone.core.setting_sources import of_table
from pytest_touchstone.core.tasks import Known, Tasks, declared_groups
from pytest_touchstone.core.text import count
from pytest_touchstone.plugin.listing import find_benchmarks
from pytest_touchstone.plugin.selection import faults_of, faults_of_unused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="the JSON or TOML file of --eval-config")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="benchmarks of your own that it may name, too"
    )


def run(options: argparse.Namespace) -> Output:
    """Check the file; each fault is a line, and the exit code is then 4."""
    path = Path(options.file)
    specs = known_specs([Path(one) for one in options.paths])
    try:
        file, lines = checked(path, specs)
    except ConfigFileError as error:
        lines = error.lines
    if lines:
        return Output({"valid": False, "faults": lines}, "\n".join(lines), ExitCode.MISTAKE)
    rows = rows_of(file, specs)
    names = {row["benchmark"].partition("/")[0] for row in rows}
    said = f"{shown_path(path)} is valid; it enables {count(len(names), 'benchmark')}"
    unused = faults_of_unused(file, [(spec, declared_groups(spec, None)) for spec in specs])
    notes = [*file.notes, *(f"not enabled, so no mistake yet: {line}" for line in unused)]
    data = {"valid": True, "benchmarks": rows, "notes": notes}
    return Output(data, lambda: f"{said}\n\n{table_of(file, rows, notes)}")


def known_specs(paths: Sequence[Path]) -> list[Benchmark]:
    """Return the shipped benchmarks and those of the paths; raises ``HarnessError``."""
    return [one.spec for one in find_benchmarks([shipped_evals(), *paths])]


def checked(path: Path, specs: Sequence[Benchmark]) -> tuple[EvalConfig, list[str]]:
    """Return a file, and a line for each name in it that nothing has; raises ``ConfigFileError``."""
    file = read_eval_config(path, shipped_names() | {spec.name for spec in specs})
    known: list[Known] = [(spec, declared_groups(spec, None)) for spec in specs]
    faults = faults_of(file, known)
    try:
        of_table(file.settings, f"{shown_path(path)}: settings", path.name)
    except OptionError as error:
        faults.append(str(error))
    return file, faults


def rows_of(file: EvalConfig, specs: Sequence[Benchmark]) -> list[dict[str, Any]]:
    """Return what a file enables, as plain data."""
    names = [spec.name for spec in specs]
    return [
        _row(choice, spec)
        for choice in file.choices
        for spec in specs
        if Tasks.of([choice.term], names=names).chosen(spec)
    ]


def _row(choice: Choice, spec: Benchmark) -> dict[str, Any]:
    asking = choice.asking
    return {
        "benchmark": spec.name if "/" not in choice.term else choice.term,
        "entry": choice.entry,
        "named": choice.written,
        "shots": spec.num_fewshot if asking.shots is None else asking.shots,
        "limit": asking.limit or "all",
        "batch_size": choice.batch,
        "metrics": list(asking.metrics),
        "priority": asking.priority,
        "timeout": asking.seconds,
        "log_samples": asking.samples,
        "output_path": asking.output_path,
    }


def table_of(file: EvalConfig, rows: Sequence[dict[str, Any]], notes: Sequence[str] = ()) -> str:
    """Return what a file enables, and what it does not, as text."""
    from pytest_touchstone.reports.formatting import NOTHING, console_of, labelled, open_table, written

    width, color = terminal()
    console = console_of(width, color=color)
    table = open_table(1 if width < 100 else 2)
    for head in ("benchmark", "named"):
        table.add_column(head, overflow="fold")
    for head in ("shots", "limit", "batch", "timeout"):
        table.add_column(head, justify="right", no_wrap=True)
    for head in ("priority", "metrics"):
        table.add_column(head, overflow="fold")
    for row in rows:
        timeout = NOTHING if row["timeout"] is None else f"{row['timeout']:g} s"
        named = row["named"] if row["named"] != row["benchmark"] else ""
        cells = (row["shots"], row["limit"], row["batch_size"] or "auto", timeout, row["priority"])
        table.add_row(row["benchmark"], named, *map(str, cells), ", ".join(row["metrics"]) or "all")
    console.print(table)
    if file.off:
        console.print()
        told = [f"{where}: {why}" for where, why in file.off]
        console.print(labelled([("" if number else "off", text) for number, text in enumerate(told)]))
    if all_notes := notes or file.notes:
        console.print()
        console.print(labelled([("" if number else "note", text) for number, text in enumerate(all_notes)]))
    return written(console)
