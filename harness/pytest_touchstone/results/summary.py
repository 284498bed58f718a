"""The results of a run: one per checkpoint and benchmark, with every collected item accounted for.

It is plain frozen data with a JSON form. ``results.aggregate`` makes it from records. Reports read nothing
else, and never use pass counts of pytest.

The JSON form is ``{"schema": 1, "kind": "summary", ...}`` with the fields of ``Summary``, nested as here; a number
that is undefined is ``null``, never NaN.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints.config_files import step_of_row
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.coverage import BenchmarkSize
from pytest_touchstone.core.dataset import DatasetInfo
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import FINITE, SCHEMA, check_kind, from_plain, read_checked
from pytest_touchstone.core.text import csv_text
from pytest_touchstone.results.records import GENERATED, OutputCounts
from pytest_touchstone.results.usage import Usage

SUMMARY: Final = "summary.json"

NOT_REACHED: Final = "not run: the session was stopped early"
"""The message of an item that is lost because the run was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A benchmark as plain data: the process that aggregates may never import its module.

    ``aggregate`` maps a metric to the plain form of its ``Aggregation``. ``composites`` are those that the benchmark
    is part of, in plain form; None of totals that say nothing of them.

    ``few_shot`` has the number and the source of the shots: {"num_fewshot": 5, "from": "mmlu/dev", "pick": "first",
    "sha256": ...}; reports read ``num_fewshot`` only. ``code`` is the hash of what scores (``plugin.source_hash``).
    ``extents`` has the benchmark's sizes by group, that of the whole under ""; ``own_rows`` describes its shipped
    rows, where none of them was published. ``scores`` are the names of the scores, if the benchmark's code shows them
    all. ``settings`` are those of the benchmark alone, in place of the run's: the demonstration's. ``file`` is the path
    of its module; empty where nobody knows it. ``temperature`` is that of ``p_right``, where there may be one.
    ``hub`` has the published dataset's ``path``, ``config`` and ``split`` on the Hub, nothing where there is none.
    """

    name: str
    version: int
    primary: str
    aggregate: dict[str, dict[str, Any]] = field(default_factory=dict)
    grouped: bool = False
    clustered: bool = False
    dataset: DatasetInfo
    few_shot: dict[str, Any] = field(default_factory=dict)
    rule: str = ""
    source: str = ""
    most_unusable: float = 0.1
    code: str = ""
    extents: dict[str, BenchmarkSize] = field(default_factory=dict)
    scores: list[str] = field(default_factory=list)
    own_rows: str = ""
    composites: list[dict[str, Any]] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    temperature: float | None = None
    hub: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CollectedItem:
    """One collected item: its node id, and what it belongs to."""

    item: str
    benchmark: str
    checkpoint: str
    example: str
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A value, its 95 % interval and standard error, over ``n`` items; None where undefined, with ``why``."""

    __pydantic_config__ = FINITE

    name: str
    value: float | None
    low: float | None
    high: float | None
    stderr: float | None
    n: int
    method: str
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """The scores of one checkpoint on one benchmark, as results of a run and saved ones have them.

    ``metrics`` has the primary one first. Of the items ``collected``, ``scored`` ones have scores, and ``skipped`` ones
    are not to count. ``reused_from`` lists earlier runs that scored some or all of the items. ``invalid`` says why the
    numbers must not be believed, None where nothing is known against them.

    ``of`` is the number of items that the benchmark (or group) has with this data, 0 where not known. ``mark`` stands
    beside every value over fewer items (``core.coverage``).
    """

    __pydantic_config__ = FINITE

    benchmark: str
    checkpoint: str
    primary: str
    metrics: dict[str, Metric]
    collected: int
    scored: int
    skipped: int
    invalid: str | None = None
    reused_from: list[str] = field(default_factory=list)
    of: int = 0
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Result(OutputCounts, BenchmarkResult):
    """One checkpoint on one benchmark, or on one group of it (``group`` set).

    ``name`` is the benchmark's, with ``/GROUP`` for a group. The counts of items (``scored`` to ``lost``) add up to
    ``collected``; ``skipped`` counts also those that are ``xfailed``, as pytest calls them. ``reused`` of the scored
    ones come from earlier runs.

    ``truncated`` counts requests whose context was cut. ``template`` is the way in which texts were asked for: "chat",
    "plain", "mixed", or None where none were.

    ``answered`` is the primary metric over the items without an ``unanswered`` text, None where there is no such text.
    ``published`` is the number of rows in the published set.
    """

    name: str
    group: str | None
    version: int
    errors: int
    timeouts: int
    lost: int
    truncated: int
    seconds: float
    dataset: DatasetInfo
    few_shot: dict[str, Any]
    answered: Metric | None = None
    reused: int = 0
    template: str | None = None
    published: int | None = None
    xfailed: int = 0

    @property
    def faults(self) -> int:
        """Return the number of items that should have been scored and were not: error, timeout or lost."""
        return self.errors + self.timeouts + self.lost

    @property
    def shots(self) -> int:
        """The number of few-shot examples in each prompt."""
        return int(self.few_shot.get("num_fewshot") or 0)

    @property
    def pick(self) -> str | None:
        """The way in which few-shot examples were picked: "first", "sample", or another harness's; None without any."""
        return self.few_shot.get("pick")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A whole run: its manifest (``run.json``), its results in collection order, and what was left out.

    The groups of a benchmark come before its whole. ``composites`` are {"name", "checkpoint", "value", "low", "high",
    "stderr", "method", "why", "mark", "parts": [{"weight", "benchmark", "metric", "value", "n", "of"}]}. ``faults``
    lists items that ended in error, timeout or lost, as {"item", "status", "message"}.

    ``uncollected`` counts journal records of items that this run did not collect (a resumed run with a narrower
    selection); they enter no number. ``effort`` is the usage of each process, under its older name.
    ``failed_to_load`` lists those of several checkpoints that could not be used, as {"name", "path", "message"}.

    ``gate``: what ``compare.gate.result`` describes, None without a gate. ``changes``: the change of each metric and
    composite against the best so far, as ``compare.changes`` describes it. ``leaders``: the
    best of several checkpoints, where it can be told (``compare.standings``). ``sections``: those that hooks add to the
    report, as {"title", "text"}.
    """

    __pydantic_config__ = FINITE

    run_id: str
    directory: str
    manifest: dict[str, Any]
    checkpoints: list[dict[str, Any]]
    results: list[Result]
    declarations: list[Declaration] = field(default_factory=list)
    composites: list[dict[str, Any]] = field(default_factory=list)
    deselected: list[str] = field(default_factory=list)
    faults: list[dict[str, str]] = field(default_factory=list)
    uncollected: int = 0
    seconds: float = 0.0
    effort: list[Usage] = field(default_factory=list)
    gate: dict[str, Any] | None = None
    changes: list[dict[str, Any]] = field(default_factory=list)
    leaders: list[dict[str, Any]] = field(default_factory=list)
    failed_to_load: list[dict[str, str]] = field(default_factory=list)
    sections: list[dict[str, str]] = field(default_factory=list)

    @property
    def stopped(self) -> bool:
        """Return whether the run was stopped before it reached all items; those are lost."""
        return any(fault["message"] == NOT_REACHED for fault in self.faults)


def base_name(benchmark: str) -> str:
    """Return the name that a benchmark declares: ``styled`` for ``styled[polite]``, its result for one value of a
    parameter."""
    return benchmark.partition("[")[0]


def whole_results(summary: Summary) -> list[Result]:
    """Return the results of whole benchmarks, without those of their groups."""
    return [result for result in summary.results if result.group is None]


def sum_counts(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts by name, the largest first."""
    sums: Counter[str] = Counter()
    for table in tables:
        sums.update(table)
    return dict(sums.most_common())


def sum_results(results: Sequence[Result], checkpoint: str) -> Result:
    """Return several checkpoints' results of one benchmark as one, as far as texts and programs are counted."""
    return replace(
        results[0],
        checkpoint=checkpoint,
        programs=sum_counts(result.programs for result in results),
        missing_modules=sum_counts(result.missing_modules for result in results),
        **{name: sum(getattr(result, name) for result in results) for name in GENERATED},
    )


def select_checkpoints(summary: Summary, names: Collection[str], items: Iterable[CollectedItem]) -> Summary:
    """Return the part of a run that is about these checkpoints; ``items`` are those of the whole run.

    What was found over all checkpoints, the gate's decision and the leaders, is no part of it.
    """
    item_ids = {item.item for item in items if item.checkpoint in names}
    results = [result for result in summary.results if result.checkpoint in names]
    benchmarks = {result.benchmark for result in results}
    return replace(
        summary,
        checkpoints=[row for row in summary.checkpoints if row["name"] in names],
        results=results,
        declarations=[declaration for declaration in summary.declarations if declaration.name in benchmarks],
        composites=[row for row in summary.composites if row["checkpoint"] in names],
        faults=[row for row in summary.faults if row["item"] in item_ids],
        effort=[usage for usage in summary.effort if usage.checkpoint in names],
        gate=None,
        changes=[row for row in summary.changes if row["checkpoint"] in names],
        leaders=[],
        failed_to_load=[],
    )


def reportable_part(summary: Summary, *, partly: bool = False) -> Summary:
    """Return the part of a stopped run that reports show, or the whole of any other run.

    These are the results whose items have all ended, with ``partly`` also those with some scored items, and what went
    wrong.
    """
    if not summary.stopped:
        return summary
    whole = {
        (result.checkpoint, result.benchmark)
        for result in whole_results(summary)
        if not result.lost or (partly and result.scored)
    }
    shown = {name for name, _ in whole}
    return replace(
        summary,
        checkpoints=[row for row in summary.checkpoints if row["name"] in shown],
        results=[result for result in summary.results if (result.checkpoint, result.benchmark) in whole],
        declarations=[
            declaration
            for declaration in summary.declarations
            if declaration.name in {name for _, name in whole}
        ],
        composites=[
            row
            for row in summary.composites
            if all((row["checkpoint"], component["benchmark"]) in whole for component in row["parts"])
        ],
        faults=[fault for fault in summary.faults if fault["message"] != NOT_REACHED],
        gate=None,
        changes=[],
        leaders=[],
    )


def count_items(summary: Summary) -> dict[str, int]:
    """Return the counts of all items of the run by what became of them, and of truncated requests."""
    names = ("collected", "scored", "skipped", "xfailed", "errors", "timeouts", "lost", "truncated")
    return {name: sum(getattr(result, name) for result in whole_results(summary)) for name in names}


def summary_json(summary: Summary) -> dict[str, Any]:
    """Return the summary as a JSON object; numbers that are not finite become null."""
    plain: dict[str, Any] = replace_non_finite(asdict(summary))
    return {"schema": SCHEMA, "kind": "summary", **plain, "totals": count_items(summary)}


def summary_from_json(data: Mapping[str, Any]) -> Summary:
    """Return the summary that ``summary_json`` wrote. Raises ``HarnessError`` saying what is wrong with any other."""
    check_kind(data, "summary")
    try:
        summary = from_plain(Summary, replace_non_finite(data))
        check_manifest({**summary.manifest, "checkpoints": summary.checkpoints})
    except (ValueError, TypeError, AttributeError) as error:
        raise HarnessError(f"incomplete summary: {error}") from None
    return summary


def check_manifest(data: Any) -> None:
    """Raise ``ValueError`` if this is not a manifest of a run (``run.json``)."""
    from_plain(_Manifest, data)
    for row in data.get("checkpoints", ()):
        if not isinstance(row.get("name"), str):
            raise ValueError(f"the name of a checkpoint is {row.get('name')!r}")


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The fields of a manifest that are looked at."""

    began: float = 0.0
    run_id: str = ""
    rootdir: str = ""
    folder: str = ""
    command: list[str] = field(default_factory=list)
    versions: dict[str, str | None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    benchmarks: dict[str, dict[str, Any]] = field(default_factory=dict)


def load_summary(directory: Path) -> Summary:
    """Return the summary of a run's folder, wherever that is now.

    Raises ``HarnessError`` naming the file when there is none that can be read.
    """
    path = directory / SUMMARY
    try:
        data = read_checked(path)
        return replace(summary_from_json(data), directory=str(directory))
    except OSError as error:
        raise HarnessError(
            f"cannot read {path}: {error.strerror}; name the folder of a finished run"
        ) from error
    except (ValueError, HarnessError) as error:
        raise HarnessError(f"{path}: cannot be read ({error})") from error


def replace_non_finite(value: Any) -> Any:
    """Return the same plain data with None for every float that is not finite: JSON has no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if value.bit_length() < sys.float_info.max_exp else None
    if isinstance(value, Mapping):
        return {key: replace_non_finite(nested) for key, nested in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_non_finite(nested) for nested in value]
    return value


# Long form


RESULTS: Final = "results.csv"
"""The file of a run with a row per checkpoint, benchmark, group and metric, and one per composite.

Its columns are the fields of ``ResultRow`` in their order; new ones come at the end.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One number of a run with its 95 % interval (``low`` to ``high``), over ``n`` items.

    ``group`` is None for a whole benchmark. ``of`` is the number of items that benchmark or group has with this data,
    None where not known. ``valid`` says that nothing is known against the number: every item was answered, and not too
    many texts were cut off or had no answer in them. ``value``, ``low`` and ``high`` are None where undefined.
    """

    checkpoint: str
    series: str | None
    step: float | None
    benchmark: str
    group: str | None
    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    of: int | None
    valid: bool
    fingerprint: str | None


RESULT_COLUMNS: Final = tuple(ResultRow.__dataclass_fields__)


def result_rows(summary: Summary) -> list[ResultRow]:
    """Return the rows of a run: its results in their order, then its composites."""
    members = Counter(row.get("series") for row in summary.checkpoints)

    def about(name: str) -> dict[str, Any]:
        """Return the columns about a checkpoint.

        The place in a series that only a name or an epoch tells counts where the run has several of the series:
        ``gpt2`` is no step 2.
        """
        row = next((row for row in summary.checkpoints if str(row.get("name")) == name), {})
        step, series = step_of_row(row), row.get("series")
        if step is None and series and members[series] > 1:
            step = row.get("step")
        return {"checkpoint": name, "series": series, "step": step, "fingerprint": row.get("fingerprint")}

    def valid(result: Result) -> bool:
        return result.invalid is None and not result.faults

    names = dict.fromkeys(result.checkpoint for result in summary.results)
    checkpoints = {name: about(name) for name in names}
    rows = [
        ResultRow(
            **checkpoints[result.checkpoint],
            benchmark=result.benchmark,
            group=result.group,
            metric=metric.name,
            value=metric.value,
            low=metric.low,
            high=metric.high,
            n=metric.n,
            of=result.of or None,
            valid=valid(result),
        )
        for result in summary.results
        for metric in result.metrics.values()
    ]
    are_valid = {(result.checkpoint, result.benchmark): valid(result) for result in whole_results(summary)}
    for composite in summary.composites:
        name = composite["checkpoint"]
        components = {component["benchmark"]: component for component in composite["parts"]}
        sizes = [component.get("of") or 0 for component in components.values()]
        rows.append(
            ResultRow(
                **checkpoints.get(name) or about(name),
                benchmark=composite["name"],
                group=None,
                metric=COMPOSITE,
                value=composite["value"],
                low=composite["low"],
                high=composite["high"],
                n=sum(component["n"] for component in components.values()),
                of=sum(sizes) if all(sizes) else None,
                valid=all(are_valid.get((name, benchmark), False) for benchmark in components),
            )
        )
    return rows


def results_csv(summary: Summary) -> str:
    """Return the rows as CSV (RFC 4180) with a header line; numbers unrounded, empty fields for None."""
    lines = [
        [
            str(value).lower() if isinstance(value, bool) else replace_non_finite(value)
            for value in asdict(row).values()
        ]
        for row in result_rows(summary)
    ]
    return csv_text([RESULT_COLUMNS, *lines], "\r\n")
