"""Scores made of several benchmarks' metrics with fixed weights.

A composite is defined by its name alone: whatever takes other parts is another composite with another name,
so that two numbers under one name always mean the same thing. A composite exists only where all its parts do;
weights are never spread over the parts that happen to be there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from harness.core.errors import BenchmarkError

Found = TypeVar("Found")


class Part(NamedTuple):
    """One summand: its weight, and which metric of which benchmark it is."""

    weight: float
    benchmark: str
    metric: str


@dataclass(frozen=True, slots=True)
class Composite:
    """A weighted mean of metrics; the weights are positive and add up to 1."""

    name: str
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        weights = [part.weight for part in self.parts]
        if any(weight <= 0 for weight in weights) or not math.isclose(math.fsum(weights), 1.0, abs_tol=1e-9):
            raise BenchmarkError(
                f"composite {self.name!r}: weights {weights} must be positive and add up to 1"
            )

    @property
    def formula(self) -> str:
        """The sum as a person writes it: ``0.4 real_coref:real@1 + ...``."""
        return " + ".join(f"{part.weight:g} {part.benchmark}:{part.metric}" for part in self.parts)


_REAL: Final = (Part(0.4, "real_coref", "real@1"), Part(0.3, "real_coref", "real@5"))

COMPOSITES: Final = (
    Composite("score", (*_REAL, Part(0.3, "ko_lambada", "lambada@1"))),
    Composite("score_wiki", (*_REAL, Part(0.3, "ko_lambada_wiki", "lambada@1"))),
)
"""The composites that reports compute. ``score`` is the model-selection score of the Korean
masked-language-model studies; ``score_wiki`` is the same sum over the Wikipedia form of Ko-LAMBADA, and never
to be compared with ``score``."""


def missing_parts(composite: Composite, found: Mapping[tuple[str, str], object]) -> list[str]:
    """The parts, as ``benchmark:metric``, that ``found`` lacks or holds None for."""
    return [
        f"{p.benchmark}:{p.metric}" for p in composite.parts if found.get((p.benchmark, p.metric)) is None
    ]


def weighted_parts(
    composite: Composite, found: Mapping[tuple[str, str], Found]
) -> list[tuple[float, Found]] | None:
    """The weights with what ``found`` holds for each part, in order; None when a part is missing."""
    if missing_parts(composite, found):
        return None
    return [(part.weight, found[part.benchmark, part.metric]) for part in composite.parts]


def composite_value(composite: Composite, values: Mapping[tuple[str, str], float | None]) -> float | None:
    """The weighted sum, in the unit of the values; None when a part is missing."""
    parts = weighted_parts(composite, values)
    if parts is None:
        return None
    return math.fsum(weight * value for weight, value in parts if value is not None)
