"""Write a file of references (``compare.formats.references``) from several runs of one model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.answers import read_records
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
from pytest_touchstone.compare.gate.config import check_names
from pytest_touchstone.compare.prompts import prompt_digests
from pytest_touchstone.core.aggregation import P_RIGHT
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.files import shipped_evals, shown_path
from pytest_touchstone.core.settings import OF_ENGINES, OF_RESULTS, differences, manifest_conditions
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
            another run's in items or conditions; or if no benchmark has the metric.

    """
    names = dict.fromkeys(name for run in runs for name in run.entries)
    if not names:
        raise GateError("the runs have no results to save")
    metrics = dict.fromkeys(
        known for run in runs for entry in run.entries.values() for known in entry.saved.metrics
    )
    check_names([metric] if metric else (), metrics, "--metric", "metric")
    blocks = [
        _block([run.entries[name] for run in runs if name in run.entries], metric, soft=soft)
        for name in names
    ]
    return "\n\n".join([FIRST_LINE, *("\n".join(block) for block in blocks)]) + "\n"


def _block(entries: Sequence[BenchmarkScores], wanted: str | None, *, soft: bool) -> Iterator[str]:
    """Yield the lines of one benchmark."""
    first = entries[0]
    if len({entry.saved.run_id for entry in entries}) < len(entries):
        raise GateError(f"{first.saved.benchmark}: a run is given twice; name each run once")
    metric = wanted if wanted in first.saved.metrics else first.saved.primary
    for entry in entries:
        _check_entry(entry, first, metric)
    pairs = list(zip(first.items.examples, first.items.rows, strict=True))
    hashes = [item_hash(*pair, digits=64) for pair in pairs]
    digits = next(
        size for size in range(DIGITS, 65) if len({digest[:size] for digest in hashes}) == len(hashes)
    )
    ordered = sorted(range(len(hashes)), key=hashes.__getitem__)
    header = _header(entries, metric, [pairs[index] for index in ordered[:PROMPTED]])
    for name, value in asdict(header).items():
        if value not in (None, [], {}):
            yield f"{name}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}"
    totals = _sums(entries, header.score)
    has_soft = soft and all(P_RIGHT in entry.items.scores for entry in entries)
    softs = _sums(entries, P_RIGHT) if has_soft else []
    for index in ordered:
        soft_score = f" {round(softs[index] / len(entries) * SOFT_STEPS):02x}" if softs else ""
        yield f"{hashes[index][:digits]} {round(totals[index], DECIMALS):g}{soft_score}"


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
    known, expected = ({**each.saved.known, "items": each.items.digest()} for each in (entry, first))
    if names := ", ".join(differences(known, expected, OF_ENGINES)):
        raise GateError(f"{where}: {names} differ from {first.saved.run_id}; save runs of the same questions")


def _header(
    entries: Sequence[BenchmarkScores], metric: str, prompted: Sequence[tuple[str, str]]
) -> ReferenceHeader:
    first, saved = entries[0], entries[0].saved
    prompts = prompt_digests(first)
    settings = differences(saved.known, manifest_conditions({}), (*OF_ENGINES, *OF_RESULTS, "limit"))
    return ReferenceHeader(
        benchmark=saved.benchmark,
        version=saved.conditions["version"],
        rows=saved.conditions["data"],
        of=saved.size,
        prompts=[prompts.get(pair, "") for pair in prompted] if prompts else [],
        request=request_limits(first, prompted[0][0]),
        template=saved.conditions["template"],
        shots=saved.conditions["shots"],
        few_shot=saved.conditions["few_shot"],
        settings={name: value for name, (value, _) in settings.items()},
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


def request_limits(entry: BenchmarkScores, example: str) -> dict[str, Any]:
    """Return the stop sequences and the limit of tokens of an item's first request, as far as it has any."""
    exchanges = (exchange for record in read_records(entry, {example}) for exchange in record.exchanges)
    request: Mapping[str, Any] = next((exchange["request"] for exchange in exchanges), {})
    return {name: request[name] for name in _LIMITS if request.get(name) is not None}


def _own_file(entry: BenchmarkScores) -> str | None:
    """Return the path of a benchmark's file from the current folder, None for a shipped one."""
    if entry.answers is None or not entry.answers.is_dir():
        return None
    files = {spec.name: Path(spec.file) for spec in load_summary(entry.answers).declarations if spec.file}
    file = files.get(entry.saved.benchmark)
    return None if file is None or file.is_relative_to(shipped_evals()) else shown_path(file)


def _engine(saved: StoredResult) -> str:
    info = saved.checkpoint_info
    if info.get("served"):
        return str(info.get("model_type"))
    return f"{info.get('engine', 'unknown')} {saved.conditions.get('dtype') or ''}".strip()
