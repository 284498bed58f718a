"""Files that a run with ``--eval-config`` has for each benchmark: ``BENCHMARK.log``, a line per item, and its results
once more where it has an ``output_path``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pytest_touchstone.core.eval_config import AS_THE_RUN, Asking
from pytest_touchstone.core.files import file_name, write_atomic, write_json
from pytest_touchstone.core.lm_eval_names import metrics_named
from pytest_touchstone.reports.files import benchmark_facts
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import Result, Summary, base_name

T = TypeVar("T")


def write_benchmark_files(
    directory: Path, summary: Summary, records: Iterable[Record], asked: Mapping[str, Asking], base: Path
) -> None:
    """Write the files; ``asked`` has the options of benchmarks by name, whose paths are taken from ``base``.

    Raises ``OSError``.
    """
    mine: dict[str, list[Record]] = {}
    for record in records:
        mine.setdefault(record.benchmark, []).append(record)
    for declaration in summary.declarations:
        name = declaration.name
        asking = asked.get(base_name(name), AS_THE_RUN)
        own = [result for result in summary.results if result.benchmark == name]
        lines = _lines(name, own, mine.get(name, ()), asking)
        write_atomic(directory / f"{file_name(name)}.log", "".join(f"{line}\n" for line in lines))
        if asking.output_path is not None:
            target = output_file(base / asking.output_path, file_name(name), summary.run_id)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_json(target, benchmark_facts(summary, declaration))


def output_file(path: Path, benchmark: str, run_id: str) -> Path:
    """Return the file for an ``output_path``: itself where it is one, else a file in that folder."""
    return path if path.suffix == ".json" else path / f"{benchmark}_{run_id}.json"


def _lines(name: str, results: Iterable[Result], records: Iterable[Record], asking: Asking) -> Iterator[str]:
    told = [f"{key} {value}" for key, value in asking.settings.items()]
    told += [] if asking.seconds is None else [f"timeout {asking.seconds:g} s"]
    yield f"benchmark {name}, priority {asking.priority}{''.join(f', {one}' for one in told)}"
    for record in records:
        scores = ", ".join(f"{key} {value:g}" for key, value in _chosen(record.scores, asking).items())
        said = scores or " ".join((record.message or "").split())
        yield f"{record.status} {record.checkpoint} {record.example} {record.seconds:.3f} s: {said}"
    for result in results:
        values = (
            f"{key} {'undefined' if metric.value is None else format(metric.value, '.4f')}"
            for key, metric in _chosen(result.metrics, asking).items()
        )
        counts = f"{result.scored} of {result.collected} items"
        yield f"result {result.checkpoint} {result.name}: {', '.join(values)}; {counts}"
        if result.invalid is not None:
            yield f"not valid {result.checkpoint} {result.name}: {result.invalid}"


def _chosen(found: Mapping[str, T], asking: Asking) -> dict[str, T]:
    """Return the values that the file names; all where it names none."""
    names = {one for name in asking.metrics for one in metrics_named(name, found)}
    return {name: value for name, value in found.items() if not asking.metrics or name in names}
