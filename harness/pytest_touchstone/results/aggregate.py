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
from collections.abc import Iterable, Mapping, Sequence
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
from pytest_touchstone.core.composite import Composite, composite_value, composites_from_plain, one_of_each
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.marks import Extent, composite_mark, mark
from pytest_touchstone.results.journal import latest, read_journal
from pytest_touchstone.results.records import FAULTS, GENERATED, Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import (
    NOT_REACHED,
    SUMMARY,
    Collected,
    Declaration,
    Metric,
    Result,
    Summary,
    added_counts,
    load_summary,
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

BITS: Final = "bits"
"""The unit of what a text costs per byte."""

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
    collected: Sequence[Collected],
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
    """Return the whole run's numbers.

    ``drifts`` says of checkpoints why their answers were not those of one model.

    Raises ``BenchmarkError`` when an item's benchmark is not declared. Of several records of an item the last counts,
    except that "lost" never replaces "scored"; or there is one for each, by item.
    """
    known = records if isinstance(records, Mapping) else latest(records)
    buckets, found = _buckets(known, declarations, collected)
    for bucket in buckets:
        bucket.drift = (drifts or {}).get(bucket.checkpoint)
        _rank(bucket.records)
    results = [result for bucket in buckets for result in _results(bucket)]
    return Summary(
        run_id=run_id,
        directory=directory,
        manifest=manifest,
        checkpoints=list(checkpoints),
        results=results,
        declarations=list({bucket.declaration.name: bucket.declaration for bucket in buckets}.values()),
        composites=_composites(buckets),
        deselected=list(deselected),
        faults=[fault for bucket in buckets for fault in _faults(bucket.records)],
        uncollected=len(known) - found,
        seconds=seconds,
        effort=list(usage),
    )


def _buckets(
    known: Mapping[str, Record], declarations: Mapping[str, Declaration], collected: Sequence[Collected]
) -> tuple[list[_Bucket], int]:
    """Return the buckets of the collected items, and the number of these that have a record; others are lost."""
    buckets: dict[tuple[str, str], _Bucket] = {}
    items = {item.item: item for item in collected}
    for item in items.values():
        key = item.checkpoint, item.benchmark
        if key not in buckets:
            if item.benchmark not in declarations:
                raise BenchmarkError(
                    f"no declaration of the benchmark {item.benchmark!r}, which {item.item} is of"
                )
            buckets[key] = _Bucket(item.checkpoint, declarations[item.benchmark])
        record = known.get(item.item) or Record(**asdict(item), status="lost", message=LOST)
        buckets[key].records.append(record)
    return list(buckets.values()), sum(item in known for item in items)


def _faults(records: Iterable[Record]) -> list[dict[str, str]]:
    return [
        {"item": record.item, "status": record.status, "message": record.message or ""}
        for record in records
        if record.status in FAULTS
    ]


def _scored(records: Iterable[Record]) -> list[Record]:
    """Return those that have scores, in order of their examples, then of their items."""
    scored = [record for record in records if record.status == "scored"]
    return sorted(scored, key=lambda record: (record.example, record.item))


def _rank(records: Iterable[Record]) -> None:
    """Give each scored record that has a margin its soft score, which depends on the margins of all the others."""
    scored = _having(LOGPROB_MARGIN, [record for record in records if record.status == "scored"])
    for record, rank in zip(scored, signed_ranks(_values(LOGPROB_MARGIN, scored)), strict=True):
        record.scores[SOFT] = rank


def _having(name: str, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if name in record.scores]


def _values(name: str, records: Iterable[Record]) -> list[float]:
    return [record.scores[name] for record in records]


def _clusters(declaration: Declaration, records: Iterable[Record]) -> list[str | None] | None:
    return [record.cluster for record in records] if declaration.clustered else None


# Results


def _results(bucket: _Bucket) -> list[Result]:
    declaration = bucket.declaration
    whole = _result(bucket, None, bucket.records)
    if not declaration.grouped:
        return [whole]
    groups: dict[str, list[Record]] = {}
    for record in bucket.records:
        groups.setdefault(record.group or "", []).append(record)
    metrics = {**whole.metrics, **_macro(declaration, whole.metrics, groups.values())}
    return [
        *(_result(bucket, group, members) for group, members in groups.items()),
        replace(whole, metrics=metrics),
    ]


def _result(bucket: _Bucket, group: str | None, records: list[Record]) -> Result:
    declaration = bucket.declaration
    extent = _extent(declaration, group)
    counts = Counter(record.status for record in records)
    scored = [record for record in records if record.status == "scored"]
    texts = {name: sum(getattr(record, name) for record in scored) for name in GENERATED}
    runs = [record.reused_from for record in records if record.reused_from is not None]
    asked_for_programs = [record for record in records if record.programs]
    return Result(
        name=declaration.name if group is None else f"{declaration.name}/{group}",
        benchmark=declaration.name,
        group=group,
        checkpoint=bucket.checkpoint,
        version=declaration.version,
        primary=declaration.primary,
        metrics=_metrics(declaration, records),
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
        programs=added_counts(record.programs for record in asked_for_programs),
        unsandboxed=sum(record.unsandboxed for record in records),
        weak_tests={task: wrong for record in scored for task, wrong in record.weak_tests.items()},
        missing_modules=added_counts(record.missing_modules for record in asked_for_programs),
        answered=_answered(declaration, records) if texts["unanswered"] else None,
        invalid="; ".join(filter(None, (_invalid(texts, declaration.most_unusable), bucket.drift))) or None,
        reused=len(runs),
        reused_from=sorted(filter(None, set(runs))),
        template=_template(texts),
        of=extent.of,
        published=extent.published,
        mark=mark(counts["scored"], extent, origin=declaration.dataset.origin, own=declaration.own_rows),
    )


def _answered(declaration: Declaration, records: Iterable[Record]) -> Metric:
    """Return the primary metric over the items whose texts were not all used up before an answer."""
    name = declaration.primary
    having = [record for record in _scored(records) if not record.unanswered]
    return _metric(name, aggregation_of(declaration.aggregate, name), declaration, having)


def _template(counts: Mapping[str, int]) -> str | None:
    """Return the way in which texts were asked for; None where none were."""
    if not counts["outputs"]:
        return None
    return {0: "plain", counts["outputs"]: "chat"}.get(counts["chat"], "mixed")


def _invalid(counts: Mapping[str, int], most: float) -> str | None:
    """Return why the outputs say too little about the checkpoint: too many were cut off, or had no answer in them.

    None where nothing was generated or judged.
    """
    if counts["no_verdict"] > most * counts["judged"]:
        times = f"{counts['no_verdict']} of {counts['judged']} times"
        return f"the judge gave no verdict {times}; more than {most:.0%} is too many"
    if not counts["outputs"]:
        return None
    reasons = {"at_limit": "ended at the limit of new tokens", "no_answer": "had no answer in them"}
    found = [
        f"{counts[name]} of {counts['outputs']} outputs {reason}"
        for name, reason in reasons.items()
        if counts[name] > most * counts["outputs"]
    ]
    return f"{', '.join(found)}; more than {most:.0%} must not" if found else None


def _metrics(declaration: Declaration, records: Iterable[Record]) -> dict[str, Metric]:
    """Return every score's mean and every declared aggregation; the primary metric is always there, and first."""
    scored = _scored(records)
    named = (name for record in scored for name in record.scores)
    wanted = dict.fromkeys([declaration.primary, *dict.fromkeys(named), *declaration.aggregate])
    found = {
        name: _metric(name, aggregation_of(declaration.aggregate, name), declaration, scored)
        for name in wanted
    }
    if any(
        name.startswith("avg@") for name in found
    ):  # graded scores have no pass@k, whatever those of an item are
        found = {
            name: one for name, one in found.items() if one.n == len(scored) or not name.startswith("pass@")
        }
    return found


def _metric(name: str, how: Aggregation, declaration: Declaration, scored: Sequence[Record]) -> Metric:
    function = how.resolve() or ESTIMATORS.get(how.by)
    if function is None:
        known = ", ".join(ESTIMATORS)
        raise BenchmarkError(
            f"{declaration.name!r}: metric {name!r} is aggregated by {how.by!r}; use {known}"
        )
    having = _having(how.of, scored)
    clusters = _clusters(declaration, having)
    try:
        values = [_value(record, how) for record in having] if how.beside else _values(how.of, having)
    except KeyError as error:  # a benchmark that does not tell it
        why = f"an item has no {error} beside its score"
        return as_metric(name, Estimate(None, None, None, None, "none", why), len(having))
    return as_metric(name, _estimate(how, function, values, clusters), len(having))


def _value(record: Record, how: Aggregation) -> Any:
    """Return an item's score in a tuple with what the aggregation takes beside it; raises ``KeyError``."""
    return (record.scores[how.of], *((record.told or {})[name][0] for name in how.beside))


def _estimate(
    how: Aggregation, function: Function, values: list[Any], clusters: list[str | None] | None
) -> Estimate:
    """Return the function's estimate.

    It is undefined where a function of somebody else's fails, so that the other numbers of a run stay.
    """
    if how.at is None and how.function is None:
        found: Estimate = function(values, clusters)
        return _from_zero(found, how)
    try:
        if not isinstance(said := function(values, clusters), Estimate):
            said = Estimate(float(said), None, None, None, how.by, "its aggregation gives no interval")
        if said.value is None or math.isfinite(said.value):
            return said
        why = f"its aggregation gives {said.value}"
    except Exception as error:
        why = f"its aggregation fails: {type(error).__name__}: {error}"
    return Estimate(None, None, None, None, "none", why)


def _from_zero(found: Estimate, how: Aggregation) -> Estimate:
    """Return the estimate; of bits, which are not below 0, with an interval that is not either."""
    if how.unit != BITS or found.low is None:
        return found
    return replace(found, low=max(0.0, found.low))


def _macro(
    declaration: Declaration, metrics: Mapping[str, Metric], groups: Iterable[list[Record]]
) -> dict[str, Metric]:
    """Return the mean of the groups' means, for each metric that is a mean over all items.

    A score that only some items have (such as that of one level) is not spread evenly over the groups.
    """
    found: dict[str, Metric] = {}
    ordered = [_scored(group) for group in groups]
    scored = sum(map(len, ordered))
    for name, metric in metrics.items():
        how = aggregation_of(declaration.aggregate, name)
        if how.by != "mean" or how.at is not None or metric.n < scored:
            continue
        values = [_values(how.of, _having(how.of, group)) for group in ordered]
        found[name + MACRO] = as_metric(name + MACRO, _from_zero(macro_estimate(values), how), metric.n)
    return found


def as_metric(name: str, estimate: Estimate, n: int) -> Metric:
    """Return the estimate over ``n`` items as a metric."""
    return Metric(name=name, n=n, **asdict(estimate))


# Composites


def _composites(buckets: Sequence[_Bucket]) -> list[dict[str, Any]]:
    by_checkpoint: dict[str, list[tuple[Declaration, Sequence[Record]]]] = {}
    for one in buckets:
        by_checkpoint.setdefault(one.checkpoint, []).append((one.declaration, one.records))
    declared = [
        one for bucket in buckets for one in composites_from_plain(bucket.declaration.composites or ())
    ]
    return [
        composite
        for checkpoint, results in by_checkpoint.items()
        for definition in one_of_each(declared)
        if (composite := composite_of_records(definition, checkpoint, results)) is not None
    ]


def composite_of_records(
    definition: Composite, checkpoint: str, results: Sequence[tuple[Declaration, Sequence[Record]]]
) -> dict[str, Any] | None:
    """Return the composite of one checkpoint from the records of its benchmarks, None where a part is missing."""
    scored = {declaration.name: (declaration, _scored(records)) for declaration, records in results}
    summands: dict[str, list[tuple[float, Metric]]] = {}
    for weight, name, metric in definition.parts:
        if name not in scored:
            return None
        declaration, records = scored[name]
        part = _metric(metric, mean(metric), declaration, records)
        if part.value is None:
            return None
        summands.setdefault(name, []).append((weight, part))
    known = {(name, one.name): one.value for name, parts in summands.items() for _, one in parts}
    estimate = composite_estimate(
        [(1.0, _together(parts, *scored[name])) for name, parts in summands.items()]
    )
    return {
        "name": definition.name,
        "checkpoint": checkpoint,
        "formula": definition.formula,
        **asdict(estimate),
        # Not that of the estimate, whose last digit may be rounded the other way.
        "value": composite_value(definition, known),
        "mark": composite_mark(_part_mark(*scored[name]) for name in summands),
        "parts": [
            {
                "weight": weight,
                "benchmark": name,
                "metric": part.name,
                "value": part.value,
                "n": part.n,
                "of": _extent(scored[name][0]).of,
            }
            for name, parts in summands.items()
            for weight, part in parts
        ],
    }


def _part_mark(declaration: Declaration, scored: Sequence[Record]) -> tuple[str, int, int, str]:
    extent = _extent(declaration)
    text = mark(extent.of, extent, origin=declaration.dataset.origin, own=declaration.own_rows)
    return declaration.name, len(scored), extent.of, text


def _extent(declaration: Declaration, group: str | None = None) -> Extent:
    return declaration.extents.get(group or "", Extent())


def _together(
    parts: Sequence[tuple[float, Metric]], declaration: Declaration, scored: Sequence[Record]
) -> Estimate:
    """Return the weighted sum of means over the same items, which rise and fall together.

    The error is sqrt(sum of r_ij d_i d_j), with d the parts' own weighted errors and r the correlation of their
    means. The limits are made in the same way from the distances of the parts' limits, so they stay where the parts'
    own limits are.
    """
    value = math.fsum(weight * part.value for weight, part in parts if part.value is not None)
    errors, downs, ups = [], [], []
    for weight, part in parts:
        if part.value is None or part.low is None or part.high is None or part.stderr is None:
            return Estimate(value, None, None, None, "none", part.why or "a part has no interval")
        errors.append(weight * part.stderr)
        downs.append(weight * (part.value - part.low))
        ups.append(weight * (part.high - part.value))
    r = [[_correlation(a, b, declaration, scored) for _, b in parts] for _, a in parts]
    return Estimate(
        value, value - _joint(downs, r), value + _joint(ups, r), _joint(errors, r), "MOVER, correlated parts"
    )


def _joint(distances: Sequence[float], r: Sequence[Sequence[float]]) -> float:
    pairs = (r[i][j] * a * b for i, a in enumerate(distances) for j, b in enumerate(distances))
    return math.sqrt(max(0.0, math.fsum(pairs)))


def _correlation(a: Metric, b: Metric, declaration: Declaration, scored: Sequence[Record]) -> float:
    """Return the correlation of two means over the same items, allowing for clusters; 1 (cautious) where
    undefined."""
    if a.name == b.name:
        return 1.0
    both = _having(b.name, _having(a.name, scored))
    clusters = _clusters(declaration, both)
    ones, twos = _values(a.name, both), _values(b.name, both)
    one, two = mean_estimate(ones, clusters).stderr, mean_estimate(twos, clusters).stderr
    total = mean_estimate([x + y for x, y in zip(ones, twos, strict=True)], clusters).stderr
    if not one or not two or total is None:
        return 1.0
    return min(1.0, max(-1.0, (total**2 - one**2 - two**2) / (2 * one * two)))


# Runs that have not summed up


COLLECTED: Final = "collected.json"
"""A file that every run has before it asks anything."""


def ended(folder: Path) -> bool:
    """Return whether a run has summed up, or something lies where its summary belongs."""
    return os.path.lexists(folder / SUMMARY)


def summary_so_far(folder: Path) -> Summary:
    """Return the summary of a run's folder, made of the journal where the run has not summed up; nothing is written.

    Items without a record are not reached. Raises ``HarnessError`` where the files cannot be read.
    """
    if ended(folder):
        return load_summary(folder)
    found = summary_of(folder, latest(read_journal(folder)), usage=RunDirectory(folder).read_usage())
    faults = [one | {"message": NOT_REACHED} if one["message"] == LOST else one for one in found.faults]
    return replace(found, faults=faults)


def summary_of(
    folder: Path, records: Iterable[Record] | Mapping[str, Record], *, usage: Sequence[Usage] = ()
) -> Summary:
    """Return the summary of these records by what the run's folder says of its items, benchmarks and checkpoints.

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
