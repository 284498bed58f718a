"""The units of requests that replicas are sent, and those that take the place of one that has failed. Pure.

Requests are sorted by their texts, so that those with a common beginning come to one replica, which computes it once.
The longest come first, since what is long and begins late ends late, and units grow smaller towards the end, so that
all replicas end at about the same time. Units of texts stay as large as an engine continues texts together.

A unit whose replica dies is sent again. After three deaths it is halved, and its halves are halved again at their next
death, until one request is left. That one has deaths of its own, each while it was all that the replica had, and is
given up by name at the third. So one request that kills whatever computes it costs that request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pytest_touchstone.core.requests import (
    FillMask,
    Generate,
    Judge,
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

MOST_DEATHS: Final = 3
"""The deaths of its replica after which a unit is halved, or a single request given up."""


@dataclass(slots=True, eq=False)
class Unit:
    """The numbers of the requests that a replica computes at once, and the deaths that they are blamed for."""

    numbers: tuple[int, ...]
    deaths: int = 0

    def failed(self, *, died: bool) -> list[Unit]:
        """Return the units to send in its place, none where a single request is given up.

        An error that a replica raises, and lives on, is not tried again: the unit is halved at once.
        """
        self.deaths += died
        if died and self.deaths < MOST_DEATHS:
            return [self]
        if len(self.numbers) == 1:
            return []
        half = len(self.numbers) // 2
        parts = (self.numbers[:half], self.numbers[half:])
        return [Unit(part, MOST_DEATHS - 1 if len(part) > 1 else 0) for part in parts]


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
            new = GENERATED * request.different * request.max_new_tokens
            return 1 + len(prompt) / CHARACTERS_PER_TOKEN + new
        case RunProgram() | Judge():
            return 1.0


def plan_units(requests: Sequence[Request], replicas: int, together: int = TEXTS) -> list[Unit]:
    """Return every request in one unit, the units in the order in which they are to be sent.

    An engine continues so many texts ``together``. A unit that has any has as many at least, but for the last, if there
    are so many for each replica. A step takes about as long for few texts as for many, and a unit takes as many steps
    as its longest text, so smaller units would even out nothing.
    """
    costs = [cost_of(request) for request in requests]
    left, units, numbers, size, texts = math.fsum(costs), list[Unit](), list[int](), 0.0, 0
    least = min(together, math.ceil(sum(map(_texts, requests)) / replicas))
    for number in _ordered(requests, costs):
        numbers.append(number)
        size += costs[number]
        texts += _texts(requests[number])
        if size >= max(LEAST, left / (SHARE * replicas)) and not 0 < texts < least:
            units.append(Unit(tuple(numbers)))
            left, numbers, size, texts = left - size, [], 0.0, 0
    return units + ([Unit(tuple(numbers))] if numbers else [])


def _ordered(requests: Sequence[Request], costs: Sequence[float]) -> list[int]:
    """Return the requests' numbers: families with a common beginning, those with the longest member first."""
    families: dict[tuple[str, str], list[int]] = {}
    for number in sorted(range(len(requests)), key=lambda n: (_text(requests[n]), n), reverse=True):
        request = requests[number]
        families.setdefault((type(request).__name__, _text(request)[:COMMON]), []).append(number)
    ordered = sorted(families.values(), key=lambda members: (-max(costs[n] for n in members), members[0]))
    return [number for members in ordered for number in members]


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
        case RunProgram() | Judge():
            return ""
