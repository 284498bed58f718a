"""Scores made of several benchmarks' metrics with fixed weights.

A composite is defined by its name alone: a composite of other parts has another name, so that two numbers under one
name always mean the same thing. A composite exists only where all its parts do; weights are never spread over the
parts that happen to be there.

A composite is declared by ``composite`` in a benchmark file, a conftest or a plug-in, or in pyproject.toml:

    [tool.touchstone.composites]
    score = { "real_coref:real@1" = 0.7, "ko_lambada:lambada@1" = 0.3 }

Each result keeps the composites that its benchmark is part of, so that readers of results need no declaration.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.files import project_table


class WeightedMetric(NamedTuple):
    """One summand: its weight, benchmark and metric."""

    weight: float
    benchmark: str
    metric: str


@dataclass(frozen=True, slots=True)
class Composite:
    """A weighted mean of metrics; the weights are positive and add up to 1."""

    name: str
    parts: tuple[WeightedMetric, ...]

    def __post_init__(self) -> None:
        weights = [component.weight for component in self.parts]
        if any(weight <= 0 for weight in weights) or not math.isclose(math.fsum(weights), 1.0, abs_tol=1e-9):
            raise BenchmarkError(
                f"composite {self.name!r}: weights {weights} must be positive and add up to 1"
            )

    @property
    def benchmarks(self) -> list[str]:
        """The benchmarks that its parts are of, each once."""
        return list(dict.fromkeys(component.benchmark for component in self.parts))

    @property
    def formula(self) -> str:
        """The sum as text: ``0.4 real_coref:real@1 + ...``."""
        return " + ".join(
            f"{component.weight:g} {component.benchmark}:{component.metric}" for component in self.parts
        )

    def plain(self) -> dict[str, Any]:
        """Return the composite as plain data."""
        return {"name": self.name, "parts": [list(component) for component in self.parts]}


COMPOSITE: Final = "composite"
"""The word that stands for the metric where a composite has a row or a line, under its own name."""

ATTRIBUTE: Final = "__touchstone_composites__"
"""The name under which a module holds the composites that it declares."""


def composite(name: str, parts: Mapping[str, float]) -> Composite:
    """Declare a weighted mean of metrics in a benchmark file or a conftest.

    Larger values must be better.

        composite("score", {"real_coref:real@1": 0.7, "ko_lambada:lambada@1": 0.3})

    Raises ``BenchmarkError`` for parts that are not ``benchmark:metric`` and for weights that do not add up to 1.
    """
    made = parse_composite(name, parts, "composite")
    # By the caller's module, so that there is no registry: two sessions in one process share nothing.
    sys._getframe(1).f_globals.setdefault(ATTRIBUTE, []).append(made)
    return made


def parse_composite(name: str, parts: object, where: str) -> Composite:
    """Parse ``{"benchmark:metric": weight}``; raise ``BenchmarkError``."""
    where_named = f"{where} {name!r}"
    if not isinstance(parts, Mapping) or not parts:
        raise BenchmarkError(f'{where_named}: {parts!r} are no parts; give {{"benchmark:metric": weight}}')
    components = []
    for key, weight in parts.items():
        benchmark, sign, metric = str(key).rpartition(":")
        if not (benchmark and sign and metric):
            raise BenchmarkError(f"{where_named}: {key!r} names no metric; write benchmark:metric")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            raise BenchmarkError(
                f"{where_named}: the weight of {key} is {weight!r}; give a number such as 0.3"
            )
        components.append(WeightedMetric(float(weight), benchmark, metric))
    return Composite(name, tuple(components))


def composites_from_plain(rows: Iterable[Mapping[str, Any]]) -> list[Composite]:
    """Return the composites that ``Composite.plain`` wrote, each once."""
    composites = (
        Composite(str(row["name"]), tuple(WeightedMetric(*component) for component in row["parts"]))
        for row in rows
    )
    return list(dict.fromkeys(composites))


def project_composites(pyproject: Path) -> list[Composite]:
    """Return the composites of ``[tool.touchstone.composites]``; none without such a file or table.

    Raises ``BenchmarkError`` naming the composite that is wrong.
    """
    table = project_table(pyproject, "composites", BenchmarkError)
    return [parse_composite(name, parts, f"{pyproject}: composite") for name, parts in table.items()]


def unique_composites(composites: Iterable[Composite]) -> list[Composite]:
    """Return the composites, each once; raises ``BenchmarkError`` where one name has two formulas."""
    by_name: dict[str, Composite] = {}
    for composite in composites:
        other = by_name.setdefault(composite.name, composite)
        if other != composite:
            raise BenchmarkError(
                f"composite {composite.name!r} is both {other.formula} and {composite.formula}; rename one"
            )
    return list(by_name.values())


def missing_parts(composite: Composite, values: Mapping[tuple[str, str], object]) -> list[str]:
    """List the parts, as ``benchmark:metric``, without a value."""
    return [
        f"{p.benchmark}:{p.metric}" for p in composite.parts if values.get((p.benchmark, p.metric)) is None
    ]


def composite_value(composite: Composite, values: Mapping[tuple[str, str], float | None]) -> float | None:
    """Return the weighted sum in the unit of the values; None where a part is missing."""
    if missing_parts(composite, values):
        return None
    terms = [
        (component.weight, values[component.benchmark, component.metric]) for component in composite.parts
    ]
    return math.fsum(weight * value for weight, value in terms if value is not None)
