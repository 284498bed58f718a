"""The noise of benchmarks from checkpoint to checkpoint, and which of them can carry a decision.

The signal-to-noise ratio is that of Heineman et al. 2025 (``statistics.signal_noise``), each series standing for one of
their models. Two things can make up a difference between series that is none, and a benchmark can decide where neither
does:

- **checkpoints**: the ratio is no larger than that of equal series;
- **items**: the largest difference, between the means of the last checkpoints of two series, is within the error of
  their items (Bonferroni over all pairs). Checkpoints on the same items share that error, so the ratio does not see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

from pytest_touchstone.compare.study.points import Measure, Series, Study
from pytest_touchstone.compare.study.pool import Pool
from pytest_touchstone.statistics.contrasts import Contrast, Weighted
from pytest_touchstone.statistics.signal_noise import LAST, LEAST, SignalToNoise, signal_to_noise

Verdict = Literal["can decide", "too noisy", "too few items", "no evidence"]

NO_SERIES: Final = "no series has two checkpoints"
ONE_SERIES: Final = "one series with two checkpoints or more: nothing to tell apart"
NO_ERROR: Final = (
    "its series differ by more than their checkpoints do, but nothing is known of the error of its items"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """A measure's noise over the series that have two checkpoints or more.

    ``found`` is None where there is no such series. ``items`` is the error that the items leave a single checkpoint,
    on average. ``largest`` is the difference of the two series that are furthest apart, with ``p`` for all pairs.
    ``why`` is the reason for "no evidence".
    """

    measure: Measure
    series: tuple[Series, ...]
    found: SignalToNoise | None
    items: float | None
    largest: Contrast | None
    p: float | None
    verdict: Verdict
    why: str = ""


def noise(study: Study, pools: Mapping[str, Pool]) -> list[Noise]:
    """The noise of every primary measure, in the study's order."""
    return [_of_measure(study, pools[measure.key]) for measure in study.measures if measure.primary]


def _of_measure(study: Study, pool: Pool) -> Noise:
    places = {series.name: pool.places(series.points) for series in study.series}
    used = [series for series in study.series if len(places[series.name]) >= LEAST]
    lines = [places[one.name] for one in used]
    sign = 1 if pool.measure.higher_is_better else -1
    found = signal_to_noise(
        [[sign * pool.means[place] for place in line] for line in lines], level=study.level
    )
    largest = _largest(pool, [line[-LAST:] for line in lines], study.level)
    p = None if largest is None or largest.p is None else min(1.0, largest.p * math.comb(len(lines), 2))
    verdict, why = _judged(found, p, 1 - study.level)
    return Noise(
        measure=pool.measure,
        series=tuple(used),
        found=found,
        items=_of_items(pool),
        largest=largest,
        p=p,
        verdict=verdict,
        why=why,
    )


def _judged(found: SignalToNoise | None, p: float | None, alpha: float) -> tuple[Verdict, str]:
    if found is None:
        return "no evidence", NO_SERIES
    if found.limit is None:
        return "no evidence", ONE_SERIES
    if not found.tells:
        return "too noisy", ""
    if p is None:
        return "no evidence", NO_ERROR
    return ("can decide" if p <= alpha else "too few items"), ""


def _largest(pool: Pool, tails: Sequence[Sequence[int]], level: float) -> Contrast | None:
    """The difference of the means of the two series that are furthest apart."""
    if len(tails) < 2:
        return None
    means = [math.fsum(pool.means[place] for place in tail) / len(tail) for tail in tails]
    low, high = means.index(min(means)), means.index(max(means))
    if low == high:
        low, high = next(combinations(range(len(tails)), 2))
    weights = [
        Weighted(place, sign / len(tails[one]))
        for sign, one in ((1, high), (-1, low))
        for place in tails[one]
    ]
    return pool.contrast(weights, level=level)


def _of_items(pool: Pool) -> float | None:
    if not all(pool.units) or not pool.points:
        return None
    return math.fsum(math.sqrt(one) for one in pool.spread.diagonal().tolist()) / len(pool.points)
