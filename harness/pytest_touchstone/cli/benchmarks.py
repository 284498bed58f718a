"""``touchstone benchmarks``: the benchmarks that are shipped, or are in files of one's own, and their rows."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output, terminal
from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.dataset import HUB, load_dataset
from pytest_touchstone.core.errors import DataError, ExitCode, HarnessError, OptionError
from pytest_touchstone.core.eval_config import ConfigFileError, EvalConfig, validate_eval_config
from pytest_touchstone.core.files import shipped_evals, shown_path
from pytest_touchstone.core.settings import parse_settings_table, settings_table
from pytest_touchstone.core.tasks import (
    KnownBenchmark,
    TaskSelection,
    declared_groups,
    shipped_names,
    tags_of,
    task_groups,
)
from pytest_touchstone.core.text import count
from pytest_touchstone.plugin.selection import ListedBenchmark, config_faults, find_benchmarks

WIDE: Final = 100
"""The columns from which the table has versions, all tags and the number of metrics, two spaces apart."""

LEGEND: Final = (
    ("here", "rows that are shipped, or in --data DIR; full: in the published set"),
    ("metrics", "the primary one, and how many others"),
    ("choose", "--eval-tasks NAME,...: names, tags, patterns such as 'arc*'"),
    ("more", "touchstone benchmarks NAME ('*' for all of them)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME|PATH|PACKAGE",
        help="what --eval-tasks takes: names, tags, patterns; or a file, folder or package of benchmarks",
    )
    text = "check this file of --eval-config, and show what it enables; each fault is a line"
    parser.add_argument("--config", metavar="FILE", help=text)
    parser.add_argument("--data", metavar="DIR", help="count the rows of this folder of datasets")


def run(options: argparse.Namespace) -> Output:
    """List benchmarks, with all details for named ones. Raises ``HarnessError``."""
    paths, names = [], []
    for name in options.names:
        path = Path(name) if Path(name).exists() else _package(name)
        if path is None:
            names.append(name)
        else:
            paths.append(path)
    if options.config is not None:
        return _list_enabled(Path(options.config), paths)
    data = options.data or os.environ.get("TOUCHSTONE_DATA")
    if data is not None:
        settings_table()["data"].read(data, "--data" if options.data else "TOUCHSTONE_DATA")
    benchmarks = find_benchmarks(paths or [shipped_evals()])
    groups = task_groups(Path("pyproject.toml"))
    tasks = _tasks(benchmarks, names, groups)
    rows = [
        _row(benchmark, data, tasks.shots(benchmark.spec))
        for benchmark in benchmarks
        if tasks.chosen(benchmark.spec)
    ]
    if not rows:
        raise HarnessError(
            f"no benchmarks in {', '.join(map(str, paths))}; docs/benchmarks.md tells how to write one"
        )
    return Output(rows, lambda: _blocks(rows) if names else _table(rows, groups))


def _package(name: str) -> Path | None:
    """Return the folder of an installed package, None for other names. Names are those of ``pytest --pyargs``."""
    if name in shipped_names() or not all(map(str.isidentifier, name.split("."))):
        return None
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    folders = None if spec is None else spec.submodule_search_locations
    return Path(folders[0]) if folders else None


def _list_enabled(path: Path, paths: Sequence[Path]) -> Output:
    """List the benchmarks that a file of --eval-config enables.

    If the file has faults, each is a line, and the exit code is 4.
    """
    specs = known_specs(paths)
    try:
        file, faults = validate_config(path, specs)
    except ConfigFileError as error:
        faults = error.lines
    if faults:
        return Output({"valid": False, "faults": faults}, "\n".join(faults), ExitCode.MISTAKE)
    rows = rows_of(file, specs)
    names = {row["benchmark"].partition("/")[0] for row in rows}
    valid = f"{shown_path(path)} is valid; it enables {count(len(names), 'benchmark')}"
    unused = config_faults(file, file.unused, [(spec, declared_groups(spec, None)) for spec in specs])
    notes = [*file.notes, *(f"not enabled, so no mistake yet: {line}" for line in unused)]
    data = {"valid": True, "benchmarks": rows, "notes": notes}
    return Output(data, lambda: f"{valid}\n\n{table_of(file, rows, notes)}")


def _tasks(
    benchmarks: Sequence[ListedBenchmark], names: Sequence[str], groups: Mapping[str, str]
) -> TaskSelection:
    """Return the task selection for names. Raises ``HarnessError`` for an unknown name."""
    try:
        tasks = TaskSelection.of(names, groups, [benchmark.spec.name for benchmark in benchmarks])
    except ValueError as error:
        raise HarnessError(
            f"{' '.join(names)!r}: no such file, and no name of a benchmark; expected {error}"
        ) from None
    specs: list[KnownBenchmark] = [
        (benchmark.spec, declared_groups(benchmark.spec, None)) for benchmark in benchmarks
    ]
    if (line := tasks.unknown(specs)) is not None:
        message = line.replace("--eval-tasks", "NAME", 1)
        raise HarnessError(message.replace("no such benchmark or tag", "no such file, benchmark or tag", 1))
    return tasks


def _row(benchmark: ListedBenchmark, data: str | None, shots: int | None) -> dict[str, Any]:
    """Return all facts about a benchmark as plain values. ``shots`` overrides its number of few-shot examples."""
    spec, path = benchmark.spec, benchmark.path
    row_count, origin, missing, groups = _local_rows(benchmark, data)
    published = spec.published.rows
    source, cwd = spec.data, Path.cwd()
    hub = (
        None if source.path is None else {"path": source.path, "config": source.config, "split": source.split}
    )
    return {
        "name": spec.name,
        "version": spec.version,
        "asks": [kind.__name__ for kind in spec.asks],
        "tags": list(tags_of(spec)),
        "metrics": list(dict.fromkeys((spec.primary, *spec.metrics, *spec.aggregate))),
        "shots": spec.shots.count if shots is None else shots,
        "rows": row_count,
        "rows_from": origin,
        "missing": missing,
        "published_rows": published if isinstance(published, int | None) else sum(published.values()),
        "groups": list(groups),
        "data": {"folder": source.name or None, "hub": hub},
        "needs": dict(spec.code.needs),
        "source": spec.published.places,
        "file": str(path.relative_to(cwd) if path.is_relative_to(cwd) else path),
    }


def _local_rows(benchmark: ListedBenchmark, data: str | None) -> tuple[int | None, str, str, Sequence[str]]:
    """Return the number of local rows, their origin, why there are none, and their groups."""
    spec = benchmark.spec
    groups = declared_groups(spec, None) or ()
    if data == HUB:
        return None, HUB, "the rows of the Hub are not counted", groups
    try:
        rows = load_dataset(spec, data)
    except DataError as error:
        return None, "", str(error).removeprefix(f"{spec.name}: "), groups
    group_names = dict.fromkeys(example.group for example in rows.examples if example.group is not None)
    return len(rows.examples), rows.info.origin, "", tuple(group_names)


def _table(rows: Sequence[dict[str, Any]], groups: Iterable[str]) -> str:
    from pytest_touchstone.document import Facts, Section, Table, render_text
    from pytest_touchstone.document.formatting import NOTHING

    wide = terminal()["width"] >= WIDE
    cells = []
    for row in sorted(rows, key=itemgetter("name")):
        counts = (NOTHING if n is None else f"{n:,}" for n in (row["rows"], row["published_rows"]))
        first_metric, *others = row["metrics"]
        implied = {"causal"} | ({"generation"} if "code" in row["tags"] else set())  # by other tags
        tags = [tag for tag in row["tags"] if tag not in implied] or row["tags"]
        kinds = ", ".join(tags[: None if wide else 1])
        metric = f"{first_metric} +{len(others)}" if wide and others else first_metric
        version = [str(row["version"])] * wide
        cells.append((row["name"], kinds, metric, *version, str(row["shots"]), *counts))
    header = ("benchmark", *(("tags", "metrics", "v", "shots") if wide else ("kind", "metric", "shot")))
    table = Table(header=(*header, "here", "full"), rows=tuple(cells), text_columns=3)
    named = ("groups", f"{', '.join(groups)}: several benchmarks by one name")
    return render_text([Section(parts=(table, Facts((*LEGEND, named))))], **terminal())


def _blocks(rows: Sequence[dict[str, Any]]) -> str:
    from pytest_touchstone.document import Facts, Section, render_text

    sections = [
        Section(
            title=f"{row['name']}  version {row['version']}, {row['shots']}-shot",
            parts=(Facts(tuple((f"  {label}", text) for label, text in _facts(row))),),
        )
        for row in rows
    ]
    return render_text(sections, **terminal(), dense=True)


def _facts(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the labelled facts about a benchmark."""
    yield "asks", ", ".join(row["asks"])
    yield "tags", ", ".join(row["tags"])
    yield "metrics", ", ".join(row["metrics"])
    counts = [] if row["rows"] is None else [f"{row['rows']:,} here ({row['rows_from']})"]
    counts += [] if row["published_rows"] is None else [f"{row['published_rows']:,} in full"]
    yield "rows", ", ".join(counts) or "unknown"
    if row["missing"]:
        yield "none here", row["missing"]
    hub, folder = row["data"]["hub"], row["data"]["folder"]
    if folder is not None:
        yield "data", folder if folder.endswith(".jsonl") else f"DIR/{folder}.jsonl with --eval-data DIR"
    if hub is not None:
        parts = ", ".join(filter(None, (hub["path"], hub["config"], hub["split"])))
        yield "", f"{parts} with --eval-data hub"
    if row["groups"]:
        yield "groups", f"{', '.join(row['groups'])}"
    for package, requirement in row["needs"].items():
        yield "needs", f"{package}: {requirement}"
    if row["source"]:
        yield "source", row["source"]
    yield "file", row["file"]


def known_specs(paths: Sequence[Path]) -> list[Benchmark]:
    """Return the bundled benchmarks and those in the paths. Raises ``HarnessError``."""
    return [benchmark.spec for benchmark in find_benchmarks([shipped_evals(), *paths])]


def validate_config(path: Path, specs: Sequence[Benchmark]) -> tuple[EvalConfig, list[str]]:
    """Return a parsed eval config with a line per fault. Raises ``ConfigFileError`` for an unusable file."""
    file, faults = validate_eval_config(path, shipped_names() | {spec.name for spec in specs})
    if file is None:
        raise ConfigFileError(faults)
    groups_of_specs: list[KnownBenchmark] = [(spec, declared_groups(spec, None)) for spec in specs]
    faults += config_faults(file, file.choices, groups_of_specs)
    for name, value in file.settings.items():
        try:
            parse_settings_table({name: value}, f"{shown_path(path)}: settings", path.name)
        except OptionError as error:
            faults.append(str(error))
    return file, faults


def rows_of(file: EvalConfig, specs: Sequence[Benchmark]) -> list[dict[str, Any]]:
    """Return what a file enables, as plain data."""
    names = [spec.name for spec in specs]
    return [
        {
            "benchmark": spec.name if "/" not in choice.term else choice.term,
            "entry": choice.entry,
            "named": choice.written,
            "shots": spec.shots.count if choice.asking.shots is None else choice.asking.shots,
            "limit": choice.asking.limit or "all",
            "batch_size": choice.batch,
            "metrics": list(choice.asking.metrics),
            "priority": choice.asking.priority,
            "timeout": choice.asking.seconds,
            "log_samples": choice.asking.samples,
            "output_path": choice.asking.output_path,
        }
        for choice in file.choices
        for spec in specs
        if TaskSelection.of([choice.term], names=names).chosen(spec)
    ]


def table_of(file: EvalConfig, rows: Sequence[dict[str, Any]], notes: Sequence[str] = ()) -> str:
    """Return the benchmarks that an eval config enables, and its notes, as text."""
    from pytest_touchstone.document import Facts, Part, Section, Table, render_text
    from pytest_touchstone.document.formatting import NOTHING

    cells = []
    for row in rows:
        timeout = NOTHING if row["timeout"] is None else f"{row['timeout']:g} s"
        named = row["named"] if row["named"] != row["benchmark"] else ""
        numbers = (row["shots"], row["limit"], row["batch_size"] or "auto", timeout, row["priority"])
        cells.append((row["benchmark"], named, *map(str, numbers), ", ".join(row["metrics"]) or "all"))
    header = ("benchmark", "named", "shots", "limit", "batch", "timeout", "priority", "metrics")
    parts: list[Part] = [Table(header=header, rows=tuple(cells), text_columns=2, words=True)]
    for label, texts in (
        ("off", [f"{where}: {why}" for where, why in file.off]),
        ("note", notes or file.notes),
    ):
        if texts:
            parts.append(Facts(tuple(("" if number else label, text) for number, text in enumerate(texts))))
    return render_text([Section(parts=tuple(parts))], **terminal())
