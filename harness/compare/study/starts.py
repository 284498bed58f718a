"""The beginnings of two series, compared at one epoch: that at which the later one begins.

Where both have a checkpoint there, the two are compared. Where the earlier one has checkpoints before and after it, its
value is interpolated, with the error of that (``statistics.curves``). Otherwise nothing is compared, and why is said:
a first value at epoch 0.5 and one at 2.5 differ by two epochs of training, whatever else they differ by.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from harness.compare.study.differences import difference, together
from harness.compare.study.points import Measure, Point, Series, Study
from harness.core.text import place_text
from harness.statistics.comparison import Comparison, undefined
from harness.statistics.curves import between
from harness.statistics.moments import t_quantile

SAME: float = 1e-6
"""The most that two epochs that are the same differ by, relative to the larger one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Two series at the epoch where the later of them begins; ``comparison`` is of ``second`` with ``first``.

    ``between`` are the checkpoints that a value was interpolated from, None where both were measured.
    """

    measure: Measure
    first: Series
    second: Series
    epoch: float | None
    comparison: Comparison
    between: tuple[Point, Point] | None = None


def starts_of(study: Study, measure: Measure) -> Iterator[Start]:
    """Every pair of series that have the measure and several checkpoints."""
    known = [one for one in study.series if len(study.measured(one, measure)) > 1]
    for first, second in itertools.combinations(known, 2):
        yield _start(study, measure, first, second)


def _start(study: Study, measure: Measure, first: Series, second: Series) -> Start:
    def without(why: str, epoch: float | None = None) -> Start:
        nothing = undefined(why, level=study.level)
        return Start(measure=measure, first=first, second=second, epoch=epoch, comparison=nothing)

    places = [_places(study, measure, one) for one in (first, second)]
    lacking = [one.name for one, own in zip((first, second), places, strict=True) if not own]
    if lacking:
        return without(f"the epochs of {' and '.join(lacking)} are not known")
    begins = [own[0][0] for own in places]
    epoch = max(begins)
    met = [next((p for at, p in own if math.isclose(at, epoch, rel_tol=SAME)), None) for own in places]
    if met[0] is not None and met[1] is not None:
        found = difference(met[0], met[1], measure, study.level)
        return Start(measure=measure, first=first, second=second, epoch=epoch, comparison=found)
    early = 0 if begins[0] < begins[1] else 1
    own = places[early]
    if own[-1][0] < epoch:
        name, other = (first, second)[early].name, (first, second)[1 - early].name
        return without(
            f"{name} ends at epoch {place_text(own[-1][0])}, and {other} begins at {place_text(epoch)}", epoch
        )
    after = next(number for number, (at, _) in enumerate(own) if at > epoch)
    pair = own[after - 1], own[after]
    comparison = _interpolated(study, measure, pair, places[1 - early][0][1], epoch, turn=early == 1)
    around = pair[0][1], pair[1][1]
    return Start(
        measure=measure, first=first, second=second, epoch=epoch, comparison=comparison, between=around
    )


def _places(study: Study, measure: Measure, series: Series) -> list[tuple[float, Point]]:
    if series.axis != "epoch":
        return []
    known = [(series.place(point), point) for point, _ in study.measured(series, measure)]
    return [(place, point) for place, point in known if place is not None]


def _interpolated(
    study: Study,
    measure: Measure,
    pair: tuple[tuple[float, Point], tuple[float, Point]],
    other: Point,
    epoch: float,
    *,
    turn: bool,
) -> Comparison:
    """The other series' first point against the value between a pair, or with ``turn`` the other way round."""
    (a, before), (b, after) = pair
    values = [study.value(point, measure) for point in (before, after, other)]
    found = together(study, [before, after, other], measure)
    means = found.means if found else tuple(value.value for value in values if value is not None)
    noise = found.noise if found else None
    made = between(epoch, (a, b), (means[0], means[1]), noise)
    sign = -1 if turn else 1
    base, new = (means[2], made.value) if turn else (made.value, means[2])
    error = low = high = p = None
    n = min(value.n for value in values if value is not None)
    if noise is not None:
        weights = (-made.weights[0], -made.weights[1], 1.0)
        cells = itertools.product(range(3), range(3))
        error = math.sqrt(max(0.0, sum(weights[i] * weights[j] * noise.covariance[i, j] for i, j in cells)))
        half = t_quantile(max(1, noise.units - 1), study.level) * error
        low, high = new - base - half, new - base + half
        p = math.erfc(abs(new - base) / error / math.sqrt(2)) if error else None
    return Comparison(
        baseline=base,
        new=new,
        difference=sign * (means[2] - made.value),
        low=low,
        high=high,
        stderr=error,
        p=p,
        n=n,
        units=noise.units if noise else n,
        method="linear interpolation between two checkpoints, normal",
        level=study.level,
        why=None if error else "an error is not known",
        higher_is_better=measure.higher_is_better,
    )
