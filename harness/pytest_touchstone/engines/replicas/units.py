"""Requests -> units: what is sent to a replica at once. Pure.

Requests are sorted by their texts, so that those with a common beginning come to one replica, which computes it once.
The longest come first, since what is long and begins late ends late, and units grow smaller towards the end, so that
all replicas end at about the same time. Units of texts stay as large as an engine continues texts together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from pytest_touchstone.core.requests import (
    FillMask,
    Generate,
    Loglikelihood,
    PseudoLoglikelihood,
    Request,
    RollingLoglikelihood,
    RunProgram,
)
from pytest_touchstone.core.text import CHARACTERS_PER_TOKEN

LEAST: Final = 2000.0
"""The least cost of a unit, in tokens, but for the last: below it, sending it costs more than it evens out."""

TEXTS: Final = 64
"""The texts that an engine continues together which does not say how many it does."""

SHARE: Final = 4
"""A unit is this part of what is left for each replica."""

GENERATED: Final = 10.0
"""The cost of a new token in tokens of a prompt."""

COMMON: Final = 64
"""The characters at the beginning in which requests agree that are kept together."""


class Unit(NamedTuple):
    """A unit: the numbers of its requests, and what they cost."""

    requests: tuple[int, ...]
    cost: float


def cost_of(request: Request) -> float:
    """Return about how many tokens a request makes a model compute."""
    match request:
        case Loglikelihood(context, continuation):
            return 1 + (len(context) + len(continuation)) / CHARACTERS_PER_TOKEN
        case RollingLoglikelihood(text) | FillMask(text):
            return 1 + len(text) / CHARACTERS_PER_TOKEN
        case PseudoLoglikelihood(text):
            return (1 + len(text) / CHARACTERS_PER_TOKEN) ** 2
        case Generate(prompt):
            return (
                1
                + len(prompt) / CHARACTERS_PER_TOKEN
                + GENERATED * request.different * request.max_new_tokens
            )
        case RunProgram():
            return 1.0


def plan_units(requests: Sequence[Request], replicas: int, together: int = TEXTS) -> list[Unit]:
    """Return every request in one unit, the units in the order in which they are to be sent.

    An engine continues so many texts ``together``. A unit that has any has as many at least, but for the last, if there
    are so many for each replica. A step takes about as long for few texts as for many, and a unit takes as many steps
    as its longest text, so smaller units would even out nothing.
    """
    costs = [cost_of(one) for one in requests]
    left, found, unit, size, texts = math.fsum(costs), [], [], 0.0, 0
    least = min(together, math.ceil(sum(map(_texts, requests)) / replicas))
    for number in _ordered(requests, costs):
        unit.append(number)
        size += costs[number]
        texts += _texts(requests[number])
        if size >= max(LEAST, left / (SHARE * replicas)) and not 0 < texts < least:
            found.append(Unit(tuple(unit), size))
            left, unit, size, texts = left - size, [], 0.0, 0
    return found + ([Unit(tuple(unit), size)] if unit else [])


def _ordered(requests: Sequence[Request], costs: Sequence[float]) -> list[int]:
    """Return the requests' numbers: families with a common beginning, those with the longest member first."""
    families: dict[tuple[str, str], list[int]] = {}
    for number in sorted(range(len(requests)), key=lambda one: (_text(requests[one]), one), reverse=True):
        one = requests[number]
        families.setdefault((type(one).__name__, _text(one)[:COMMON]), []).append(number)
    ordered = sorted(families.values(), key=lambda own: (-max(costs[one] for one in own), own[0]))
    return [number for own in ordered for number in own]


def _texts(request: Request) -> int:
    return request.different if isinstance(request, Generate) else 0


def _text(request: Request) -> str:
    match request:
        case Loglikelihood(context, _):
            return context
        case RollingLoglikelihood(text) | FillMask(text) | PseudoLoglikelihood(text):
            return text
        case Generate(prompt):
            return prompt
        case RunProgram():
            return ""
