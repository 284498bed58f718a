"""Records -> results: the only source of the numbers that reports show.

    every item    ends in one status; one without a record is lost
    a metric      the mean of a score over the scored items that have it (``n``), unless declared otherwise
    a group       a result of its own, NAME/GROUP, before the whole
    the whole     means over all items (micro), and METRIC_macro beside each: the mean of the groups' means
    a composite   the weighted sum of several benchmarks' metrics, where a checkpoint has them all

Items are taken in order of their example ids, so nothing depends on the order in which they were scored.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.aggregation import (
    LOGPROB_MARGIN,
    MACRO,
    SOFT,
    Aggregation,
    Function,
    aggregation_of,
    mean,
)
from pytest_touchstone.core.composite import (
    Composite,
    composite_value,
    composites_from_plain,
    unique_composites,
)
from pytest_touchstone.core.coverage import BenchmarkSize, composite_mark, coverage_mark
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.results.journal import latest_records, read_journal
from pytest_touchstone.results.records import FAULTS, GENERATED, Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import (
    NOT_REACHED,
    SUMMARY,
    CollectedItem,
    Declaration,
    Metric,
    Result,
    Summary,
    load_summary,
    sum_counts,
)
from pytest_touchstone.results.usage import Usage
from pytest_touchstone.statistics.intervals import (
    Estimate,
    composite_estimate,
    macro_estimate,
    mean_estimate,
    perplexity_estimate,
)
from pytest_touchstone.statistics.paired import signed_ranks
from pytest_touchstone.statistics.resampling import of_each_draw, resampled_estimate

BITS: Final = "bits"
"""The unit of what a text costs per byte."""

_DRAWS: Final = 199
"""The draws of a bootstrap whose function is somebody else's and may be slow."""

LOST: Final = "collected, but no record of it was found: it never ran, or the process that ran it died"

ESTIMATORS: Final[Mapping[str, Function]] = {"mean": mean_estimate, "perplexity": perplexity_estimate}


@dataclass(slots=True)
class _Bucket:
    """The records of one checkpoint on one benchmark."""

    checkpoint: str
    declaration: Declaration
    records: list[Record] = field(default_factory=list)
    drift: str | None = None


def summarize(
    records: Iterable[Record] | Mapping[str, Record],
    declarations: Mapping[str, Declaration],
    collected: Sequence[CollectedItem],
    *,
    run_id: str,
    directory: str,
    manifest: dict[str, Any],
    checkpoints: Sequence[dict[str, Any]],
    deselected: Sequence[str] = (),
    seconds: float = 0.0,
    usage: Sequence[Usage] = (),
    drifts: Mapping[str, str] | None = None,
) -> Summary:
    """Compute the results of a whole run.

    Args:
        records: The records, in order of writing, or one record for each item. The last one of an item counts, except
            that "lost" never replaces "scored".
        declarations: The benchmarks by name.
        collected: The items of the run; those without a record are lost.
        run_id: The name of the run.
        directory: The run's folder.
        manifest: The content of ``run.json``.
        checkpoints: The rows of the checkpoints in the manifest.
        deselected: A line for each benchmark or checkpoint that was left out.
        seconds: The duration of the run.
        usage: The usage of each process.
        drifts: By checkpoint, why its answers are not those of one model.

    Raises:
        BenchmarkError: If an item belongs to a benchmark without a declaration.

    """
    by_item = records if isinstance(records, Mapping) else latest_records(records)
    items = {item.item: item for item in collected}
    buckets: dict[tuple[str, str], _Bucket] = {}
    for item in items.values():
        key = item.checkpoint, item.benchmark
        if key not in buckets:
            if item.benchmark not in declarations:
                raise BenchmarkError(
                    f"no declaration of the benchmark {item.benchmark!r}, which {item.item} is of"
                )
            drift = (drifts or {}).get(item.checkpoint)
            buckets[key] = _Bucket(item.checkpoint, declarations[item.benchmark], drift=drift)
        record = by_item.get(item.item) or Record(**asdict(item), status="lost", message=LOST)
        buckets[key].records.append(record)
    faults = []
    for bucket in buckets.values():
        faults += [
            {"item": record.item, "status": record.status, "message": record.message or ""}
            for record in bucket.records
            if record.status in FAULTS
        ]
        # The soft score of a record depends on the margins of all the others.
        scored = _records_with(LOGPROB_MARGIN, _scored(bucket.records))
        for record, rank in zip(scored, signed_ranks(_values(LOGPROB_MARGIN, scored)), strict=True):
            record.scores[SOFT] = rank
    return Summary(
        run_id=run_id,
        directory=directory,
        manifest=manifest,
        checkpoints=list(checkpoints),
        results=[result for bucket in buckets.values() for result in _results(bucket)],
        declarations=list(
            {bucket.declaration.name: bucket.declaration for bucket in buckets.values()}.values()
        ),
        composites=_composites(buckets.values()),
        deselected=list(deselected),
        faults=faults,
        uncollected=len(by_item) - sum(item in by_item for item in items),
        seconds=seconds,
        effort=list(usage),
    )


def _scored(records: Iterable[Record]) -> list[Record]:
    """Return the scored records, ordered by example and item; row 2 comes before row 10."""
    scored = [record for record in records if record.status == "scored"]
    return sorted(scored, key=lambda record: (len(record.example), record.example, record.item))


def _records_with(name: str, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if name in record.scores]


def _values(name: str, records: Iterable[Record]) -> list[float]:
    return [record.scores[name] for record in records]


def _clusters(declaration: Declaration, records: Iterable[Record]) -> list[str | None] | None:
    return [record.cluster for record in records] if declaration.clustered else None


# Results


def _results(bucket: _Bucket) -> list[Result]:
    """Return the results of the groups, then that of the whole benchmark with macro means."""
    declaration = bucket.declaration
    whole = _result(bucket, None, bucket.records)
    if not declaration.grouped:
        return [whole]
    groups: dict[str, list[Record]] = {}
    for record in bucket.records:
        groups.setdefault(record.group or "", []).append(record)
    if all(name[:1].isdigit() for name in groups):  # months or numbers, in their order whatever the rows' is
        groups = dict(sorted(groups.items(), key=lambda group: (len(group[0]), group[0])))
    scored = [_scored(members) for members in groups.values()]
    metrics = dict(whole.metrics)
    for name, metric in whole.metrics.items():
        how = aggregation_of(declaration.aggregate, name)
        # A score that only some items have (such as that of one level) is not spread evenly over the groups.
        if how.by == "mean" and how.at is None and metric.n >= sum(map(len, scored)):
            values = [_values(how.score, _records_with(how.score, members)) for members in scored]
            estimate = _from_zero(macro_estimate(values), how)
            metrics[name + MACRO] = as_metric(name + MACRO, estimate, metric.n)
    results = [_result(bucket, group, members) for group, members in groups.items()]
    return [*results, replace(whole, metrics=metrics)]


def _result(bucket: _Bucket, group: str | None, records: list[Record]) -> Result:
    declaration = bucket.declaration
    extent = _benchmark_size(declaration, group)
    counts = Counter(record.status for record in records)
    scored = _scored(records)
    texts = {name: sum(getattr(record, name) for record in scored) for name in GENERATED}
    answered = None
    if texts[
        "unanswered"
    ]:  # the primary metric over the items whose texts were not all used up before an answer
        how = aggregation_of(declaration.aggregate, declaration.primary)
        having = [record for record in scored if not record.unanswered]
        answered = _metric(declaration.primary, how, declaration, having)
    template = {0: "plain", texts["outputs"]: "chat"}.get(texts["chat"], "mixed")
    runs = [record.reused_from for record in records if record.reused_from is not None]
    with_programs = [record for record in records if record.programs]
    return Result(
        name=declaration.name if group is None else f"{declaration.name}/{group}",
        benchmark=declaration.name,
        group=group,
        checkpoint=bucket.checkpoint,
        version=declaration.version,
        primary=declaration.primary,
        metrics=_metrics(declaration, scored),
        collected=len(records),
        scored=counts["scored"],
        skipped=counts["skipped"] + counts["xfailed"],
        xfailed=counts["xfailed"],
        errors=counts["error"],
        timeouts=counts["timeout"],
        lost=counts["lost"],
        truncated=sum(record.truncated for record in records),
        seconds=math.fsum(record.seconds for record in records),
        dataset=declaration.dataset,
        few_shot=declaration.few_shot,
        **texts,
        programs=sum_counts(record.programs for record in with_programs),
        unsandboxed=sum(record.unsandboxed for record in records),
        weak_tests={
            task: wrong
            for record in records
            if record.status == "scored"
            for task, wrong in record.weak_tests.items()
        },
        missing_modules=sum_counts(record.missing_modules for record in with_programs),
        answered=answered,
        invalid="; ".join(filter(None, (_invalid(texts, declaration.most_unusable), bucket.drift))) or None,
        reused=len(runs),
        reused_from=sorted(filter(None, set(runs))),
        template=template if texts["outputs"] else None,
        of=extent.of,
        published=extent.published,
        mark=coverage_mark(
            counts["scored"], extent, origin=declaration.dataset.origin, own_rows=declaration.own_rows
        ),
    )


def _invalid(counts: Mapping[str, int], most: float) -> str | None:
    """Return why outputs say too little about the checkpoint: most were cut off or unusable.

    None where nothing was generated or judged.
    """
    if counts["no_verdict"] > most * counts["judged"]:
        times = f"{counts['no_verdict']} of {counts['judged']} times"
        return f"the judge gave no verdict {times}; more than {most:.0%} is too many"
    if not counts["outputs"]:
        return None
    reasons = {"at_limit": "ended at the limit of new tokens", "no_answer": "had no answer in them"}
    texts = [
        f"{counts[name]} of {counts['outputs']} outputs {reason}"
        for name, reason in reasons.items()
        if counts[name] > most * counts["outputs"]
    ]
    return f"{', '.join(texts)}; more than {most:.0%} must not" if texts else None


def _metrics(declaration: Declaration, scored: Sequence[Record]) -> dict[str, Metric]:
    """Return the mean of every score and every declared aggregation, the primary metric first."""
    scores = dict.fromkeys(name for record in scored for name in record.scores)
    metrics = {
        name: _metric(name, aggregation_of(declaration.aggregate, name), declaration, scored)
        for name in dict.fromkeys([declaration.primary, *scores, *declaration.aggregate])
    }
    if not any(name.startswith("avg@") for name in metrics):
        return metrics
    # Graded scores have no pass@k, whatever those of an item are.
    return {
        name: metric
        for name, metric in metrics.items()
        if metric.n == len(scored) or not name.startswith("pass@")
    }


def _metric(name: str, how: Aggregation, declaration: Declaration, scored: Sequence[Record]) -> Metric:
    """Return a metric; undefined where items lack a fact that the aggregation needs."""
    function = how.resolve() or ESTIMATORS.get(how.by)
    if function is None:
        choices = ", ".join(ESTIMATORS)
        raise BenchmarkError(
            f"{declaration.name!r}: metric {name!r} is aggregated by {how.by!r}; use {choices}"
        )
    having = _records_with(how.score, scored)
    values: list[Any] = _values(how.score, having)
    if how.beside:
        try:
            facts = [[(record.facts or {})[fact][0] for fact in how.beside] for record in having]
        except KeyError as error:
            why = f"an item has no {error} beside its score"
            return as_metric(name, Estimate(None, None, None, None, "none", why), len(having))
        values = [(value, *beside) for value, beside in zip(values, facts, strict=True)]
    return as_metric(name, _estimate(how, function, values, _clusters(declaration, having)), len(having))


def _estimate(
    how: Aggregation, function: Function, values: list[Any], clusters: list[str | None] | None
) -> Estimate:
    """Return the estimate of a function; undefined where a user-defined function fails.

    The other numbers of a run remain valid then.
    """
    if how.at is None and how.function is None:
        estimate: Estimate = function(values, clusters)
        return _from_zero(estimate, how)
    try:
        value: Any = function(values, clusters)
        if not isinstance(value, Estimate):
            value = Estimate(float(value), None, None, None, how.by, "its aggregation gives no interval")
        estimate = value
        if how.arguments and estimate.value is not None:
            draws = of_each_draw(function, len(values))._replace(tosses=_DRAWS)
            estimate = resampled_estimate(estimate.value, values, clusters, draws, method=how.by)
        if estimate.value is None or math.isfinite(estimate.value):
            return estimate
        why = f"its aggregation gives {estimate.value}"
    except Exception as error:
        why = f"its aggregation fails: {type(error).__name__}: {error}"
    return Estimate(None, None, None, None, "none", why)


def _from_zero(estimate: Estimate, how: Aggregation) -> Estimate:
    """Return the estimate, with the lower limit of bits per byte not below 0."""
    if how.unit != BITS or estimate.low is None:
        return estimate
    return replace(estimate, low=max(0.0, estimate.low))


def as_metric(name: str, estimate: Estimate, n: int) -> Metric:
    """Return the estimate over ``n`` items as a metric."""
    return Metric(name=name, n=n, **asdict(estimate))


# Composites


def _composites(buckets: Collection[_Bucket]) -> list[dict[str, Any]]:
    by_checkpoint: dict[str, list[tuple[Declaration, Sequence[Record]]]] = {}
    declared: list[Composite] = []
    for bucket in buckets:
        by_checkpoint.setdefault(bucket.checkpoint, []).append((bucket.declaration, bucket.records))
        declared += composites_from_plain(bucket.declaration.composites or ())
    return [
        composite
        for checkpoint, results in by_checkpoint.items()
        for definition in unique_composites(declared)
        if (composite := composite_of_records(definition, checkpoint, results)) is not None
    ]


def composite_of_records(
    definition: Composite, checkpoint: str, results: Sequence[tuple[Declaration, Sequence[Record]]]
) -> dict[str, Any] | None:
    """Return the composite of a checkpoint, computed from the records of its benchmarks.

    None where the records of a component are missing.
    """
    scored = {declaration.name: (declaration, _scored(records)) for declaration, records in results}
    summands: dict[str, list[tuple[float, Metric]]] = {}
    for weight, name, metric in definition.parts:
        if name not in scored:
            return None
        declaration, records = scored[name]
        summand = _metric(metric, mean(metric), declaration, records)
        if summand.value is None:
            return None
        summands.setdefault(name, []).append((weight, summand))
    values = {(name, summand.name): summand.value for name, parts in summands.items() for _, summand in parts}
    estimate = composite_estimate(
        [(1.0, _correlated_sum(parts, *scored[name])) for name, parts in summands.items()]
    )
    marks = []
    for name in summands:
        declaration, records = scored[name]
        extent = _benchmark_size(declaration)
        text = coverage_mark(
            extent.of, extent, origin=declaration.dataset.origin, own_rows=declaration.own_rows
        )
        marks.append((name, len(records), extent.of, text))
    return {
        "name": definition.name,
        "checkpoint": checkpoint,
        "formula": definition.formula,
        **asdict(estimate),
        # Not that of the estimate, whose last digit may be rounded the other way.
        "value": composite_value(definition, values),
        "mark": composite_mark(marks),
        "parts": [
            {
                "weight": weight,
                "benchmark": name,
                "metric": summand.name,
                "value": summand.value,
                "n": summand.n,
                "of": _benchmark_size(scored[name][0]).of,
            }
            for name, parts in summands.items()
            for weight, summand in parts
        ],
    }


def _benchmark_size(declaration: Declaration, group: str | None = None) -> BenchmarkSize:
    return declaration.extents.get(group or "", BenchmarkSize())


def _correlated_sum(
    parts: Sequence[tuple[float, Metric]], declaration: Declaration, scored: Sequence[Record]
) -> Estimate:
    """Return the weighted sum of correlated means over common items, by MOVER.

    The error is sqrt(sum of r_ij d_i d_j), where d are the weighted errors of the means and r is their correlation. The
    limits are computed alike from the distances of the means' limits, so they stay within the range of the metrics.
    """
    value = math.fsum(weight * metric.value for weight, metric in parts if metric.value is not None)
    errors, downs, ups = [], [], []
    for weight, metric in parts:
        if metric.value is None or metric.low is None or metric.high is None or metric.stderr is None:
            return Estimate(value, None, None, None, "none", metric.why or "a part has no interval")
        errors.append(weight * metric.stderr)
        downs.append(weight * (metric.value - metric.low))
        ups.append(weight * (metric.high - metric.value))
    r = [[_correlation(a, b, declaration, scored) for _, b in parts] for _, a in parts]
    return Estimate(
        value,
        value - _mover_distance(downs, r),
        value + _mover_distance(ups, r),
        _mover_distance(errors, r),
        "MOVER, correlated parts",
    )


def _mover_distance(distances: Sequence[float], r: Sequence[Sequence[float]]) -> float:
    pairs = (r[i][j] * a * b for i, a in enumerate(distances) for j, b in enumerate(distances))
    return math.sqrt(max(0.0, math.fsum(pairs)))


def _correlation(a: Metric, b: Metric, declaration: Declaration, scored: Sequence[Record]) -> float:
    """Return the correlation of two means over their common items, allowing for clusters.

    1 (cautious) where undefined.
    """
    if a.name == b.name:
        return 1.0
    both = _records_with(b.name, _records_with(a.name, scored))
    clusters = _clusters(declaration, both)
    first_values, second_values = _values(a.name, both), _values(b.name, both)
    first_error, second_error = (
        mean_estimate(first_values, clusters).stderr,
        mean_estimate(second_values, clusters).stderr,
    )
    total = mean_estimate([x + y for x, y in zip(first_values, second_values, strict=True)], clusters).stderr
    if not first_error or not second_error or total is None:
        return 1.0
    return min(
        1.0, max(-1.0, (total**2 - first_error**2 - second_error**2) / (2 * first_error * second_error))
    )


# Runs that have not summed up


COLLECTED: Final = "collected.json"
"""A file that every run has before it asks anything."""


def has_ended(folder: Path) -> bool:
    """Return whether a run has a summary, or something else at the path of the summary."""
    return os.path.lexists(folder / SUMMARY)


def summary_so_far(folder: Path) -> Summary:
    """Return the summary of a run; for an unfinished run, compute it from the journal.

    Nothing is written. Items without a record count as not reached. Raises ``HarnessError`` where a file cannot be
    read.
    """
    if has_ended(folder):
        return load_summary(folder)
    summary = summary_of(
        folder, latest_records(read_journal(folder)), usage=RunDirectory(folder).read_usage()
    )
    faults = [
        fault | {"message": NOT_REACHED} if fault["message"] == LOST else fault for fault in summary.faults
    ]
    return replace(summary, faults=faults)


def summary_of(
    folder: Path, records: Iterable[Record] | Mapping[str, Record], *, usage: Sequence[Usage] = ()
) -> Summary:
    """Return the summary of records, with the items, benchmarks and checkpoints of a run's folder.

    Raises ``HarnessError`` where its files cannot be read.
    """
    directory = RunDirectory(folder)
    items, declarations, deselected = directory.read_collected()
    manifest = directory.read_manifest()
    return summarize(
        records,
        declarations,
        items,
        run_id=directory.run_id,
        directory=str(folder),
        manifest=manifest,
        checkpoints=manifest.get("checkpoints", []),
        deselected=deselected,
        usage=usage,
    )
