"""The best of some runs against the best of others, for every two of several groups.

Each is tested as the best against the other's measured best (``best_of_many``). One of the two was measured higher, and
only its test allows for luck. The other's choice can only have narrowed the gap, which makes the test cautious. Its p
is the result; each end of the interval is that of the test which allows for it.

Draws of all runs' noise are made once, and what they say of a group serves all its comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_touchstone.statistics.best_of_many import Contenders, Rival
from pytest_touchstone.statistics.comparison import LEVEL, Comparison
from pytest_touchstone.statistics.curves import DRAWS
from pytest_touchstone.statistics.joint_noise import Noise, sample_of

if TYPE_CHECKING:
    import numpy as np


class _Known(NamedTuple):
    """A group as contenders, and the reach of its luck above the best of each group."""

    runs: Contenders
    reaches: list[float]


class Bests:
    """Groups of runs by the places of their means, of which every two can be compared.

    ``places`` are those of their bests. ``units`` counts the independent items behind each mean. ``level`` is that of
    all comparisons.
    """

    def __init__(
        self,
        means: Sequence[float],
        covariance: np.ndarray,
        units: Sequence[int],
        groups: Sequence[Sequence[int]],
        *,
        level: float = LEVEL,
        draws: int = DRAWS,
    ) -> None:
        import numpy as np

        self.places = [max(one, key=means.__getitem__) for one in groups]
        used = sorted({place for one in groups for place in one})
        rows = {place: row for row, place in enumerate(used)}
        self._groups = [[rows[place] for place in one] for one in groups]
        self._best = [rows[place] for place in self.places]
        self._means = [means[place] for place in used]
        self._units = [min(units[place] for place in one) for one in groups]
        self._covariance = covariance[np.ix_(used, used)]
        self._draws = sample_of(self._covariance, draws).values
        self._level = level
        self._known: dict[tuple[int, int], _Known] = {}

    def luck(self, group: int) -> float | None:
        """The part of a group's measured best that is luck; None where nothing is known of its noise."""
        if self._units[group] < 2:
            return None
        return self._contenders(group, self._units[group]).luck() if len(self._groups[group]) > 1 else 0.0

    def compare(self, first: int, second: int, plain: Comparison) -> Comparison:
        """The best of the second group against the best of the first, whose plain comparison is given, allowing for
        both choices; the plain one where nothing is known of the noise."""
        units = min(self._units[first], self._units[second])
        if units < 2 or plain.difference is None or plain.baseline is None or plain.new is None:
            return plain
        upper = self._against(first, second, units, plain)
        lower = self._against(second, first, units, plain.turned)
        below, above = upper.baseline, lower.baseline
        assert below is not None
        assert above is not None
        count, other = len(self._groups[first]), len(self._groups[second])
        return replace(
            plain,
            baseline=below,
            new=above,
            difference=above - below,
            low=None if lower.high is None else min(-lower.high, above - below),
            high=None if upper.high is None else max(upper.high, above - below),
            p=None if upper.p is None or lower.p is None else max(upper.p, lower.p),
            method=f"{plain.method}; shrunk for selection: best of {count} and best of {other}",
        )

    def _against(self, group: int, other: int, units: int, plain: Comparison) -> Comparison:
        if len(self._groups[group]) == 1:
            return plain
        known, new = self._look_at(group, units), self._best[other]
        covariances = self._covariance[self._groups[group], new]
        squares = known.runs.squares_to(covariances, self._covariance[new, new])
        return known.runs.against(Rival(self._draws[new], squares), plain, known.reaches[other])

    def _contenders(self, group: int, units: int) -> Contenders:
        import numpy as np

        own = self._groups[group]
        noise = Noise(self._covariance[np.ix_(own, own)], units)
        return Contenders([self._means[place] for place in own], noise, self._draws[own])

    def _look_at(self, group: int, units: int) -> _Known:
        """The group as contenders, with so many independent items behind it: those of the other group may be fewer."""
        import numpy as np

        if (group, units) not in self._known:
            runs = self._contenders(group, units)
            gaps = runs.leads - self._draws[self._best]
            reaches = np.quantile(gaps, (1 + self._level) / 2, axis=1).tolist()
            self._known[group, units] = _Known(runs, reaches)
        return self._known[group, units]
