"""The best of each series, and the best of one against that of another.

Of every two series the difference of their bests allows for both choices (``statistics.bests``). All comparisons of one
pool share what is known of its noise, which is drawn once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_touchstone.compare.study.differences import difference
from pytest_touchstone.compare.study.points import Measure, Point, Series, Study
from pytest_touchstone.compare.study.pool import Pool
from pytest_touchstone.statistics.bests import Bests
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.verdicts import holm

Told = Literal["better", "worse", "cannot tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best of a series by a measure, as measured and after allowing for its having been chosen.

    ``shrunk`` is None where nothing is known of the noise. ``rivals`` are the points that cannot be told from it, in
    the order of their training; ``of`` is the number of points. ``by_totals``: the items of some are not known.
    """

    series: Series
    point: Point
    value: float
    shrunk: float | None
    rivals: tuple[Point, ...]
    of: int
    by_totals: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """The best of one series against that of another: the comparison after allowing for both choices, and as
    measured.

    ``items`` is the number of items compared, 0 where not known: of the side with fewer, and of a composite those of
    all its benchmarks. ``told`` is about the second series; ``p`` is Holm's.
    """

    first: Best
    second: Best
    comparison: Comparison
    as_measured: Comparison
    items: int
    p: float | None = None
    told: Told = "cannot tell"

    @property
    def turned(self) -> Duel:
        """The duel as told of the first series."""
        opposite: dict[Told, Told] = {"better": "worse", "worse": "better", "cannot tell": "cannot tell"}
        return replace(
            self,
            first=self.second,
            second=self.first,
            comparison=self.comparison.turned,
            as_measured=self.as_measured.turned,
            told=opposite[self.told],
        )


class Contest:
    """Series by a measure; ``bests`` are those of the series that have it, of which each can be held against each."""

    def __init__(self, study: Study, pool: Pool, series: Iterable[Series]) -> None:
        self._study = study
        self._pool = pool
        known = [(one, places) for one in series if (places := pool.places(one.points))]
        self._bests = Bests(
            pool.means, pool.spread, pool.units, [places for _, places in known], level=study.level
        )
        self.bests = tuple(self._best(number, *one) for number, one in enumerate(known))

    def _best(self, number: int, series: Series, places: Sequence[int]) -> Best:
        pool, place = self._pool, self._bests.places[number]
        sign = 1 if pool.measure.higher_is_better else -1
        luck = self._bests.luck(number)
        return Best(
            series=series,
            point=pool.points[place],
            value=sign * pool.means[place],
            shrunk=None if luck is None else sign * (pool.means[place] - luck),
            rivals=tuple(pool.points[one] for one in pool.rivals(place, places, self._study.level)),
            of=len(places),
            by_totals=any(pool.errors[one] for one in places),
        )

    def duel(self, first: int, second: int) -> Duel:
        """The best with the second number against that with the first."""
        one, other, measure = self.bests[first], self.bests[second], self._pool.measure
        plain = difference(self._study, one.point, other.point, measure)
        found = self._bests.compare(first, second, plain.oriented)
        return Duel(
            first=one,
            second=other,
            comparison=found if plain.higher_is_better else found.mirrored(),
            as_measured=plain,
            items=_items(one.point, other.point, measure) if measure.composite else plain.n,
        )


def _items(first: Point, second: Point, composite: Measure) -> int:
    """The items of a composite's benchmarks, of each those of the side with fewer; 0 where one's are not known."""
    names = composite.composite.benchmarks if composite.composite else []
    sides = [[point.candidate.entries[name].saved.scored for point in (first, second)] for name in names]
    return sum(min(side) for side in sides) if all(min(side) for side in sides) else 0


def judged(duels: Sequence[Duel], alpha: float) -> list[Duel]:
    """The duels with verdicts, corrected together (Holm)."""
    adjusted = holm([one.comparison.p for one in duels])
    return [
        replace(one, p=p, told=told_of(one.as_measured.oriented.difference, p, alpha))
        for one, p in zip(duels, adjusted, strict=True)
    ]


def told_of(moved: float | None, p: float | None, alpha: float) -> Told:
    """The verdict by a difference, where larger is better, and its p."""
    if not moved or p is None or p > alpha + 1e-12:
        return "cannot tell"
    return "better" if moved > 0 else "worse"
