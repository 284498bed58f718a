"""Two runs by a corpus-level value such as macro F1: the test and the interval of its difference.

The value is computed anew over items that are drawn by a seeded generator. Items of a cluster go together.

- **Permutation**: each item's records of both runs are exchanged by a toss, and the difference of the two values is
  taken again. The share of tosses that make it as large as measured is exact where both runs answer alike (Fisher
  1935; p = (1 + as extreme) / (1 + tosses), Phipson and Smyth 2010). Where none is as extreme, the normal distribution
  with the tosses' variance tells p, if that is smaller.
- **Bootstrap**: items are drawn with replacement, the same ones for all runs (Efron 1979, Annals of Statistics 7). The
  standard error of the difference gives a t test and interval, with no more degrees of freedom than there are draws.
  These hold where two runs have one value and err in different ways, for which the permutation is too narrow.
- **p** is the larger of the two, so that it holds in either case, and where it is small the interval leaves out 0.
- **Two items more**: a value within [0, 1] that varies as a share of m right items would, m = v (1 - v) / variance, is
  moved by 1 / m by an item. As in ``paired`` the variance for test and interval has two such items more, 2 / (m + 2)^2,
  with the smaller m of both runs. An item of a small class counts for many by that.

``simulations.aggregates`` has the rates of error. The covariance of several runs' values is that of the bootstrap, so
the best of several is allowed for as with means (``best_of_many``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.statistics.best_of_many import BestOfMany, nothing_chosen, select
from pytest_touchstone.statistics.comparison import LEVEL, Comparison, undefined
from pytest_touchstone.statistics.contrasts import MeanCovariance
from pytest_touchstone.statistics.intervals import Clusters, Estimate, t_quantile
from pytest_touchstone.statistics.paired import SEED

if TYPE_CHECKING:
    import numpy as np

Statistic: TypeAlias = "Callable[[Sequence[Any], Clusters | None, np.ndarray], np.ndarray]"
"""Records (n), their clusters, and counts (draws x n), how often each draw has each record -> a value per draw, NaN
where it is undefined."""

_CHUNK: Final = 2_000_000  # counts at a time
_TOLERANCE: Final = 1e-9


def compare_resampled(
    runs: Sequence[Sequence[Any]],
    new: Sequence[Any],
    clusters: Clusters | None,
    draws: Draws,
    *,
    higher: bool = True,
    chosen: int | None = None,
    level: float = LEVEL,
) -> BestOfMany | None:
    """Compare a new run with the best of ``runs`` by a statistic of records of the same items.

    ``chosen`` and ``level`` are as in ``best_of_many.compare_with_best``. Where lower is better all values have the
    other sign. None where a run has no value; there is neither test nor interval where drawn items give none, or all
    items are one cluster.
    """
    import numpy as np

    kinds = _kinds([*runs, new], clusters)
    units = int(kinds.sizes.sum())
    sign = 1 if higher else -1
    values = [
        sign * float(kinds.of(draws.statistic, run, kinds.sizes[None])[0]) for run in range(len(runs) + 1)
    ]
    if not all(map(math.isfinite, values)):
        return None
    best = values.index(max(values[:-1])) if chosen is None else chosen
    totals = replace(
        undefined("all items are one cluster: no test of a difference", n=len(new), level=level),
        baseline=values[best],
        new=values[-1],
        difference=values[-1] - values[best],
        units=units,
    )
    if units < 2:
        return nothing_chosen(best, len(runs), totals)
    generator = np.random.default_rng(SEED)
    again = (draws.tosses + 1) // 2
    covariance = np.cov(_drawn(kinds, draws.statistic, again, generator))
    tossed = _tossed(_kinds([runs[best], new], clusters), draws, generator)
    if not (np.isfinite(covariance).all() and np.isfinite(tossed).all()):
        totals = replace(totals, why="some drawn items have no such value: no test of a difference")
        return nothing_chosen(best, len(runs), totals)
    plain = _tested(totals, covariance[np.ix_([best, -1], [best, -1])], tossed, min(units, again) - 1)
    if len(runs) == 1:
        return nothing_chosen(best, 1, plain)
    return select(best, values[:-1], plain, MeanCovariance(covariance, units))


class Draws(NamedTuple):
    """A statistic and the number of its tosses; the bootstrap has half as many draws."""

    statistic: Statistic
    tosses: int = 1_999


def resampled_estimate(
    value: float, values: Sequence[Any], clusters: Clusters | None, draws: Draws, *, method: str
) -> Estimate:
    """Return a statistic's value with its bootstrap error and percentile interval (Efron 1979).

    The limits are values of drawn items, so they stay within the statistic's range. Where drawn items give no value
    there is neither.
    """
    import numpy as np

    kinds = _kinds([values], clusters)
    units = int(kinds.sizes.sum())
    drawn = (
        _drawn(kinds, draws.statistic, draws.tosses, np.random.default_rng(SEED))[0]
        if units > 1
        else np.array([math.nan])
    )
    if not np.isfinite(drawn).all():
        return Estimate(value, None, None, None, method, "some drawn items have no such value: no interval")
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    error = float(drawn.std(ddof=1))
    return Estimate(value, min(low, value), max(high, value), error, f"bootstrap ({draws.tosses} draws)")


def of_each_draw(function: Callable[[Sequence[Any], Sequence[str | None] | None], Any], items: int) -> Draws:
    """Wrap a function of values and clusters that is called for each draw.

    The more items, the fewer draws: the function sees about a million values, and at least 199 draws.

    A cluster that is drawn twice is two clusters. The function may return an ``Estimate``; where it fails, or gives no
    finite number, the draw has no value.
    """

    def value(records: Sequence[Any], clusters: Clusters | None, counts: np.ndarray) -> float:
        import numpy as np

        indices = np.repeat(np.arange(len(records)), counts.astype(int)).tolist()
        try:
            statistic = function(
                [records[index] for index in indices], None if clusters is None else _apart(clusters, indices)
            )
            return float(getattr(statistic, "value", statistic))
        except Exception:  # somebody's code
            return math.nan

    def values(records: Sequence[Any], clusters: Clusters | None, counts: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.array([value(records, clusters, row) for row in counts])

    return Draws(values, max(199, min(1_999, 1_000_000 // max(1, items))))


def _apart(clusters: Clusters, indices: Sequence[int]) -> list[str | None]:
    """Return the cluster names of drawn items; a cluster that is drawn again gets a new name."""
    seen = Counter[int]()
    names: list[str | None] = []
    for index in indices:
        names.append(None if clusters[index] is None else f"{seen[index]} {clusters[index]}")
        seen[index] += 1
    return names


class _UnitKinds(NamedTuple):
    """The units (items, or clusters) that have the same records in all runs, as one kind each.

    ``sizes`` counts the units of each. ``records`` are those of one unit of each kind, a list per run; ``clusters`` and
    ``kind`` are of the items of these.
    """

    sizes: np.ndarray
    records: list[list[Any]]
    clusters: Clusters | None
    kind: list[int]

    def of(self, statistic: Statistic, run: int, counts: np.ndarray) -> np.ndarray:
        """Return the statistic of a run in each draw, with ``counts`` units of each kind."""
        return statistic(self.records[run], self.clusters, counts[:, self.kind])

    def of_both(self, statistic: Statistic, counts: np.ndarray) -> np.ndarray:
        """Return the statistic of ``counts`` units from the first run and the rest of each kind from the last."""
        import numpy as np

        others = [None if cluster is None else f"{cluster}, other run" for cluster in self.clusters or ()]
        both = None if self.clusters is None else [*self.clusters, *others]
        rest = (self.sizes - counts)[:, self.kind]
        return statistic([*self.records[0], *self.records[-1]], both, np.hstack((counts[:, self.kind], rest)))


def _kinds(runs: Sequence[Sequence[Any]], clusters: Clusters | None) -> _UnitKinds:
    import numpy as np

    units: dict[Any, list[int]] = {}
    for index in range(len(runs[0])):
        shared = None if clusters is None else clusters[index]
        units.setdefault(index if shared is None else (shared,), []).append(index)
    by_kind: dict[Any, list[list[int]]] = {}
    for indices in units.values():
        records = tuple(tuple(run[index] for index in indices) for run in runs)
        by_kind.setdefault(records, []).append(indices)
    kept = [(kind, index) for kind, group in enumerate(by_kind.values()) for index in group[0]]
    return _UnitKinds(
        np.array([len(group) for group in by_kind.values()], dtype=float),
        [[run[index] for _, index in kept] for run in runs],
        None if clusters is None else [clusters[index] for _, index in kept],
        [kind for kind, _ in kept],
    )


def _drawn(kinds: _UnitKinds, statistic: Statistic, draws: int, generator: np.random.Generator) -> np.ndarray:
    """Return the values of all runs, a row each, over items drawn with replacement."""
    import numpy as np

    units = int(kinds.sizes.sum())
    chunks = []
    for size in _chunks(draws, len(kinds.kind)):
        counts = generator.multinomial(units, kinds.sizes / units, size=size).astype(float)
        chunks.append([kinds.of(statistic, run, counts) for run in range(len(kinds.records))])
    return np.concatenate(chunks, axis=1)


def _tossed(kinds: _UnitKinds, draws: Draws, generator: np.random.Generator) -> np.ndarray:
    """Return the differences of two runs after a toss exchanges the records of each unit."""
    import numpy as np

    chunks = []
    for size in _chunks(draws.tosses, 2 * len(kinds.kind)):
        kept = generator.binomial(kinds.sizes.astype(int), 0.5, (size, len(kinds.sizes))).astype(float)
        first, second = (kinds.of_both(draws.statistic, counts) for counts in (kept, kinds.sizes - kept))
        chunks.append(first - second)
    return np.concatenate(chunks)


def _chunks(draws: int, width: int) -> list[int]:
    """Return the sizes of the chunks in which draws of this width fit into memory."""
    most = max(1, _CHUNK // width)
    return [min(most, draws - start) for start in range(0, draws, most)]


def _tested(comparison: Comparison, covariance: np.ndarray, tossed: np.ndarray, freedom: int) -> Comparison:
    """Return the comparison with its test and interval, from the covariance and the tossed differences."""
    import numpy as np
    from scipy.special import stdtr

    assert comparison.difference is not None
    difference = comparison.difference
    gap = abs(difference)
    variance = max(0.0, float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]))
    extreme = int(np.count_nonzero(np.abs(tossed) >= gap - _TOLERANCE))
    p = (1 + extreme) / (1 + len(tossed))
    if not extreme:
        p = min(p, 2 * NormalDist().cdf(-gap / float(tossed.std())))
    more = variance + _two_items(comparison, np.diag(covariance).tolist())
    method = f"permutation ({len(tossed)} draws) and bootstrap of the value"
    comparison = replace(comparison, why="", stderr=math.sqrt(more), method=method)
    if not more:
        return replace(comparison, p=p, why="no drawn items differ: no interval")
    half = t_quantile(freedom, comparison.level) * math.sqrt(more)
    return replace(
        comparison,
        low=difference - half,
        high=difference + half,
        p=max(p, min(1.0, 2 * float(stdtr(freedom, -gap / math.sqrt(more))))),
    )


def _two_items(comparison: Comparison, variances: Sequence[float]) -> float:
    """Return the variance that two further items add; 0 if the values are not in [0, 1], or constant."""
    shares = [abs(value) for value in (comparison.baseline, comparison.new) if value is not None]
    if not all(value <= 1 for value in shares):
        return 0.0
    sizes = [
        value * (1 - value) / variance
        for value, variance in zip(shares, variances, strict=True)
        if variance > 0 and value < 1
    ]
    return 2 / (min([*sizes, comparison.units]) + 2) ** 2 if sizes else 0.0
