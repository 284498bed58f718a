"""Results of Every Eval Ever (github.com/evaleval/every_eval_ever), schema 0.2 and 0.3: one model's, and its items.

    UUID.json             evaluation_results: a list with an object for each evaluation and metric
    UUID_samples.jsonl    a line per item and metric; evaluation_result_id, or else evaluation_name, says of which

A value in per cent (its unit, or a scale from 0 to 100) is taken as a share. The metric is the one that its id names,
else its name, else the beginning of its description ("Exact Match on MATH"): by this harness's names where it has the
same one (``accuracy`` is ``acc``). Converters of lm-evaluation-harness write the filter after the task's name
(``gsm8k/strict-match``), and all metrics of an item beside it (``lm_eval_metrics``).

Items are taken where they are complete and their mean is the score. Files of this harness (``every_eval_ever_export``)
also say how a metric is made of items, and of what a group is part.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from reprlib import repr as brief
from typing import Any, Final

from pytest_touchstone.checkpoints.config_files import number
from pytest_touchstone.compare.candidate import (
    BenchmarkScores,
    CheckpointResults,
    ResultSource,
    published,
    published_entry,
    source_of,
)
from pytest_touchstone.compare.formats.base import ResultTable, json_content, read_json
from pytest_touchstone.compare.formats.lm_eval import benchmark_name, example_of
from pytest_touchstone.compare.formats.task_json import table_of
from pytest_touchstone.compare.formats.task_metrics import (
    PER_CENT,
    Written,
    divisor_of,
    metric_name,
    primary_of,
)
from pytest_touchstone.core.conditions import is_condition
from pytest_touchstone.core.data_files import RawRow, read_lines
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import parsed, typed
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.results.store_entry import ItemScores, StoredResult
from pytest_touchstone.results.summary import Metric
from pytest_touchstone.statistics.comparison import LEVEL

OURS: Final = "pytest-touchstone"
"""The name of this library in a file."""

CANONICAL: Final = {"acc": "accuracy"}
"""Our names of metrics that have another one there."""

_OURS_OF: Final = {theirs: ours for ours, theirs in CANONICAL.items()}
_UUID: Final = f"{'[0-9a-f]' * 8}-????-4???-????-????????????.json"
_PASS_AT: Final = re.compile(r"pass_?(?:at_?|@)(\d+|k)")
_FILTERED: Final = re.compile(r"([\w@]+) \(filter: ([\w-]+)\)")
_CLOSE: Final = 5e-4
"""The greatest difference of a score, which may be rounded, from the mean of its items."""


@dataclass(frozen=True, slots=True)
class _Interval:
    lower: float
    upper: float
    confidence_level: float | None = None
    method: str | None = None


@dataclass(frozen=True, slots=True)
class _Error:
    value: float


@dataclass(frozen=True, slots=True)
class _Uncertainty:
    standard_error: _Error | None = None
    confidence_interval: _Interval | None = None
    num_samples: int | None = None


@dataclass(frozen=True, slots=True)
class _Score:
    score: float
    details: dict[str, Any] | None = None
    uncertainty: _Uncertainty | None = None


@dataclass(frozen=True, slots=True)
class _MetricConfig:
    lower_is_better: bool
    evaluation_description: str | None = None
    metric_id: str | None = None
    metric_name: str | None = None
    metric_unit: str | None = None
    metric_parameters: dict[str, Any] | None = None
    min_score: float | str | None = None
    max_score: float | str | None = None
    additional_details: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Generation:
    additional_details: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Result:
    evaluation_name: str
    metric_config: _MetricConfig
    score_details: _Score
    evaluation_result_id: str | None = None
    generation_config: _Generation | None = None

    @property
    def details(self) -> Mapping[str, str]:
        """The texts that are told beside the score."""
        told = self.score_details.details or {}
        return {name: one for name, one in told.items() if isinstance(one, str)}


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    id: str
    additional_details: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Library:
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Samples:
    file_path: str
    hash_algorithm: str | None = None
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class _Log:
    """The fields of a file that are read."""

    evaluation_id: str
    model_info: _Model
    evaluation_results: list[_Result]
    eval_library: _Library = field(default_factory=_Library)
    detailed_evaluation_results: _Samples | None = None

    @property
    def ours(self) -> bool:
        """Return whether this harness wrote it."""
        return self.eval_library.name == OURS


class EveryEvalEver:
    """A file of Every Eval Ever."""

    name = "every_eval_ever"
    patterns = (_UUID, f"data/*/*/*/{_UUID}")

    def sniff(self, path: Path) -> bool:
        """Return whether it has a list of results and says which model they are of."""
        content = json_content(path)
        return (
            isinstance(content, Mapping)
            and isinstance(content.get("evaluation_results"), list)
            and "model_info" in content
        )

    def read(self, path: Path, sizes: Mapping[str, int]) -> ResultTable:
        """Read the file, and the samples beside it."""
        source, content = read_json(path)
        try:
            log = typed(_Log, content)
        except ValueError as error:
            raise DataError(f"{path}: {error}") from None
        return ResultTable((_candidate(path, source, log, sizes),))


# The results


@dataclass(slots=True)
class _Benchmark:
    """The results of a benchmark in a file: the metrics by our names, each with what the file says of it."""

    told: dict[str, _Result] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    aggregate: dict[str, dict[str, Any]] = field(default_factory=dict)
    per_cent: list[str] = field(default_factory=list)


def _candidate(path: Path, source: ResultSource, log: _Log, sizes: Mapping[str, int]) -> CheckpointResults:
    names = {one.evaluation_name for one in log.evaluation_results}
    found: dict[str, _Benchmark] = {}
    notes: dict[str, list[str]] = {}
    for place, one in enumerate(log.evaluation_results):
        if one.details.get("part_of") in names:
            continue
        benchmark, metric = _named(one, ours=log.ours)
        where = f"{path}, evaluation_results[{place}]"
        own = found.setdefault(benchmark, _Benchmark())
        if metric in own.told:
            notes.setdefault("there again, left out", []).append(f"{benchmark} {metric}")
            continue
        if (why := _add(own, metric, one, where, sizes.get(benchmark))) is not None:
            notes.setdefault(why, []).append(f"{benchmark} {metric}")
    entries = {
        benchmark: BenchmarkScores(_saved(benchmark, own, source, log))
        for benchmark, own in found.items()
        if own.metrics
    }
    said = [f"{path.name}: {listed(named)}: {text}" for text, named in notes.items()]
    if (beside := _beside(path, log)) is not None and entries:
        entries, more = _with_items(entries, found, beside, log)
        said += [f"{beside.name}: {note}" for note in more]
    model = log.model_info
    return CheckpointResults(
        name=model.name if log.ours else model.id,
        origin=path.name,
        about=_about(model),
        entries=entries,
        notes=tuple(said),
    )


def _named(one: _Result, *, ours: bool) -> tuple[str, str]:
    """Return the benchmark and the metric by this harness's names."""
    config, name = one.metric_config, one.evaluation_name
    if ours and config.metric_name:
        return name, config.metric_name
    told = config.evaluation_description or ""
    if filtered := _FILTERED.fullmatch(told):
        return _benchmark(name.removesuffix(f"/{filtered[2]}")), metric_name(f"{filtered[1]},{filtered[2]}")
    metric = re.sub(
        r"[\s-]+", "_", (config.metric_id or config.metric_name or told.partition(" on ")[0]).strip().lower()
    )
    if at := _PASS_AT.fullmatch(metric):
        metric = f"pass@{(config.metric_parameters or {}).get('k', 1) if at[1] == 'k' else at[1]}"
    return _benchmark(name), _OURS_OF.get(metric, metric) or "score"


def _benchmark(name: str) -> str:
    """``mmlu_pro`` for ``MMLU-PRO``."""
    return benchmark_name(re.sub(r"[\s-]+", "_", name.strip()).lower())


def _add(own: _Benchmark, metric: str, one: _Result, where: str, size: int | None) -> str | None:
    """Add the metric; return a note on its scale, None where there is none. Raises ``DataError`` for what is no
    number, or no number of items."""
    score = one.score_details
    known = score.uncertainty or _Uncertainty()
    n = known.num_samples if known.num_samples is not None else size or 0
    if n < 0:
        raise DataError(f"{where}: {n} is no number of items")
    error = None if known.standard_error is None else known.standard_error.value
    limits = known.confidence_interval
    if limits is not None and limits.confidence_level not in (None, LEVEL):
        limits = None
    low, high = (None, None) if limits is None else (limits.lower, limits.upper)
    for what, told in (
        ("score", score.score),
        ("standard error", error),
        ("interval", low),
        ("interval", high),
    ):
        if told is not None and not math.isfinite(told):
            raise DataError(f"{where}: the {what} is {told}; give a finite number")
    own.told[metric] = one
    divisor = _divisor(metric, one, n)
    if divisor is None:
        return "left out, as neither a share nor on a scale that is told"
    value, error, low, high = (
        None if told is None else told / divisor for told in (score.score, error, low, high)
    )
    assert value is not None
    found = published(metric, value, stderr=error, n=n)
    if limits is not None:
        found = replace(found, low=low, high=high, method=limits.method or "as published, with its interval")
    own.metrics[metric] = found
    own.aggregate |= _aggregation(metric, one, divisor)
    if divisor == PER_CENT:
        own.per_cent.append(metric)
        return "written in per cent, taken as shares"
    return None


def _divisor(metric: str, one: _Result, n: int) -> int | None:
    """The number that makes a share of a value in per cent, else 1; None where the scale is not known."""
    config, value = one.metric_config, one.score_details.score
    unit = (config.metric_unit or "").strip().lower()
    if unit in ("percent", "percentage", "per cent", "%") or (
        not unit and (config.min_score, config.max_score) == (0, PER_CENT)
    ):
        return PER_CENT
    if unit or config.max_score is not None or "aggregation" in (config.additional_details or {}):
        return 1
    return divisor_of(Written(one.evaluation_name, metric, value, n=n))


def _aggregation(metric: str, one: _Result, divisor: int) -> dict[str, dict[str, Any]]:
    """How the metric is made of items, where that is no mean of shares of which more is better."""
    config = one.metric_config
    told = _plain(config.additional_details, "aggregation")
    if isinstance(told, Mapping):
        kinds = {
            "by": str,
            "of": str,
            "higher_is_better": bool,
            "rises": bool,
            "unit": str,
            "margin": int | float,
        }
        kept = {name: told[name] for name, kind in kinds.items() if isinstance(told.get(name), kind)}
        if {"by", "of"} <= kept.keys():
            return {metric: kept}  # never where its function lies: that is a file to be run
    unit = "" if divisor == PER_CENT or config.max_score == 1 else (config.metric_unit or "").strip()
    unit = "" if unit.lower() in ("proportion", "share", "fraction", "probability") else unit
    if not unit and divisor == 1 and config.max_score not in (None, 1):
        unit = "points"
    better = {} if not config.lower_is_better else {"higher_is_better": False}
    return (
        {metric: {"by": "mean", "of": metric, **better, **({"unit": unit} if unit else {})}}
        if better or unit
        else {}
    )


def _plain(details: Mapping[str, Any] | None, name: str) -> Any:
    """A detail that is JSON, parsed; None for any other."""
    try:
        return parsed(str((details or {}).get(name)))
    except ValueError:
        return None


def _saved(benchmark: str, own: _Benchmark, source: ResultSource, log: _Log) -> StoredResult:
    primary = next((name for name in own.metrics if own.told[name].details.get("primary") == "true"), None)
    primary = primary or primary_of(benchmark, own.metrics)
    first = own.told[primary]
    of = first.details.get("of", "")
    model = log.model_info
    return published_entry(
        benchmark,
        own.metrics,
        primary=primary,
        source=source,
        name=model.name if log.ours else model.id,
        about=_about(model),
        conditions=_conditions(first, ours=log.ours),
        aggregate=own.aggregate,
        invalid=first.details.get("invalid") if log.ours else None,
        of=int(of) if of.isdecimal() and len(of) < 16 else None,
        mark=first.details.get("mark", "") if log.ours else None,
    )


def _conditions(one: _Result, *, ours: bool) -> dict[str, Any]:
    """The known conditions; of other programs the number of examples alone."""
    details = (one.generation_config or _Generation()).additional_details or {}
    if not ours:
        shots = str(details.get("num_fewshot", ""))
        return {"shots": int(shots)} if shots.isdecimal() and len(shots) < 6 else {}
    found = {name: _plain(details, name) for name in details if is_condition(name)}
    return {name: value for name, value in found.items() if value is not None}


def _about(model: _Model) -> dict[str, Any]:
    found = {name: _plain(model.additional_details, name) for name in ("step", "epoch", "seq_len")}
    told = {
        name: value
        for name, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    series = (model.additional_details or {}).get("series")
    return {**({"series": str(series)} if series else {}), **told}


# The items


@dataclass(slots=True)
class _Items:
    """The items of a benchmark as they are read: what is told of each, and its score by metric."""

    told: dict[str, tuple[str, str | None, str | None]] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    repeated: bool = False


def _beside(path: Path, log: _Log) -> Path | None:
    """The file of samples in the same folder, wherever the file says that it lies."""
    told = log.detailed_evaluation_results
    names = [f"{path.stem}_samples.jsonl", *([re.split(r"[/\\]", told.file_path)[-1]] if told else ())]
    places = [
        path.with_name(f"{name}{end}") for name in names if name.endswith(".jsonl") for end in ("", ".gz")
    ]
    return next((place for place in places if place.is_file()), None)


def _with_items(
    entries: Mapping[str, BenchmarkScores], found: Mapping[str, _Benchmark], beside: Path, log: _Log
) -> tuple[dict[str, BenchmarkScores], list[str]]:
    """Return the results with their items, and notes on those that are compared by their totals."""
    told = log.detailed_evaluation_results
    if told is not None and told.checksum and told.hash_algorithm == "sha256":
        digest = source_of(beside)[0].digest
        if digest != told.checksum.lower():
            return dict(entries), ["another checksum than the one that is told: totals are compared"]
    notes: dict[str, list[str]] = {}
    more = dict(entries)
    for benchmark, read in _read_items(beside, found, log).items():
        if benchmark not in entries:
            continue
        saved = entries[benchmark].saved
        items, metrics = _checked(saved, read, found[benchmark], notes)
        if items is not None:
            saved = replace(
                saved, directory=str(beside.resolve()), items_sha256=items.digest(), metrics=metrics
            )
            more[benchmark] = BenchmarkScores(saved, items, beside)
    return more, [f"{listed(named)}: {text}: totals are compared" for text, named in notes.items()]


def _read_items(beside: Path, found: Mapping[str, _Benchmark], log: _Log) -> dict[str, _Items]:
    by_id: dict[str, tuple[str, list[str]]] = {}
    by_name: dict[str, tuple[str, list[str]]] = {}
    for benchmark, own in found.items():
        for metric, one in own.told.items():
            by_name.setdefault(one.evaluation_name, (benchmark, []))[1].append(metric)
            if one.evaluation_result_id is not None:
                by_id[one.evaluation_result_id] = benchmark, [metric]
    read: dict[str, _Items] = {}
    for line in read_lines(beside):
        data = line.data
        if data.get("evaluation_id") != log.evaluation_id:
            raise DataError(
                f"{line.path}, row {line.number}: evaluation_id is not that of the results, {brief(log.evaluation_id)}"
            )
        key = data.get("evaluation_result_id") or data.get("evaluation_name")
        if not isinstance(key, str) or not (
            meant := by_id.get(key) or by_name.get(str(data.get("evaluation_name")))
        ):
            continue
        benchmark, metrics = meant
        own_items, example = read.setdefault(benchmark, _Items()), _example(line, benchmark)
        metadata = table_of(data.get("metadata"))
        row = metadata.get("row") or metadata.get("doc_hash") or data.get("sample_hash") or ""
        own_items.told[example] = str(row), _text(metadata.get("group")), _text(metadata.get("cluster"))
        for metric, score in _scores(line, metrics).items():
            column = own_items.scores.setdefault(metric, {})
            own_items.repeated |= example in column
            column[example] = score
    return read


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _example(line: RawRow, benchmark: str) -> str:
    """The id of a sample's item; raises ``DataError`` where it has none."""
    found = line.data.get("sample_id")
    if not isinstance(found, str):
        raise DataError(
            f"{line.path}, row {line.number}: sample_id is {brief(found)}; samples have a text there"
        )
    return found if str(line.data.get("evaluation_id")).startswith(f"{OURS}/") else f"{benchmark}/{found}"


def _scores(line: RawRow, metrics: Sequence[str]) -> dict[str, float]:
    """The scores of a sample by metric; where nothing says of which it is, of each that it may be of."""
    metadata = table_of(line.data.get("metadata"))
    several = _plain(metadata, "lm_eval_metrics")
    if isinstance(several, Mapping):
        kind = metadata.get("filter", "none")
        named = {metric_name(f"{name},{kind}"): number(value) for name, value in several.items()}
        return {name: one for name, one in named.items() if one is not None}
    told = table_of(line.data.get("evaluation")).get("score")
    score = number(float(told) if isinstance(told, bool) else told)
    if score is None:
        raise DataError(
            f"{line.path}, row {line.number}: the score is {brief(told)}; samples have a finite number there"
        )
    return dict.fromkeys(metrics, score)


def _checked(
    saved: StoredResult, read: _Items, own: _Benchmark, notes: dict[str, list[str]]
) -> tuple[ItemScores | None, dict[str, Metric]]:
    """The items with the scores that make up a metric, and the metrics; None for the items where there is none."""
    columns: dict[str, dict[str, float]] = {}
    metrics, refused = dict(saved.metrics), ""
    for name, written in read.scores.items():
        metric = metrics.get(name)
        if metric is None or metric.value is None:
            continue
        in_per_cent = name in own.per_cent and any(abs(one) > 1 for one in written.values())
        divisor = PER_CENT if in_per_cent else 1
        scores = {example: one / divisor for example, one in written.items()}
        if read.repeated:
            refused = "items that are there several times"
        elif len(scores) < metric.n:
            refused = f"samples of {len(scores)} of {count(metric.n, 'item')}"
        elif not _makes(saved, metric, scores):
            refused = "samples whose mean is not the score"
        else:
            columns[saved.aggregation(name).of] = scores
            metrics[name] = replace(metric, n=metric.n or len(scores))
    if not columns:
        notes.setdefault(refused or "samples of no metric that is known", []).append(saved.benchmark)
        return None, metrics
    ids = sorted(set().union(*columns.values()))
    told = [read.told[one] for one in ids]
    return ItemScores(
        examples=ids,
        rows=[row for row, _, _ in told],
        groups=[group for _, group, _ in told],
        clusters=[cluster for _, _, cluster in told],
        scores={name: [scores.get(one) for one in ids] for name, scores in columns.items()},
    ), metrics


def _makes(saved: StoredResult, metric: Metric, scores: Mapping[str, float]) -> bool:
    """Return whether the metric may be made of these scores; of a function that is not this package's nobody knows."""
    how = saved.aggregation(metric.name)
    mean = math.fsum(scores.values()) / len(scores)
    assert metric.value is not None
    if how.by == "mean":
        return math.isclose(mean, metric.value, rel_tol=_CLOSE, abs_tol=_CLOSE)
    if how.by == "perplexity" and metric.value > 0:
        return math.isclose(-mean, math.log(metric.value), rel_tol=_CLOSE, abs_tol=_CLOSE)
    return True


# Samples of this form and of lm-evaluation-harness, for people and for pairs


def samples_of(path: Path, benchmark: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The samples of a benchmark in a file of either form, by the ids of their items, with the fields that samples of
    lm-evaluation-harness have."""
    for line in read_lines(path):
        if "sample_id" not in line.data:
            yield f"{benchmark}/{example_of(line)}", line.data
        elif _benchmark(f"{line.data.get('evaluation_name')}/").startswith(_benchmark(f"{benchmark}/")):
            yield _example(line, benchmark), _as_lm_eval(line.data)


def _as_lm_eval(data: Mapping[str, Any]) -> dict[str, Any]:
    asked, metadata = table_of(data.get("input")), table_of(data.get("metadata"))
    told, said = asked.get("reference"), table_of(data.get("output")).get("raw")
    read = data.get("answer_attribution")
    if isinstance(read, list) and read and "extracted_value" in table_of(read[-1]):
        said = [read[-1]["extracted_value"]]
    prompt = str(asked.get("formatted") or asked.get("raw") or "")
    digest = metadata.get("prompt_sha256") or metadata.get("prompt_hash")
    return {
        "arguments": [[str(asked.get("raw", ""))]],
        "resps": [str(one) for one in said] if isinstance(said, list) else [],
        "target": " or ".join(map(str, told)) if isinstance(told, list) and told else None,
        "prompt_hash": digest or hashlib.sha256(prompt.encode("utf-8", "backslashreplace")).hexdigest(),
    }
