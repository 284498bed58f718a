"""The beginnings of two series, compared at one epoch: that at which the later one begins.

Where both have a checkpoint there, the two are compared. Where the earlier one has checkpoints before and after it, its
value is that between them (``epochs``). Otherwise nothing is compared, and why is said: a first value at epoch 0.5 and
one at 2.5 differ by two epochs of training, whatever else they differ by.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_touchstone.compare.study.differences import difference
from pytest_touchstone.compare.study.epochs import Line, line_of, off_the_line
from pytest_touchstone.compare.study.points import Measure, Point, Series, Study
from pytest_touchstone.compare.study.pool import Pool, pools_of
from pytest_touchstone.core.text import place_text
from pytest_touchstone.statistics.comparison import Comparison, undefined
from pytest_touchstone.statistics.contrasts import Contrast


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
    pool = study.once(pools_of)[measure.key]
    lines = [line_of(one, pool) for one in study.series if len(pool.places(one.points)) > 1]
    for first, second in itertools.combinations(lines, 2):
        yield _start(study, pool, first, second)


def _start(study: Study, pool: Pool, first: Line, second: Line) -> Start:
    def found(
        comparison: Comparison | str, epoch: float | None = None, between: tuple[Point, Point] | None = None
    ) -> Start:
        known = undefined(comparison, level=study.level) if isinstance(comparison, str) else comparison
        return Start(
            measure=pool.measure,
            first=first.series,
            second=second.series,
            epoch=epoch,
            comparison=known,
            between=between,
        )

    lacking = [one.series.name for one in (first, second) if not one.stops]
    if lacking:
        return found(f"the epochs of {' and '.join(lacking)} are not known")
    epoch = max(first.stops[0].epoch, second.stops[0].epoch)
    own, other = (line.at(epoch) for line in (first, second))
    if own is not None and other is not None:
        both = pool.points[own.place], pool.points[other.place]
        return found(difference(study, *both, pool.measure), epoch)
    early, late = (first, second) if first.stops[0].epoch < epoch else (second, first)
    around = early.around(epoch)
    if around is None:
        ends, begins = place_text(early.stops[-1].epoch), place_text(epoch)
        return found(
            f"{early.series.name} ends at epoch {ends}, and {late.series.name} begins at {begins}", epoch
        )
    contrast = off_the_line(early, late.stops[:1], pool, study.level)
    if isinstance(contrast, str):
        return found(contrast, epoch)
    places = [late.stops[0].place, *(one.place for one in around)]
    points = [pool.points[place] for place in places]
    sizes = [value.n for point in points if (value := study.value(point, pool.measure)) is not None]
    made = replace(_between(pool, places, contrast, study.level, turned=early is second), n=min(sizes))
    return found(made, epoch, (points[1], points[2]))


def _between(
    pool: Pool, places: Sequence[int], contrast: Contrast, level: float, *, turned: bool
) -> Comparison:
    """The first of three checkpoints against the value between the others, which it differs from so much, or with
    ``turned`` the other way round; in the measure's own direction."""
    higher = pool.measure.higher_is_better
    sign = 1 if higher else -1
    measured, made = sign * pool.means[places[0]], sign * (pool.means[places[0]] - contrast.value)
    own = contrast if higher != turned else contrast.opposite
    units = min(pool.units[place] for place in places)
    return Comparison(
        baseline=measured if turned else made,
        new=made if turned else measured,
        difference=own.value,
        low=own.low,
        high=own.high,
        stderr=own.stderr,
        p=own.p,
        n=units,
        units=units,
        method="linear interpolation between two checkpoints, t interval",
        level=level,
        why=None if own.stderr else "an error is not known",
        higher_is_better=higher,
    )
