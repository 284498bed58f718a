"""Made-up saved results for the tests of gates: any scores, any conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_touchstone.compare.baselines import BaselineSource
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.results.store_entry import ItemScores, StoredResult
from pytest_touchstone.results.summary import Metric

CONDITIONS = {"version": 1, "data": "d" * 64, "shots": 0, "template": "plain", "seed": 1234, "limit": None}


def entry(
    scores: Sequence[float | None] | Mapping[str, Sequence[float | None]],
    *,
    checkpoint: str = "old",
    benchmark: str = "b",
    run_id: str | None = None,
    began: float = 1.0,
    clusters: Sequence[str | None] | None = None,
    examples: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    conditions: Mapping[str, Any] | None = None,
    aggregate: Mapping[str, dict[str, str]] | None = None,
    **more: Any,
) -> BenchmarkScores:
    """An entry whose primary metric is its first score; the checkpoint's name makes its fingerprint."""
    columns = {"acc": scores} if not isinstance(scores, Mapping) else scores
    first = next(iter(columns.values()))
    n = len(first)
    names = list(examples) if examples is not None else [f"{benchmark}/{place:04}" for place in range(n)]
    items = ItemScores(
        examples=names,
        rows=list(rows) if rows is not None else [f"row of {name}" for name in names],
        groups=[None] * n,
        clusters=list(clusters) if clusters is not None else [None] * n,
        scores={name: list(column) for name, column in columns.items()},
    )
    metrics = {name: metric(name, column) for name, column in columns.items()}
    metrics |= {name: metric(name, columns[how["of"]]) for name, how in (aggregate or {}).items()}
    run_id = run_id or f"run-{checkpoint}"
    saved = StoredResult(
        run_id=run_id,
        directory=f"results/{run_id}",
        began=began,
        checkpoint=checkpoint,
        fingerprint=more.pop("fingerprint", (checkpoint.encode().hex() + "0" * 64)[:64]),
        path=more.pop("path", f"runs/{checkpoint}"),
        step=None,
        benchmark=benchmark,
        primary=next(iter(columns)),
        conditions={**CONDITIONS, **(conditions or {})},
        aggregate=dict(aggregate or {}),
        metrics=metrics,
        collected=more.pop("collected", n),
        scored=n,
        skipped=more.pop("skipped", 0),
        faults=more.pop("faults", 0),
        invalid=more.pop("invalid", None),
        items_sha256=items.digest(),
        **more,
    )
    return BenchmarkScores(saved, items)


def metric(name: str, column: Sequence[float | None]) -> Metric:
    """The mean of a column, without an interval."""
    known = [value for value in column if value is not None]
    value = sum(known) / len(known) if known else None
    return Metric(name=name, value=value, low=None, high=None, stderr=None, n=len(known), method="mean")


def right(count: int, of: int) -> list[float]:
    """So many ones, then zeros."""
    return [1.0] * count + [0.0] * (of - count)


def source(*entries: BenchmarkScores, kind: Any = "best", name: str = "best") -> BaselineSource:
    """A source of these entries alone."""
    items = {id(one.saved): one.items for one in entries}
    return BaselineSource(
        name=name, kind=kind, saved=[one.saved for one in entries], items=lambda saved: items[id(saved)]
    )
