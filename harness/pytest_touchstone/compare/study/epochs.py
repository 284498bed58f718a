"""Series at equal epochs: where both have a checkpoint, else between two checkpoints of one of them.

A value between two checkpoints is that of the straight line, with the error of both and of the line: what its series
misses the lines through the neighbours of its checkpoints by (``statistics.contrasts``). Two checkpoints do not tell
that, so between them nothing is said. No curve is continued beyond its checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pytest_touchstone.compare.study.bests import Told, told_of
from pytest_touchstone.compare.study.points import Measure, Series
from pytest_touchstone.compare.study.pool import Pool
from pytest_touchstone.statistics.contrasts import Contrast, Weighted, between_weights, interpolation_variance
from pytest_touchstone.statistics.verdicts import holm

SAME_EPOCH: Final = 0.005
"""Epochs that differ by less are one: they are written with two decimals."""

TOO_FEW: Final = "no epoch in common, and two checkpoints do not tell how straight the line between them is"
APART: Final = "their epochs do not overlap"


@dataclass(frozen=True, slots=True)
class Stop:
    """The place of a point in the pool, and its epoch."""

    place: int
    epoch: float


@dataclass(frozen=True, slots=True)
class Line:
    """A series by epoch; ``bend`` is the variance by which it misses its own lines, None where that is not known."""

    series: Series
    stops: tuple[Stop, ...]
    bend: float | None

    def at(self, epoch: float) -> Stop | None:
        """The checkpoint at an epoch, if there is one."""
        return next((one for one in self.stops if abs(one.epoch - epoch) < SAME_EPOCH), None)

    def around(self, epoch: float) -> tuple[Stop, Stop] | None:
        """The checkpoints before and after an epoch; None outside."""
        after = next((number for number, one in enumerate(self.stops) if one.epoch > epoch), 0)
        return (self.stops[after - 1], self.stops[after]) if after else None


def line_of(series: Series, pool: Pool) -> Line:
    """The points of a series by epoch; of several at one epoch the last. None of a series on another axis."""
    found: dict[float, Stop] = {}
    for point in series.points if series.axis == "epoch" else ():
        for place in pool.places([point]):
            if point.epoch is not None:
                found[round(point.epoch, 2)] = Stop(place, point.epoch)
    stops = tuple(sorted(found.values(), key=lambda one: one.epoch))
    places, at = [one.place for one in stops], [one.epoch for one in stops]
    return Line(series, stops, interpolation_variance(pool.means, pool.spread, places, at))


def off_the_line(line: Line, stops: Sequence[Stop], pool: Pool, level: float) -> Contrast | str:
    """The mean difference of checkpoints from the line at their epochs, or the reason why it is not known."""
    if line.bend is None:
        return TOO_FEW
    places, at = [one.place for one in line.stops], [one.epoch for one in line.stops]
    share = 1 / len(stops)
    weights = [Weighted(one.place, share) for one in stops]
    for one in stops:
        weights += [
            Weighted(place, -share * weight) for place, weight in between_weights(places, at, one.epoch) or []
        ]
    return pool.contrast(weights, level=level, extra=line.bend)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEpochs:
    """Two series at equal epochs: the mean difference (second - first) over ``epochs``.

    ``how`` is "common", "interpolated" or "not at all", the last with ``why``.
    """

    first: Series
    second: Series
    how: Literal["common", "interpolated", "not at all"]
    epochs: tuple[float, ...] = ()
    contrast: Contrast | None = None
    why: str = ""
    p: float | None = None
    told: Told = "cannot tell"


def at_equal_epochs(first: Line, second: Line, pool: Pool, level: float) -> AtEpochs:
    """The mean difference of two series at equal epochs."""
    plain = AtEpochs(first=first.series, second=second.series, how="not at all")
    without = next((one.series for one in (first, second) if one.series.axis != "epoch"), None)
    if without is not None:
        return replace(plain, why=f"epochs of {without.name} not known")
    common = [
        (mine, other)
        for mine in first.stops
        for other in second.stops
        if abs(mine.epoch - other.epoch) < SAME_EPOCH
    ]
    if not common:
        return _between(first, second, pool, level, plain)
    share = 1 / len(common)
    weights = [
        one for mine, other in common for one in (Weighted(other.place, share), Weighted(mine.place, -share))
    ]
    epochs = tuple(mine.epoch for mine, _ in common)
    return replace(plain, how="common", epochs=epochs, contrast=pool.contrast(weights, level=level))


def _between(first: Line, second: Line, pool: Pool, level: float, plain: AtEpochs) -> AtEpochs:
    """The mean difference at the second's epochs by the first's line, or the other way round."""
    why = APART
    for line, other in ((first, second), (second, first)):
        inside = [one for one in other.stops if line.around(one.epoch) is not None]
        if not inside:
            continue
        found = off_the_line(line, inside, pool, level)
        if isinstance(found, str):
            why = found
            continue
        contrast = found if line is first else found.opposite
        epochs = tuple(one.epoch for one in inside)
        return replace(plain, how="interpolated", epochs=epochs, contrast=contrast)
    return replace(plain, why=why)


def judged_epochs(found: Sequence[AtEpochs], measure: Measure, alpha: float) -> Iterable[AtEpochs]:
    """The same with verdicts; the differences, which were those of means turned round, as measured."""
    adjusted = holm([one.contrast.p if one.contrast else None for one in found])
    for one, p in zip(found, adjusted, strict=True):
        if one.contrast is None:
            yield one
            continue
        contrast = one.contrast if measure.higher_is_better else one.contrast.opposite
        yield replace(one, contrast=contrast, p=p, told=told_of(one.contrast.value, p, alpha))
