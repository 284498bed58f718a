"""The selection of steps of a series: the grammar of ``--eval-steps``.

    300            that step
    100,300        each of them
    300:           from 300 up
    :600           up to 600, which is among them
    100:600:100    from 100 to 600 in steps of 100: 100, 200, ... 600
    ::500          every 500th

Parts with commas between them add up: ``25,300:``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple


class Range(NamedTuple):
    """Steps from ``start`` to ``stop``, both included, in steps of ``every``; None where not limited."""

    start: int
    stop: int | None
    every: int | None


@dataclass(frozen=True, slots=True)
class StepFilter:
    """The steps that ``text`` means."""

    text: str
    ranges: tuple[Range, ...]

    def has(self, step: float) -> bool:
        """Return whether the step (or epoch) is one of them."""
        return any(_within(step, one) for one in self.ranges)


def parse_steps(text: str) -> StepFilter:
    """The steps that a text means; raises ``ValueError`` with what was expected."""
    ranges = tuple(_range(part.strip()) for part in text.split(","))
    return StepFilter(text, ranges)


def _within(step: float, one: Range) -> bool:
    if step < one.start or (one.stop is not None and step > one.stop):
        return False
    return one.every is None or (step - one.start) % one.every == 0


def _range(part: str) -> Range:
    found = re.fullmatch(r"(\d*)(?:(:)(\d*)(?::(\d+))?)?", part)
    if found is None or part in ("", ":"):
        raise ValueError("START:STOP:STEP or a list (300:, :600, 100:600:100, 100,300)")
    start, colon, stop, every = found.groups()
    first = int(start or 0)
    last = first if not colon else int(stop) if stop else None
    if last is not None and last < first:
        raise ValueError(f"{last}:{first}, the lower end first")
    if every is not None and not int(every):
        raise ValueError(f"{start}:{stop}:1 or more, no steps of 0")
    return Range(first, last, int(every) if every else None)
