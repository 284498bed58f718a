"""A baseline that is the best of many runs: the part of its lead that is luck, and a test that allows for it.

The largest of several measured means lies above the truth, the more so the more runs there are and the closer they
lie. So a new run just as good looks worse than "the best", and a plain paired test says so too often.

- **Noise of the means**: jointly normal, with the covariance of all runs' means over the same items (clusters whole),
  so what the runs share by having the same items cancels. Simulating their maximum instead of resampling items is
  the Gaussian multiplier bootstrap (Chernozhukov, Chetverikov and Kato 2013, Annals of Statistics 41).
- **Candidates**: the runs that may be the best, at most c standard errors (of the difference) below the one measured
  best. They are taken as equal, which is the least favourable case; the others stay as far below as they were
  measured. A run far ahead of all others is its only candidate, and nothing changes. The value is shrunk with
  c = sqrt(2 log log n), which finds the right runs in the long run (Hansen 2005, J. Business and Economic Statistics
  23). The test has c = sqrt(2 log n): with few items the smaller one leaves out equal runs so often that its error
  rate is half as large again as it may be. Any c that grows, but slower than sqrt(n), will do (Andrews and Soares
  2010, Econometrica 78).
- **Shrunk value**: the measured best less the expected maximum of that noise.
- **Test that the new run is no worse than the best** (reality check for data snooping: White 2000, Econometrica 68):
  the chance that max over runs of (run - new) is as large as measured when the candidates and the new run are equal.
  It is doubled to be two-sided, and never below the plain paired test's p. A new run that measured higher than the
  best keeps the plain p: beating a lucky maximum is harder, not easier.
- **Interval**: the upper limit is widened to match that test; the lower one stays the one against the best *as
  measured*, so that shrinking makes "not worse" no easier.
- **Composites**: the noise of the runs' composites is the sum, over the benchmarks, of that of their weighted items.
  Metrics of the same items are added up item by item; different benchmarks are independent.

**The best of some runs against the best of others**: each is tested as the best against the other's measured best. One
of the two was measured higher, and only its test allows for luck. The other's choice can only have narrowed the gap,
which makes the test cautious. Its p is the result; each end of the interval is that of the test which allows for it.
A p below what the draws can tell is replaced by Bonferroni's, which many pairs of series need.

**Which of several runs is the best**, with no new run: the one measured best, if it is better than each other one.
That it is not is one of as many possible accidents as there are runs: some run has beaten one that is as good or
better. Each has at most half the chance of a two-sided test, so p is the largest of the paired ones times runs / 2
(Bonferroni; of two runs the plain paired p).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.statistics.comparison import LEVEL, Comparison, undefined
from harness.statistics.composites import Benchmark, Part, compare_composites
from harness.statistics.moments import Clusters
from harness.statistics.paired import SEED, compare_paired

if TYPE_CHECKING:
    import numpy as np


DRAWS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The best of several runs against a new one.

    ``chosen`` is its place among the runs, ``measured`` and ``shrunk`` its value before and after allowing for the
    choice, ``candidates`` the places of all that the test takes as equally good. ``comparison`` is the one to judge
    by: against the shrunk value; ``as_measured`` is the plain one.
    """

    chosen: int
    measured: float
    shrunk: float
    candidates: tuple[int, ...]
    runs: int
    comparison: Comparison
    as_measured: Comparison


def compare_with_best(
    runs: Sequence[Sequence[float]],
    new: Sequence[float],
    clusters: Clusters | None = None,
    *,
    chosen: int | None = None,
    level: float = LEVEL,
    draws: int = DRAWS,
) -> Selection:
    """The new run against the best of ``runs``, all on the same items in the same order.

    ``chosen`` is the run that was chosen by another metric; by default the one with the highest mean, the first of
    equals. What another metric chose is allowed for as if this one had: that bounds its effect. Raises ``ValueError``
    without runs or items, and for unequal lists.
    """
    if not runs or not new:
        raise ValueError("the best of no runs, or of runs without items; give at least one run with items")
    short = next((place for place, run in enumerate(runs) if len(run) != len(new)), None)
    if short is not None:
        raise ValueError(
            f"run {short} has {len(runs[short])} values, the new run {len(new)}; compare the same items"
        )
    means = [math.fsum(run) / len(run) for run in runs]
    best = means.index(max(means)) if chosen is None else chosen
    plain = compare_paired(runs[best], new, clusters, level=level)
    noise = noise_of(runs, new, clusters) if len(runs) > 1 else None
    if noise is None:
        return nothing_chosen(best, means[best], len(runs), plain)
    return select(best, means, plain, noise, draws=draws)


class Noise(NamedTuple):
    """The covariance of the means, the new run's last, and the number of independent units behind it."""

    covariance: np.ndarray
    units: int


def noise_of(
    runs: Sequence[Sequence[float]], new: Sequence[float], clusters: Clusters | None
) -> Noise | None:
    """The noise of the means over the items; None where a single unit leaves no variance to estimate."""
    import numpy as np

    totals = np.asarray([*runs, new], dtype=float)
    n = totals.shape[1]
    means = np.asarray([math.fsum(run) / n for run in (*runs, new)])
    sizes = np.ones(n)
    if clusters is not None and any(one is not None for one in clusters):
        places: dict[Hashable, int] = {}
        codes = [
            places.setdefault(("alone", index) if one is None else ("shared", one), len(places))
            for index, one in enumerate(clusters)
        ]
        totals = np.asarray([np.bincount(codes, weights=row) for row in totals])
        sizes = np.bincount(codes).astype(float)
    units = len(sizes)
    if units < 2:
        return None
    # Sums of products, not of products of distances: of right and wrong answers these are whole numbers,
    # so the order of the items changes nothing.
    weighed = np.outer(means, totals @ sizes)
    products = totals @ totals.T - weighed - weighed.T + np.outer(means, means) * (sizes @ sizes)
    return Noise(products / n**2 * units / (units - 1), units)


def independent_noise(errors: Sequence[float], units: int) -> Noise:
    """The noise of independent runs from the standard errors of their means, the new run's last."""
    import numpy as np

    return Noise(np.diag(np.square(np.asarray(errors, dtype=float))), units)


def nothing_chosen(best: int, mean: float, runs: int, plain: Comparison) -> Selection:
    """The selection where nothing was chosen, or the noise is not known."""
    return Selection(
        chosen=best,
        measured=mean,
        shrunk=mean,
        candidates=(best,),
        runs=runs,
        comparison=plain,
        as_measured=plain,
    )


def select(
    best: int,
    means: Sequence[float],
    plain: Comparison,
    noise: Noise,
    *,
    draws: int = DRAWS,
    sample: np.ndarray | None = None,
) -> Selection:
    """The run at ``best`` against the new one, whose plain comparison is given, allowing for the choice; ``sample``
    are draws of the noise, if there are any yet."""
    import numpy as np

    behind = max(means) - np.asarray(means)
    errors = _errors_to(noise.covariance, means.index(max(means)))
    drawn = sample_of(noise.covariance, draws) if sample is None else sample
    # What all runs share (the items) has mean 0 and only blurs the maximum.
    drawn = drawn - drawn.mean(axis=1, keepdims=True)

    def lead(rival: np.ndarray) -> np.ndarray:
        """The maximum over the runs, above the truth of the candidates."""
        found: np.ndarray = (np.where(rival, 0.0, -behind) + drawn[:, :-1]).max(axis=1)
        return found

    growth = math.log(max(noise.units, 3))
    rival = behind <= math.sqrt(2 * growth) * errors
    optimism = max(0.0, float(lead(behind <= math.sqrt(2 * math.log(growth)) * errors).mean()))
    gaps = lead(rival) - drawn[:, -1]
    candidates = tuple(int(place) for place in np.flatnonzero(rival))
    return Selection(
        chosen=best,
        measured=means[best],
        shrunk=means[best] - optimism,
        candidates=candidates,
        runs=len(means),
        comparison=_allowing(plain, optimism, gaps, f"best of {len(means)}, {len(candidates)} candidates"),
        as_measured=plain,
    )


class Choice(NamedTuple):
    """The best of several runs: its place, its value before and after allowing for the choice, and the places of all
    that may be the best."""

    place: int
    measured: float
    shrunk: float
    candidates: tuple[int, ...]


def best_of(
    means: Sequence[float], noise: Noise, *, draws: int = DRAWS, sample: np.ndarray | None = None
) -> Choice:
    """The best of the runs, with no new one; the noise is that of their means alone, ``sample`` are draws of it, if
    there are any yet."""
    import numpy as np

    best = list(means).index(max(means))
    if len(means) == 1:
        return Choice(best, means[best], means[best], (best,))
    # A new run without noise changes nothing.
    padded = Noise(np.pad(noise.covariance, (0, 1)), noise.units)
    drawn = None if sample is None else np.pad(sample, ((0, 0), (0, 1)))
    found = select(best, means, undefined("no new run"), padded, draws=draws, sample=drawn)
    return Choice(best, found.measured, found.shrunk, found.candidates)


def compare_bests(
    firsts: Sequence[float],
    seconds: Sequence[float],
    plain: Comparison,
    noise: Noise,
    *,
    draws: int = DRAWS,
    sample: np.ndarray | None = None,
) -> Comparison:
    """The best of the second runs against the best of the first ones, allowing for both choices.

    ``plain`` is the comparison of the two measured best. The noise is that of the first runs' means, then the second
    ones'; ``sample`` are draws of it, if there are any yet.
    """
    import numpy as np

    count, (first, second) = len(firsts), (list(one).index(max(one)) for one in (firsts, seconds))

    def against(best: int, runs: Sequence[float], start: int, new: int, known: Comparison) -> Selection:
        if len(runs) == 1:
            return nothing_chosen(best, runs[best], 1, known)
        places = [*range(start, start + len(runs)), new]
        own = Noise(noise.covariance[np.ix_(places, places)], noise.units)
        drawn = None if sample is None else sample[:, places]
        found = select(best, runs, known, own, draws=draws, sample=drawn)
        return replace(found, comparison=_with_small_p(found, runs, own))

    ahead = against(first, firsts, 0, count + second, plain)
    behind = against(second, seconds, count, first, plain.turned)
    upper, lower = ahead.comparison, behind.comparison
    if plain.difference is None:
        return plain
    difference = behind.shrunk - ahead.shrunk
    return replace(
        plain,
        baseline=ahead.shrunk,
        new=behind.shrunk,
        difference=difference,
        low=None if lower.high is None else min(-lower.high, difference),
        high=None if upper.high is None else max(upper.high, difference),
        p=None if upper.p is None or lower.p is None else max(upper.p, lower.p),
        method=f"{plain.method}; shrunk for selection: best of {count} and best of {len(seconds)}",
    )


def _with_small_p(found: Selection, runs: Sequence[float], noise: Noise) -> Comparison:
    """The comparison with a p that draws are too few for: at most the sum, over the runs, of the chances that each
    alone is as far ahead (Bonferroni), and at least the plain one."""
    p, gap = found.comparison.p, found.as_measured.difference
    if p is None or gap is None or gap >= 0 or found.as_measured.p is None:
        return found.comparison
    covariance, new = noise.covariance, len(runs)
    chance = 0.0
    for place, mean in enumerate(runs):
        square = covariance[place, place] + covariance[new, new] - 2 * covariance[place, new]
        behind = 0.0 if place in found.candidates else max(runs) - mean
        if square > 0:
            chance += NormalDist().cdf((gap - behind) / math.sqrt(square))
    return replace(found.comparison, p=max(found.as_measured.p, min(p, 2 * chance)))


def _allowing(plain: Comparison, optimism: float, gaps: np.ndarray, note: str) -> Comparison:
    """The plain comparison with its difference, upper limit and p allowing for the choice."""
    import numpy as np

    if plain.difference is None or plain.baseline is None:
        return plain
    p, high = plain.p, plain.high
    if p is not None and plain.difference < 0:
        extreme = int(np.count_nonzero(gaps >= -plain.difference))
        p = max(p, min(1.0, 2 * (1 + extreme) / (1 + len(gaps))))
    if high is not None:
        high = max(high, plain.difference + float(np.quantile(gaps, (1 + plain.level) / 2)))
    difference = plain.difference + optimism
    return replace(
        plain,
        baseline=plain.baseline - optimism,
        difference=difference,
        high=None if high is None else max(high, difference),
        p=p,
        method=f"{plain.method}; shrunk for selection: {note}",
    )


def _errors_to(covariance: np.ndarray, best: int) -> np.ndarray:
    """The standard errors of the differences between each earlier run and the one measured best."""
    import numpy as np

    variances = np.diag(covariance)[:-1]
    found: np.ndarray = np.sqrt(np.maximum(0.0, variances + variances[best] - 2 * covariance[best, :-1]))
    return found


def sample_of(covariance: np.ndarray, draws: int) -> np.ndarray:
    """Draws of the noise, one row each; any covariance will do, singular ones too."""
    import numpy as np

    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(0.0, values))
    found: np.ndarray = _normals(draws, len(values)) @ root.T
    return found


@functools.lru_cache(maxsize=4)
def _normals(draws: int, count: int) -> np.ndarray:
    """Independent normal numbers, the same ones each time: a study of many series asks for them very often."""
    import numpy as np

    found: np.ndarray = np.random.default_rng(SEED).standard_normal((draws, count))
    found.flags.writeable = False
    return found


def is_told_best(against: Iterable[float | None], runs: int, alpha: float) -> bool:
    """Return whether the run measured best of so many is the best; ``against`` has its paired, two-sided p against each
    other one, None for no test. It is read as far as needed."""
    return all(p is not None and p * runs / 2 <= alpha for p in against)


@dataclass(frozen=True, slots=True)
class RunsOfPart:
    """One metric with its weight: each earlier run's values, and the new run's, on the same items."""

    weight: float
    runs: Sequence[Sequence[float]]
    new: Sequence[float]


@dataclass(frozen=True, slots=True)
class RunsOfBenchmark:
    """The metrics that are computed on the same items, which may share texts."""

    parts: Sequence[RunsOfPart]
    clusters: Clusters | None = None


def compare_composite_with_best(
    benchmarks: Sequence[RunsOfBenchmark], *, level: float = LEVEL, draws: int = DRAWS
) -> Selection:
    """The new run's composite against that of the run whose composite is the highest, the first of equals.

    Raises ``ValueError`` without runs or items, and where metrics have unequal numbers of runs or items.
    """
    parts = [part for one in benchmarks for part in one.parts]
    count = len(parts[0].runs) if parts else 0
    if not count or not all(part.new for part in parts):
        raise ValueError("the best of no runs, or of runs without items; give at least one run with items")
    for part in parts:
        if len(part.runs) != count:
            raise ValueError(f"{count} runs of one metric but {len(part.runs)} of another; give all the same")
        if any(len(run) != len(part.new) for run in part.runs):
            raise ValueError("runs have different numbers of items on one metric; compare the same items")
    means = [
        math.fsum(part.weight * math.fsum(part.runs[run]) / len(part.new) for part in parts)
        for run in range(count)
    ]
    best = means.index(max(means))
    plain = compare_composites(
        [
            Benchmark([Part(part.weight, part.runs[best], part.new) for part in one.parts], one.clusters)
            for one in benchmarks
        ],
        level=level,
    )
    noise = noise_of_composite(benchmarks, count) if count > 1 else None
    if noise is None:
        return nothing_chosen(best, means[best], count, plain)
    return select(best, means, plain, noise, draws=draws)


def noise_of_composite(benchmarks: Sequence[RunsOfBenchmark], count: int) -> Noise | None:
    """The noise of ``count`` runs' composites and the new one's; None as in ``noise_of``."""
    found = []
    for one in benchmarks:
        if not one.parts:
            continue
        runs = [_weighted([(part.weight, part.runs[run]) for part in one.parts]) for run in range(count)]
        new = _weighted([(part.weight, part.new) for part in one.parts])
        noise = noise_of(runs, new, one.clusters)
        if noise is None:
            return None
        found.append(noise)
    return Noise(
        sum(one.covariance for one in found[1:]) + found[0].covariance, min(one.units for one in found)
    )


def _weighted(columns: Sequence[tuple[float, Sequence[float]]]) -> list[float]:
    """Each item's weighted sum over the metrics."""
    return [
        math.fsum(weight * value for (weight, _), value in zip(columns, row, strict=True))
        for row in zip(*(values for _, values in columns), strict=True)
    ]
