"""Records -> one result per checkpoint and benchmark, with every collected item accounted for.

This is the only source of the numbers that reports show; pass counts of pytest are never used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PackInfo:
    """Where a benchmark's rows came from: ``origin`` is "--eval-data", "hub" or "shipped"; ``sha256`` is over the rows' bytes."""

    name: str
    origin: str
    path: str
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A benchmark as plain data, as the process that aggregates knows it (it may never import the benchmark's module).

    ``aggregate`` maps a metric to {"by": ..., "of": ...}. ``few_shot`` says how many shots and from where.
    """

    name: str
    version: int
    primary: str
    aggregate: dict[str, dict[str, str]] = field(default_factory=dict)
    grouped: bool = False
    clustered: bool = False
    pack: PackInfo
    few_shot: dict[str, Any] = field(default_factory=dict)
    rule: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number: the value, its 95 % interval and standard error, over ``n`` items; None where undefined, with ``why``."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    stderr: float | None
    n: int
    method: str
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One checkpoint on one benchmark, or on one group of it (``group`` set).

    ``name`` is the benchmark's, with ``/GROUP`` for a group. The counts add up to ``collected``.
    """

    name: str
    benchmark: str
    group: str | None
    checkpoint: str
    version: int
    primary: str
    metrics: dict[str, Metric]
    collected: int
    scored: int
    skipped: int
    errors: int
    timeouts: int
    lost: int
    truncated: int
    seconds: float
    pack: PackInfo
    few_shot: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A whole run: the manifest (``run.json``), the results in collection order, composites, and why items were left out.

    ``faults`` lists items that ended in error, timeout or lost, as (item, status, message).
    """

    run_id: str
    directory: str
    manifest: dict[str, Any]
    checkpoints: list[dict[str, Any]]
    results: list[Result]
    composites: list[dict[str, Any]] = field(default_factory=list)
    deselected: list[str] = field(default_factory=list)
    faults: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0
