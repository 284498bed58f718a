"""Write a file of references (``compare.formats.references``) from several runs of one model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.answers import first_exchanges
from pytest_touchstone.compare.baselines import incomplete_reason
from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults
from pytest_touchstone.compare.comparison_verdicts import are_pooled, score_name
from pytest_touchstone.compare.formats.references import (
    DIGITS,
    FIRST_LINE,
    SOFT_STEPS,
    ReferenceHeader,
    item_hash,
)
from pytest_touchstone.compare.prompts import prompt_digests
from pytest_touchstone.core.aggregation import P_RIGHT
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.files import shipped_evals, shown_path
from pytest_touchstone.core.settings import OF_ENGINES, manifest_conditions
from pytest_touchstone.results.store_entry import StoredResult
from pytest_touchstone.results.summary import load_summary

PROMPTED: Final = 8
"""The number of items, the first by hash, whose prompts are known."""

DECIMALS: Final = 3
"""The decimals of a sum of graded scores."""

_LIMITS: Final = ("stop", "max_new_tokens", "turns_stop", "turns_max_new_tokens")


def format_references(runs: Sequence[CheckpointResults], *, metric: str | None, soft: bool) -> str:
    """Return the text of a file of references over the benchmarks of the runs.

    Raises:
        HarnessError: If a result is not complete, is not a mean of scores in [0, 1], asks a judge, or differs from
            another run's in items or conditions.

    """
    by_benchmark: dict[str, list[BenchmarkScores]] = {}
    for run in runs:
        for name, entry in run.entries.items():
            by_benchmark.setdefault(name, []).append(entry)
    if not by_benchmark:
        raise GateError("the runs have no results to save")
    blocks = [_block(entries, metric, soft=soft) for entries in by_benchmark.values()]
    return "\n\n".join([FIRST_LINE, *("\n".join(block) for block in blocks)]) + "\n"


def _block(entries: Sequence[BenchmarkScores], wanted: str | None, *, soft: bool) -> Iterator[str]:
    """Yield the lines of one benchmark."""
    first, saved = entries[0], entries[0].saved
    metric = wanted if wanted in saved.metrics else saved.primary
    for entry in entries:
        _check_entry(entry, first, metric)
    score = score_name(saved, metric)
    soft_name = P_RIGHT if soft and all(P_RIGHT in entry.items.scores for entry in entries) else None
    items = first.items
    totals = _sums(entries, score)
    softs = _sums(entries, soft_name) if soft_name else []
    digits = DIGITS
    while len(set(map(partial(item_hash, digits=digits), items.examples, items.rows))) < len(totals):
        digits += 1
    hashes = list(map(partial(item_hash, digits=digits), items.examples, items.rows))
    ordered = sorted(range(len(hashes)), key=hashes.__getitem__)
    header = _header(
        entries, metric, [(items.examples[index], items.rows[index]) for index in ordered[:PROMPTED]]
    )
    for name, value in asdict(replace(header, soft=soft_name)).items():
        if value not in (None, [], {}):
            yield f"{name}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}"
    for index in ordered:
        soft_score = f" {round(softs[index] / len(entries) * SOFT_STEPS):02x}" if softs else ""
        yield f"{hashes[index]} {round(totals[index], DECIMALS):g}{soft_score}"


def _sums(entries: Sequence[BenchmarkScores], score: str) -> list[float]:
    """Return the sum of each item's scores over all runs."""
    columns = zip(*(entry.items.scores[score] for entry in entries), strict=True)
    return [math.fsum(value or 0.0 for value in values) for values in columns]


def _check_entry(entry: BenchmarkScores, first: BenchmarkScores, metric: str) -> None:
    """Raise ``GateError`` for a result that is no reference, or not one of the same questions as the first."""
    saved = entry.saved
    where = f"{saved.benchmark} of {saved.checkpoint} in {saved.run_id}"
    if saved.published or not entry.items.examples or saved.reference_runs:
        raise GateError(f"{where}: its items were not run here; give runs of this harness")
    if not saved.complete:
        raise GateError(f"{where}: {incomplete_reason(saved)}; score it again, or leave the benchmark out")
    if metric not in saved.metrics or not are_pooled([entry], metric):
        names = ", ".join(name for name in saved.metrics if are_pooled([entry], name))
        raise GateError(
            f"{where}: {metric} is no mean of scores in [0, 1]; --metric takes {names or 'none here'}"
        )
    if saved.conditions.get("judged_by"):
        raise GateError(f"{where}: a judge has answered, and is no part of the file; leave the benchmark out")
    known, expected = (
        {name: value for name, value in result.saved.known.items() if name not in OF_ENGINES}
        for result in (entry, first)
    )
    if known != expected:
        names = ", ".join(name for name in known if known[name] != expected.get(name))
        raise GateError(f"{where}: {names} differ from {first.saved.run_id}; save runs of the same questions")
    if (entry.items.examples, entry.items.rows) != (first.items.examples, first.items.rows):
        raise GateError(
            f"{where}: its items are not those of {first.saved.run_id}; save runs of the same items"
        )


def _header(
    entries: Sequence[BenchmarkScores], metric: str, prompted: Sequence[tuple[str, str]]
) -> ReferenceHeader:
    first, saved = entries[0], entries[0].saved
    prompts = prompt_digests(first)
    defaults, known = manifest_conditions({}), saved.known
    return ReferenceHeader(
        benchmark=saved.benchmark,
        version=saved.conditions["version"],
        rows=saved.conditions["data"],
        of=saved.size,
        prompts=[prompts[pair] for pair in prompted if pair in prompts],
        request=request_limits(first),
        template=saved.conditions["template"],
        shots=saved.conditions["shots"],
        few_shot=saved.conditions["few_shot"],
        settings={
            name: known[name]
            for name, default in defaults.items()
            if name not in OF_ENGINES and known.get(name, default) != default and name != "limit"
        },
        code=saved.code,
        file=_own_file(first),
        metric=metric,
        score=score_name(saved, metric),
        temperature=saved.temperature,
        runs=len(entries),
        models=[*dict.fromkeys(entry.saved.checkpoint for entry in entries)],
        engines=[*dict.fromkeys(_engine(entry.saved) for entry in entries)],
        date=datetime.fromtimestamp(max(entry.saved.began for entry in entries), UTC).date().isoformat(),
    )


def request_limits(entry: BenchmarkScores) -> dict[str, Any]:
    """Return the stop sequences and the limit of tokens of a result's first request, as far as it has any."""
    requests: Iterable[Mapping[str, Any]] = (exchange["request"] for exchange in first_exchanges(entry)[:1])
    return {name: request[name] for request in requests for name in _LIMITS if request.get(name) is not None}


def _own_file(entry: BenchmarkScores) -> str | None:
    """Return the path of a benchmark's file from the current folder, None for a shipped one."""
    if entry.answers is None or not entry.answers.is_dir():
        return None
    declared = {spec.name: spec.file for spec in load_summary(entry.answers).declarations}
    file = declared.get(entry.saved.benchmark, "")
    return None if not file or Path(file).is_relative_to(shipped_evals()) else shown_path(Path(file))


def _engine(saved: StoredResult) -> str:
    info = saved.checkpoint_info
    if info.get("served"):
        return str(info.get("model_type"))
    return f"{info.get('engine', 'unknown')} {saved.conditions.get('dtype') or ''}".strip()
