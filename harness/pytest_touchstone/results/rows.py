"""The numbers of a run in long form: one row per checkpoint, benchmark, group and metric, and one per composite.

``results.csv`` has these rows. Its columns are the fields of ``ResultRow`` in their order; new ones come at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pytest_touchstone.checkpoints.config_files import step_of_row
from pytest_touchstone.core.composite import COMPOSITE
from pytest_touchstone.core.text import csv_text
from pytest_touchstone.results.summary import Result, Summary, finite

FILE: Final = "results.csv"


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


COLUMNS: Final = tuple(ResultRow.__dataclass_fields__)


def result_rows(summary: Summary) -> list[ResultRow]:
    """Return the rows of a run: its results in their order, then its composites."""
    checkpoints = _checkpoints(summary)
    return [*_of_results(summary, checkpoints), *_of_composites(summary, checkpoints)]


def results_csv(summary: Summary) -> str:
    """Return the rows as CSV (RFC 4180) with a header line; numbers unrounded, empty fields for None."""
    rows = (asdict(row).values() for row in result_rows(summary))
    return csv_text([COLUMNS, *(map(_field, row) for row in rows)], "\r\n")


def _field(value: Any) -> Any:
    """Return what the file has for a value; a float is written with all its digits."""
    return str(value).lower() if isinstance(value, bool) else finite(value)


def _of_results(summary: Summary, checkpoints: Mapping[str, Mapping[str, Any]]) -> Iterator[ResultRow]:
    for result in summary.results:
        for metric in result.metrics.values():
            yield ResultRow(
                **checkpoints.get(result.checkpoint) or _about({"name": result.checkpoint}, None),
                benchmark=result.benchmark,
                group=result.group,
                metric=metric.name,
                value=metric.value,
                low=metric.low,
                high=metric.high,
                n=metric.n,
                of=result.of or None,
                valid=_valid(result),
            )


def _of_composites(summary: Summary, checkpoints: Mapping[str, Mapping[str, Any]]) -> Iterator[ResultRow]:
    valid = {(one.checkpoint, one.benchmark): _valid(one) for one in summary.results if one.group is None}
    for one in summary.composites:
        parts = {part["benchmark"]: part for part in one["parts"]}
        sizes = [part.get("of") or 0 for part in parts.values()]
        yield ResultRow(
            **checkpoints.get(one["checkpoint"]) or _about({"name": one["checkpoint"]}, None),
            benchmark=one["name"],
            group=None,
            metric=COMPOSITE,
            value=one["value"],
            low=one["low"],
            high=one["high"],
            n=sum(part["n"] for part in parts.values()),
            of=sum(sizes) if all(sizes) else None,
            valid=all(valid.get((one["checkpoint"], name), False) for name in parts),
        )


def _valid(result: Result) -> bool:
    return result.invalid is None and not result.faults


def _checkpoints(summary: Summary) -> dict[str, dict[str, Any]]:
    """Return the columns about each checkpoint, by name.

    The place in a series that only a name or an epoch tells counts where the run has several of the series: ``gpt2`` is
    no step 2.
    """
    members = Counter(row.get("series") for row in summary.checkpoints)
    return {
        str(row.get("name")): _about(row, row.get("step") if members[row.get("series")] > 1 else None)
        for row in summary.checkpoints
    }


def _about(row: Mapping[str, Any], place: float | None) -> dict[str, Any]:
    step, series = step_of_row(row), row.get("series")
    return {
        "checkpoint": str(row.get("name")),
        "series": series,
        "step": place if step is None and series else step,
        "fingerprint": row.get("fingerprint"),
    }
