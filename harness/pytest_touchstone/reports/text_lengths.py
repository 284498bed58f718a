"""The lengths that generated texts will have, from those that have ended and those that still grow. Pure.

With them goes the time that texts take which are generated together (for ``reports.time_left``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pytest_touchstone.results.live import BINS

HAZARDS: Final = (0.7, 0.3, 0.1)
"""The share of texts that end in the first sixteenth of their limit, before anything is known: most, middle, least.

In the n-th sixteenth it is an n-th of that: what has gone on for long is likely to go on, small models in circles.
"""

TEXTS_KNOWN: Final = 2.0
"""So many texts count as much as what was believed before."""

ALIKE: Final = 4.0
"""So many texts of other benchmarks count as much as the guess."""

GRID: Final = 48
"""Points at which the number of growing texts is looked at."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Survival of texts by sixteenths of their limit; ``survival[i]`` have more than i sixteenths."""

    survival: tuple[float, ...]
    limit: int

    def beyond(self, tokens: float) -> float:
        """Return the share of texts with more tokens than these."""
        place = BINS * tokens / max(1, self.limit)
        if place >= BINS:
            return 0.0
        low = int(place)
        part = place - low
        return (
            self.survival[low] * (1.0 - part) + self.survival[low + 1] * part if part else self.survival[low]
        )


def lengths_of(
    ended: Sequence[float], growing: Iterable[int], before: Sequence[float], limit: int
) -> Lengths:
    """Return the lengths of texts: ``ended`` counts those that have, by bins, ``growing`` has the tokens of the others,
    ``before`` the hazards believed before."""
    at_risk = [sum(ended[place:]) for place in range(BINS)]
    for tokens in growing:
        # Its own sixteenth too: it has outlived those that have ended there.
        for place in range(min(BINS, BINS * tokens // max(1, limit) + 1)):
            at_risk[place] += 1
    survival = [1.0]
    for place in range(BINS):
        hazard = (ended[place] + TEXTS_KNOWN * before[place]) / (at_risk[place] + TEXTS_KNOWN)
        survival.append(survival[-1] * (1.0 - min(1.0, hazard)))
    return Lengths(tuple(survival), limit)


def hazards(ended: Iterable[Sequence[float]], guess: float) -> list[float]:
    """Return the hazards that are believed of a benchmark before its own texts have ended: a guess, and those of other
    benchmarks of the checkpoint, each by the lengths of its texts.

    However many texts a benchmark has, it counts no more than the guess: each has texts of lengths of its own.
    """
    found = [ALIKE * guess / (1 + place) for place in range(BINS)]
    counted = [ALIKE] * BINS
    for lengths in ended:
        for place in range(BINS):
            if at_risk := sum(lengths[place:]):
                many = min(at_risk, ALIKE)
                found[place] += many * lengths[place] / at_risk
                counted[place] += many
    return [one / many for one, many in zip(found, counted, strict=True)]


class Growing(NamedTuple):
    """Texts of the same lengths that have the same number of tokens; ``begun`` is 0 for those that wait."""

    texts: float
    lengths: Lengths
    begun: int = 0

    def alive(self, tokens: float) -> float:
        """Return the probability that one of them goes on for more than so many tokens."""
        now = self.lengths.beyond(self.begun)
        return min(1.0, self.lengths.beyond(self.begun + tokens) / now) if now > 0 else 0.0

    @property
    def most(self) -> int:
        """The most tokens that are left of one."""
        return max(0, self.lengths.limit - self.begun)

    @property
    def mean(self) -> float:
        """The tokens that are left of one in the mean."""
        points = [self.most * (number + 0.5) / BINS for number in range(BINS)]
        return self.most / BINS * sum(map(self.alive, points))


def steps_seconds(texts: Sequence[Growing], rows: int, seconds: Callable[[float], float]) -> float:
    """Return the time until all texts are at their ends, at most ``rows`` of them at once.

    ``seconds`` gives the time of a step with so many.
    """
    many = sum(one.texts for one in texts)
    if not many:
        return 0.0
    if many <= rows:
        return _drained(texts, seconds)
    # First all rows are in use, then as many texts as there are rows come to their ends together.
    share = rows / many
    tokens = sum(one.texts * one.mean for one in texts)
    last = [one._replace(texts=one.texts * share) for one in texts]
    return tokens * (1.0 - share) / rows * seconds(rows) + _drained(last, seconds)


def _drained(texts: Sequence[Growing], seconds: Callable[[float], float]) -> float:
    """Return the same where all go on at once."""
    most = max((one.most for one in texts), default=0)
    width = most / GRID
    found = 0.0
    for number in range(GRID):
        tokens = (number + 0.5) * width
        rows, none = 0.0, 1.0
        for one in texts:
            alive = one.alive(tokens)
            rows += one.texts * alive
            none *= (1.0 - alive) ** one.texts
        if none < 1.0:
            found += width * (1.0 - none) * seconds(max(1.0, rows / (1.0 - none)))
    return found
