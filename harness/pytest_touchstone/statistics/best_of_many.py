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
- **Interval of the best**: its own interval, with the lower limit so much lower as the maximum of that noise reaches
  higher than the noise of one run. Whichever is chosen, its noise is no more than the maximum, and measured best it is
  no less than its own: so each limit errs as seldom as that of a run that was not chosen. (The projection of Andrews,
  Kitagawa and McCloskey 2024, Quarterly J. of Economics 139, "Inference on Winners", on one side and over the
  candidates alone. Their hybrid of conditional inference was tried: with 100 to 400 right or wrong items its interval
  held the truth in 73 to 94 % of 300 cases, and its estimate of equal runs' best erred twice as far.)
- **Test that the new run is no worse than the best** (reality check for data snooping: White 2000, Econometrica 68):
  the chance that max over runs of (run - new) is as large as measured when the candidates and the new run are equal.
  It is doubled to be two-sided, and never below the plain paired test's p. A new run that measured higher than the
  best keeps the plain p: beating a lucky maximum is harder, not easier. Draws show no chance below one in their
  number, which the correction for many tests needs. So p is at most the sum of the chances that each run alone is as
  far ahead (Bonferroni), which is nearly exact where they are small.
- **Interval**: the upper limit is widened to match that test; the lower one stays the one against the best *as
  measured*, so that shrinking makes "not worse" no easier.
- **Chosen by more items**: the run that is best over several benchmarks is chosen by these items in part. In each draw
  the noise of its mean on these items is that of the run which is ahead over all of them.
- **Composites**: the noise of the runs' composites is the sum, over the benchmarks, of that of their weighted items.
  Metrics of the same items are added up item by item; different benchmarks are independent.

**Which of several runs is the best**, with no new run: the one measured best, if it is better than each other one.
That it is not is one of as many possible accidents as there are runs: some run has beaten one that is as good or
better. Each has at most half the chance of a two-sided test, so p is the largest of the paired ones times runs / 2
(Bonferroni; of two runs the plain paired p).

The best of some runs against the best of others, for every two of several groups.

Each is tested as the best against the other's measured best (``best_of_many``). One of the two was measured higher, and
only its test allows for luck. The other's choice can only have narrowed the gap, which makes the test cautious. Its p
is the result; each end of the interval is that of the test which allows for it.

Draws of all runs' noise are made once, and what they say of a group serves all its comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_touchstone.statistics.comparison import LEVEL, Comparison
from pytest_touchstone.statistics.composites import SharedItems, WeightedPart, compare_composites
from pytest_touchstone.statistics.contrasts import (
    MeanCovariance,
    NoiseDraws,
    covariance_of_means,
    noise_of_sum,
    sample_of,
)
from pytest_touchstone.statistics.curves import CURVE_DRAWS
from pytest_touchstone.statistics.intervals import Clusters
from pytest_touchstone.statistics.paired import compare_paired

if TYPE_CHECKING:
    import numpy as np


DRAWS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfMany:
    """The best of several runs against a new one.

    ``chosen`` is its place among the runs, ``candidates`` the places of all that the test takes as equally good.
    ``comparison`` is the one to judge by: against the value after allowing for the choice; ``as_measured`` is the plain
    one.
    """

    chosen: int
    candidates: tuple[int, ...]
    runs: int
    comparison: Comparison
    as_measured: Comparison


class PooledChoice(NamedTuple):
    """A run that was chosen by its mean over several benchmarks, with the means of all runs over these ``items``.

    ``noise`` is that of these means, None where it is not known.
    """

    place: int
    means: Sequence[float]
    noise: MeanCovariance | None
    items: int


def choose_over_all(benchmarks: Sequence[tuple[Sequence[Sequence[float]], Clusters | None]]) -> PooledChoice:
    """Choose the best run over all items of several benchmarks, the first of equals.

    A benchmark is given by the scores of each run on its items, and the clusters of these.
    """
    sizes = [len(runs[0]) for runs, _ in benchmarks]
    items, count = sum(sizes), len(benchmarks[0][0])
    means = [
        math.fsum(math.fsum(runs[run]) for runs, _ in benchmarks) / max(1, items) for run in range(count)
    ]
    components = [
        SharedItems([WeightedPart(size / items, runs[:-1], runs[-1])], clusters)
        for size, (runs, clusters) in zip(sizes, benchmarks, strict=True)
        if size
    ]
    noise = noise_of_composite(components, count - 1) if count > 1 and components else None
    return PooledChoice(means.index(max(means)), means, noise, items)


def compare_with_best(
    runs: Sequence[Sequence[float]],
    new: Sequence[float],
    clusters: Clusters | None = None,
    *,
    chosen: int | PooledChoice | None = None,
    level: float = LEVEL,
    draws: int = DRAWS,
) -> BestOfMany:
    """Compare the new run with the best of ``runs``, all on the same items in the same order.

    ``chosen`` is the run that was chosen by more items than these, or by another metric; by default the one with the
    highest mean, the first of equals. What another metric chose is allowed for as if this one had: that bounds its
    effect.
    """
    means = [math.fsum(run) / len(run) for run in runs]
    given = chosen.place if isinstance(chosen, PooledChoice) else chosen
    best = means.index(max(means)) if given is None else given
    plain = compare_paired(runs[best], new, clusters, level=level)
    noise = covariance_of_means(runs, new, clusters) if len(runs) > 1 else None
    if noise is None:
        return nothing_chosen(best, len(runs), plain)
    choice = chosen if isinstance(chosen, PooledChoice) else None
    return select(best, means, plain, noise, choice=choice, draws=draws)


def nothing_chosen(best: int, runs: int, plain: Comparison) -> BestOfMany:
    """Return a selection without a correction: nothing was chosen, or the noise is unknown."""
    return BestOfMany(
        chosen=best,
        candidates=(best,),
        runs=runs,
        comparison=plain,
        as_measured=plain,
    )


def select(
    best: int,
    means: Sequence[float],
    plain: Comparison,
    noise: MeanCovariance,
    *,
    choice: PooledChoice | None = None,
    draws: int = DRAWS,
    sample: NoiseDraws | None = None,
) -> BestOfMany:
    """Compare the run at ``best`` with the new one, whose plain comparison is given, allowing for the choice.

    ``choice`` says how it was chosen, where these items alone did not decide that; ``sample`` are draws of the noise,
    if there are any yet.
    """
    import numpy as np

    new = len(means)
    covariance = noise.covariance
    if choice is None or choice.noise is None:
        drawn = (sample or sample_of(covariance, draws)).values
        runs = CandidateRuns(means, MeanCovariance(covariance[:new, :new], noise.units), drawn[:new])
    else:
        # The other items that chose are independent of these, which have this weight among them.
        weight = plain.n / choice.items
        joint = np.zeros((2 * new + 1, 2 * new + 1))
        joint[: new + 1, : new + 1] = covariance
        joint[new + 1 :, new + 1 :] = choice.noise.covariance - weight**2 * covariance[:new, :new]
        drawn = sample_of(joint, draws).values
        ahead = weight * drawn[:new] + drawn[new + 1 :]
        runs = CandidateRuns(choice.means, choice.noise, ahead, drawn[:new])
    squares = np.diag(covariance)[:new] + covariance[new, new] - 2 * covariance[new, :new]
    return BestOfMany(
        chosen=best,
        candidates=runs.candidates,
        runs=new,
        comparison=runs.against(plain, drawn[new], squares),
        as_measured=plain,
    )


class CandidateRuns:
    """Several runs whose best is compared with others, and their noise for these comparisons.

    ``means``, ``noise`` and the ``drawn`` noise are those by which the best is chosen. ``compared`` is the drawn noise
    of the means that are compared, where these are others. ``candidates`` are the places of those that may be the best.
    ``leads`` has, for each draw, the noise of the run that is ahead, above the truth of the candidates.
    """

    def __init__(
        self,
        means: Sequence[float],
        noise: MeanCovariance,
        drawn: np.ndarray,
        compared: np.ndarray | None = None,
    ) -> None:
        import numpy as np

        best = list(means).index(max(means))
        self.count = len(means)
        self._variances = np.diag(noise.covariance)
        errors = np.sqrt(np.maximum(0.0, self.squares_to(noise.covariance[best], self._variances[best])))
        behind = max(means) - np.asarray(means)
        growth = math.log(max(noise.units, 3))
        near, rival = (behind <= math.sqrt(2 * size) * errors for size in (math.log(growth), growth))
        self.candidates = tuple(np.flatnonzero(rival).tolist())
        # What is compared bounds nothing by how far a run is behind in what chose it.
        self._behind = np.where(rival, 0.0, behind) if compared is None else np.zeros(len(behind))
        self.leads, highest = (
            _noise_ahead(drawn - np.where(equal, 0.0, behind)[:, None], compared) for equal in (rival, near)
        )
        self._own: np.ndarray = drawn[best]
        self._highest = float(highest.mean())
        self._shared = float((drawn if compared is None else compared).mean(axis=1).sum())

    def squares_to(self, covariances: np.ndarray, variance: float) -> np.ndarray:
        """Return the variances of the differences between each run and another with these covariances."""
        squares: np.ndarray = self._variances + variance - 2 * covariances
        return squares

    def luck(self, rival: float = 0.0) -> float:
        """Return the selection bias: the part of the measured maximum that is due to chance.

        What all runs and their ``rival`` share (the items) has mean 0 and only blurs the maximum of the draws, so its
        mean there is taken off; ``rival`` is the mean of the rival's own draws.
        """
        return max(0.0, self._highest - (self._shared + rival) / (self.count + 1))

    def depth(self, level: float = LEVEL) -> float:
        """Return by how much choosing the best lowers the lower limit of its interval."""
        import numpy as np

        lead, own_quantile = (float(np.quantile(noise, (1 + level) / 2)) for noise in (self.leads, self._own))
        return lead - own_quantile

    def against(self, plain: Comparison, drawn: np.ndarray, squares: np.ndarray) -> Comparison:
        """Compare a rival with the best; difference, upper limit and p are corrected for the choice.

        ``drawn`` are draws of the rival's noise, ``squares`` the variances of its differences from the runs.
        """
        import numpy as np

        if plain.difference is None or plain.baseline is None:
            return plain
        luck, p, high = self.luck(float(drawn.mean())), plain.p, plain.high
        if p is not None and plain.difference < 0:
            p = max(p, self._chance(drawn, squares, -plain.difference))
        if high is not None:  # the most that luck alone puts a lead above the rival
            reach = float(np.quantile(self.leads - drawn, (1 + plain.level) / 2))
            high = max(high, plain.difference + reach)
        difference = plain.difference + luck
        return replace(
            plain,
            baseline=plain.baseline - luck,
            difference=difference,
            high=None if high is None else max(high, difference),
            p=p,
            method=f"{plain.method}; shrunk for selection: best of {self.count}, {len(self.candidates)} candidates",
        )

    def _chance(self, drawn: np.ndarray, squares: np.ndarray, gap: float) -> float:
        """Return twice the chance that the maximum lies this far above its rival.

        It is counted in the draws; where these are too few, it is at most the sum of the chances of the single runs
        (Bonferroni).
        """
        import numpy as np
        from scipy.special import ndtr

        varying = squares > 0
        alone = ndtr(-(gap + self._behind[varying]) / np.sqrt(squares[varying])).sum()
        extreme = int(np.count_nonzero(self.leads - drawn >= gap))
        return min(1.0, 2 * float(alone), 2 * (1 + extreme) / (1 + len(self.leads)))


def _noise_ahead(leads: np.ndarray, compared: np.ndarray | None) -> np.ndarray:
    """Return for each draw the lead of the run that is ahead, or its noise on what is compared."""
    import numpy as np

    if compared is None:
        highest: np.ndarray = leads.max(axis=0)
        return highest
    noise: np.ndarray = np.take_along_axis(compared, leads.argmax(axis=0)[None], axis=0)[0]
    return noise


class BestChoice(NamedTuple):
    """The best of several runs, before and after allowing for the choice.

    It has its place, its values, and the places of all that may be the best. ``depth`` is by how much the lower limit
    of its interval is lowered for the choice.
    """

    place: int
    measured: float
    shrunk: float
    candidates: tuple[int, ...]
    depth: float = 0.0


def best_of(
    means: Sequence[float], noise: MeanCovariance, *, level: float = LEVEL, draws: int = DRAWS
) -> BestChoice:
    """Return the best of several runs, without a new one; ``noise`` is that of their means."""
    best = list(means).index(max(means))
    if len(means) == 1:
        return BestChoice(best, means[best], means[best], (best,))
    runs = CandidateRuns(means, noise, sample_of(noise.covariance, draws).values)
    return BestChoice(best, means[best], means[best] - runs.luck(), runs.candidates, runs.depth(level))


def is_told_best(against: Iterable[float | None], runs: int, alpha: float) -> bool:
    """Return whether the run measured best of ``runs`` is the best.

    ``against`` has its paired, two-sided p against each other run, None for no test. It is read as far as needed.
    """
    return all(p is not None and corrected_for_choice(p, runs) <= alpha for p in against)


def corrected_for_choice(p: float, runs: int) -> float:
    """Correct a paired p of the run measured best against another for the choice among several."""
    return min(1.0, p * runs / 2)


def compare_composite_with_best(
    benchmarks: Sequence[SharedItems],
    *,
    chosen: int | None = None,
    level: float = LEVEL,
    draws: int = DRAWS,
) -> BestOfMany:
    """Compare the new run's composite with the highest of the runs', or with the ``chosen`` run's."""
    metrics = [metric for benchmark in benchmarks for metric in benchmark.parts]
    count = len(metrics[0].runs)
    means = [
        math.fsum(metric.weight * math.fsum(metric.runs[run]) / len(metric.new) for metric in metrics)
        for run in range(count)
    ]
    best = means.index(max(means)) if chosen is None else chosen
    plain = compare_composites(benchmarks, best, level=level)
    noise = noise_of_composite(benchmarks, count) if count > 1 else None
    if noise is None:
        return nothing_chosen(best, count, plain)
    return select(best, means, plain, noise, draws=draws)


def noise_of_composite(benchmarks: Sequence[SharedItems], count: int) -> MeanCovariance | None:
    """Return the noise of the composites of ``count`` runs and the new one; None as in ``covariance_of_means``."""
    covariances = []
    for benchmark in benchmarks:
        if not benchmark.parts:
            continue
        runs = [
            _weighted([(metric.weight, metric.runs[run]) for metric in benchmark.parts])
            for run in range(count)
        ]
        new = _weighted([(metric.weight, metric.new) for metric in benchmark.parts])
        noise = covariance_of_means(runs, new, benchmark.clusters)
        if noise is None:
            return None
        covariances.append(noise)
    return noise_of_sum(covariances)


def _weighted(columns: Sequence[tuple[float, Sequence[float]]]) -> list[float]:
    """Return the weighted sum of the metrics for each item."""
    if len(columns) == 1:
        [(weight, values)] = columns
        return [weight * value for value in values]
    return [
        math.fsum(weight * value for (weight, _), value in zip(columns, row, strict=True))
        for row in zip(*(values for _, values in columns), strict=True)
    ]


# The bests of several groups


class GroupedBests:
    """Groups of runs, by the indices of their means; every two groups can be compared.

    ``places`` are those of their bests. ``units`` counts the independent items behind each mean.
    """

    def __init__(
        self,
        means: Sequence[float],
        covariance: np.ndarray,
        units: Sequence[int],
        groups: Sequence[Sequence[int]],
        *,
        draws: int = CURVE_DRAWS,
    ) -> None:
        import numpy as np

        self.places = [max(group, key=means.__getitem__) for group in groups]
        used = sorted({index for group in groups for index in group})
        rows = {index: row for row, index in enumerate(used)}
        self._groups = [[rows[index] for index in group] for group in groups]
        self._best = [rows[index] for index in self.places]
        self._means = [means[index] for index in used]
        self._units = [min(units[index] for index in group) for group in groups]
        self._covariance = covariance[np.ix_(used, used)]
        self._draws = sample_of(self._covariance, draws).values
        self._known: dict[tuple[int, int], CandidateRuns] = {}

    def luck(self, group: int) -> float | None:
        """Return the selection bias of a group's measured best; None if its noise is unknown."""
        if self._units[group] < 2:
            return None
        return self._runs(group, self._units[group]).luck() if len(self._groups[group]) > 1 else 0.0

    def compare(self, first: int, second: int, plain: Comparison) -> Comparison:
        """Compare the best of the second group with the best of the first, corrected for both choices.

        ``plain`` is their comparison without a correction; it is returned if the noise is unknown.
        """
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
        runs, new = self._runs(group, units), self._best[other]
        squares = runs.squares_to(self._covariance[self._groups[group], new], self._covariance[new, new])
        return runs.against(plain, self._draws[new], squares)

    def _runs(self, group: int, units: int) -> CandidateRuns:
        """Return the runs of a group with ``units`` independent items, which may be those of the other group."""
        import numpy as np

        if (group, units) not in self._known:
            rows = self._groups[group]
            noise = MeanCovariance(self._covariance[np.ix_(rows, rows)], units)
            runs = CandidateRuns([self._means[row] for row in rows], noise, self._draws[rows])
            self._known[group, units] = runs
        return self._known[group, units]
