"""How far each measure can stand in for accuracy, over comparisons of checkpoints on the same items.

A comparison is of a checkpoint with the start, or with the one before it in its series. z is the mean of the paired
differences over its standard error. A comparison is *decided* where z of accuracy on all items is beyond 1.96, and a
measure *parts* from accuracy where both are, with opposite signs. The items that a measure needs for 80 % power
at a two-sided level of 5 % are (1.96 + 0.84)^2 sd^2 / mean^2 (normal approximation, as in Cohen 1988, section 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from perf.series_parts.items import TEMPERATURES, Answers, Numbers
from perf.series_parts.recipes import START

Scored = Mapping[str, Mapping[str, Mapping[int, Answers]]]
"""Answers by benchmark, series and number, as ``items.read`` returns them."""

Z: Final = 1.96
POWER: Final = 0.84
SPLITS: Final = 500
SUBSETS: Final = (50, 100, 200, 400)
PLAIN: Final = ("soft", "log_odds", "logprob_margin", "bits_per_byte")


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure's name, and the temperature of ``p_right``."""

    name: str
    temperature: float = 1.0

    def __str__(self) -> str:
        return f"{self.name} at {self.temperature:g}" if self.name == "p_right" else self.name


ACCURACY: Final = Measure("accuracy")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two checkpoints on the same items of a benchmark; ``before`` is None for the start."""

    benchmark: str
    series: str
    before: int | None
    number: int
    old: Answers
    new: Answers

    def differences(self, measure: Measure) -> Numbers:
        """Return the measure's change, item by item; more is better."""
        new = self.new.measure(measure.name, measure.temperature)
        return new - self.old.measure(measure.name, measure.temperature)

    def __str__(self) -> str:
        against = START if self.before is None else f"{self.series} {self.before}"
        return f"{self.benchmark}: {self.series} {self.number} against {against}"


def comparisons(scored: Scored) -> Iterator[Comparison]:
    """Yield every checkpoint against the start, and against the one before it in its series, on the items that both
    have answered."""
    for benchmark, by_series in scored.items():
        start = by_series[START][0]
        for series, found in by_series.items():
            if series == START:
                continue
            numbers = [number for name, number in finished(by_series) if name == series]
            numbers.sort(reverse=series == "rounded")
            for before, number in zip([None, *numbers], numbers, strict=False):
                yield Comparison(benchmark, series, None, number, *_paired(start, found[number]))
                if before is not None:
                    old, new = _paired(found[before], found[number])
                    yield Comparison(benchmark, series, before, number, old, new)


def finished(by_series: Mapping[str, Mapping[int, Answers]]) -> list[tuple[str, int]]:
    """Return the series and numbers of the checkpoints with at least a quarter of the items of the start."""
    least = len(by_series[START][0].names) / 4
    return [
        (series, number)
        for series, found in by_series.items()
        for number, answers in found.items()
        if len(answers.names) >= least
    ]


def _paired(*several: Answers) -> list[Answers]:
    """Return each one's answers to the items that all have answered."""
    shared = set.intersection(*(set(one.names) for one in several))
    return [one.only(shared) for one in several]


def z_of(differences: Numbers) -> float:
    """Return z of the differences; 0 where none differs."""
    spread = differences.std(ddof=1)
    return float(differences.mean() / spread * math.sqrt(len(differences))) if spread > 0 else 0.0


def items_needed(differences: Numbers) -> float:
    """Return the items for 80 % power; infinity where the mean does not differ."""
    mean = differences.mean()
    return float((Z + POWER) ** 2 * differences.var(ddof=1) / mean**2) if mean else math.inf


# The temperature


def slope(mean_x: Numbers, mean_y: Numbers, covariances: Numbers) -> float:
    """Return the b of y = b x, through the origin, where both have errors that go together.

    It makes the sum of (y - b x)^2 / (var y - 2 b cov + b^2 var x) least, which is the maximum of likelihood for known
    normal errors (York et al. 2004, for a line through the origin), looked for on steps of 0.01 from 0 to 4.
    ``covariances`` has (var x, cov, var y) for each comparison.
    """
    steps = np.arange(0.0, 4.005, 0.01)[:, None]
    var_x, both, var_y = covariances.T
    error = var_y - 2 * steps * both + steps**2 * var_x
    distance = ((mean_y - steps * mean_x) ** 2 / np.maximum(error, 1e-12)).sum(axis=1)
    return float(steps[int(distance.argmin()), 0])


def _on_the_same_items(found: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons in which the verdict on any item differs, on the items that all of them have."""
    answers = _paired(*(one.old for one in found), *(one.new for one in found))
    pairs = zip(answers[: len(found)], answers[len(found) :], strict=True)
    kept = [replace(one, old=old, new=new) for one, (old, new) in zip(found, pairs, strict=True)]
    return [one for one in kept if one.differences(ACCURACY).any()]


@dataclass(frozen=True, slots=True)
class Slope:
    """The slope of the change of ``p_right`` over that of accuracy at a temperature, and the slopes of each series
    alone."""

    temperature: float
    slope: float
    drawn: Sequence[float]
    """Its value in each draw of the items."""
    series: Mapping[str, float]
    efficiency: float
    """The items that accuracy needs, as a multiple of those that ``p_right`` needs: over all comparisons with the start
    the sum of z^2 - 1, which by chance alone is 0, over that of accuracy (undefined where that is below 1
    a comparison). Large losses count most."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval: percentiles of the draws."""
        low, high = np.percentile(self.drawn, (2.5, 97.5))
        return float(low), float(high)


def slopes(benchmark: Sequence[Comparison], draws: int = 200, seed: int = 1) -> list[Slope]:
    """Return the slope at each temperature from a benchmark's comparisons with the start, all on the same items.

    The draws are those of the bootstrap over items, the same items for all comparisons.
    """
    found = _on_the_same_items([one for one in benchmark if one.before is None])
    x = np.stack([one.differences(ACCURACY) for one in found])
    count = x.shape[1]
    draw = np.random.default_rng(seed)
    weights = draw.multinomial(count, [1 / count] * count, size=draws) / count
    weights = np.vstack([np.full(count, 1 / count), weights])
    accuracy = sum(z_of(one) ** 2 - 1 for one in x)
    result = []
    for temperature in TEMPERATURES:
        y = np.stack([one.differences(Measure("p_right", temperature)) for one in found])
        mean_x, mean_y = weights @ x.T, weights @ y.T
        terms = [
            weights @ (a * b).T - c * d
            for a, b, c, d in ((x, x, mean_x, mean_x), (x, y, mean_x, mean_y), (y, y, mean_y, mean_y))
        ]
        covariances = np.stack(terms, axis=-1) / count
        each = [slope(*one) for one in zip(mean_x, mean_y, covariances, strict=True)]
        alone = {}
        for series in sorted({one.series for one in found}):
            mine = [one.series == series for one in found]
            alone[series] = slope(mean_x[0, mine], mean_y[0, mine], covariances[0, mine])
        efficiency = sum(z_of(one) ** 2 - 1 for one in y) / accuracy if accuracy > len(x) else math.nan
        result.append(Slope(temperature, each[0], each[1:], alone, efficiency))
    return result


@dataclass(frozen=True, slots=True)
class Temperature:
    """The largest temperature at which ``p_right`` changes as much as accuracy in the mean or more (a larger one makes
    less of every change), its 95 % interval over the draws, and the largest at which the slope may still be 1."""

    value: float
    low: float
    high: float
    largest: float


def temperature(found: Sequence[Slope]) -> Temperature:
    """Return the temperature from the slopes at all of them."""
    kept = [max(_crossing(found, draws)) for draws in zip(*(one.drawn for one in found), strict=True)]
    low, high = np.percentile(kept, (2.5, 97.5))
    largest = [one.temperature for one in found if one.interval[0] <= 1 <= one.interval[1]]
    value = max(_crossing(found, [one.slope for one in found]))
    return Temperature(value, float(low), float(high), max(largest, default=math.nan))


def _crossing(found: Sequence[Slope], slopes_there: Sequence[float]) -> list[float]:
    """Return the temperatures whose slope is 1 or more; the lowest of all, where it is accuracy, has no other."""
    pairs = zip(found, slopes_there, strict=True)
    return [found[0].temperature, *(one.temperature for one, value in pairs if value >= 1)]


def any_decided(found: Iterable[Comparison]) -> bool:
    """Return whether accuracy decides a comparison; without one, nothing is known of the temperature."""
    return any(_verdict(one.differences(ACCURACY)) for one in found)


# Agreement


def summary_of(
    measure_of: Mapping[str, Sequence[Measure]], found: Sequence[Comparison]
) -> list[dict[str, Any]]:
    """Return a row for every comparison and measure: change, z, items needed, the same of accuracy."""
    rows = []
    for one in found:
        accuracy = one.differences(ACCURACY)
        for measure in measure_of[one.benchmark]:
            changes = one.differences(measure)
            rows.append(
                {
                    "benchmark": one.benchmark,
                    "series": one.series,
                    "number": one.number,
                    "before": one.before,
                    "measure": str(measure),
                    "items": len(changes),
                    "mean": float(changes.mean()),
                    "z": z_of(changes),
                    "needed": items_needed(changes),
                    "accuracy": float(accuracy.mean()),
                    "accuracy_z": z_of(accuracy),
                    "accuracy_needed": items_needed(accuracy),
                }
            )
    return rows


def partings(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows in which a measure parts from accuracy."""
    return [row for row in rows if _decided(row) and abs(row["z"]) > Z and row["z"] * row["accuracy_z"] < 0]


def _decided(row: Mapping[str, Any]) -> bool:
    return bool(abs(row["accuracy_z"]) > Z)


def agreement(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return, of one measure's rows: the decided comparisons, in how many the sign is accuracy's, in how many it is
    decided against it, and the median and quartiles of the share of accuracy's items that it needs."""
    decided = [row for row in rows if _decided(row)]
    shares = [row["needed"] / row["accuracy_needed"] for row in decided]
    quartiles = np.percentile(shares, (25, 50, 75)).tolist() if shares else [math.nan] * 3
    return {
        "comparisons": len(rows),
        "decided": len(decided),
        "same_sign": sum(row["z"] * row["accuracy_z"] > 0 for row in decided),
        "parted": len(partings(rows)),
        "beyond_accuracy": sum(abs(row["z"]) > Z and not _decided(row) for row in rows),
        "share_of_items": quartiles,
    }


def rank_correlation(scored: Scored, benchmark: str, measure: Measure) -> dict[str, float]:
    """Return Spearman's correlation of the measure's mean with accuracy, over each series of three and its start, and
    over all checkpoints, on the items that all of them have answered."""
    from scipy.stats import spearmanr

    places = finished(scored[benchmark])
    answers = _paired(*(scored[benchmark][series][number] for series, number in places))
    means = [float(one.measure(measure.name, measure.temperature).mean()) for one in answers]
    levels = [float(one.accuracy.mean()) for one in answers]
    found = {}
    for series in ("all", *sorted({series for series, _ in places})):
        kept = [place for place, (one, _) in enumerate(places) if one in (series, START) or series == "all"]
        if len(kept) > 3:
            found[series] = float(
                spearmanr([means[one] for one in kept], [levels[one] for one in kept]).statistic
            )
    return found


# Subsets, apart from the items by which accuracy is judged


def decision_accuracy(
    found: Sequence[Comparison], measure: Measure, seed: int = 2
) -> dict[int, dict[str, float]]:
    """Return, by size of the subset, how often the measure on random items has the sign of accuracy on all others, and
    how often its verdict (z beyond 1.96) is accuracy's own, the opposite one, or none; the same for accuracy on
    those items. Only the decided comparisons count, and no more than half of the items make a subset."""
    draw = np.random.default_rng(seed)
    result = {}
    for size in SUBSETS:
        counts: list[Numbers] = []
        for one in found:
            accuracy, changes = one.differences(ACCURACY), one.differences(measure)
            if abs(z_of(accuracy)) <= Z or size > len(accuracy) / 2:
                continue
            counts.append(_splits(accuracy, changes, size, draw))
        if counts:
            mean = np.mean(counts, axis=0)
            names = ("sign", "same", "opposite", "none", "accuracy_sign", "accuracy_same")
            result[size] = {"comparisons": len(counts), **dict(zip(names, mean.tolist(), strict=True))}
    return result


def _splits(accuracy: Numbers, changes: Numbers, size: int, draw: np.random.Generator) -> Numbers:
    """Return the shares of the splits, in the order of ``decision_accuracy``'s names."""
    verdict = np.sign(accuracy.mean())
    signs, verdicts, own_signs, own_verdicts = [], [], [], []
    for _ in range(SPLITS):
        order = draw.permutation(len(accuracy))
        some, rest = order[:size], order[size:]
        judged = np.sign(accuracy[rest].mean())
        signs.append(np.sign(changes[some].mean()) == judged)
        own_signs.append(np.sign(accuracy[some].mean()) == judged)
        verdicts.append(_verdict(changes[some]) * verdict)
        own_verdicts.append(_verdict(accuracy[some]) * verdict)
    decided = np.array(verdicts)
    return np.array(
        [
            np.mean(signs),
            np.mean(decided > 0),
            np.mean(decided < 0),
            np.mean(decided == 0),
            np.mean(own_signs),
            np.mean(np.array(own_verdicts) > 0),
        ]
    )


def _verdict(changes: Numbers) -> int:
    z = z_of(changes)
    return int(np.sign(z)) if abs(z) > Z else 0


def reach(found: Sequence[Comparison], measure: Measure, seed: int = 3) -> dict[str, Any]:
    """Return what a measure reaches on a third of the items, over random splits.

    Accuracy judges by the other two thirds. *told*: where its verdict is decided, the share of splits in which the
    measure's verdict is the same. *both*: the share of splits in which both are decided; *wrong*: of these, the share
    with opposite signs. *share*: the median, over the comparisons decided on all items, of the share of accuracy's
    items at which the measure has the same mean z: the squared ratio of the mean z of both on halves other than those
    by which accuracy selects the splits.
    """
    draw = np.random.default_rng(seed)
    judged_splits, told, both, opposite = 0, 0, 0, 0
    shares = []
    for one in found:
        accuracy, changes = one.differences(ACCURACY), one.differences(measure)
        count = len(accuracy)
        sums = np.zeros(3)
        for _ in range(SPLITS):
            order = draw.permutation(count)
            judged, mine = _verdict(accuracy[order[count // 3 :]]), _verdict(changes[order[: count // 3]])
            judged_splits += judged != 0
            told += judged * mine > 0
            opposite += judged * mine < 0
            both += judged * mine != 0
            half, other = order[: count // 2], order[count // 2 :]
            if selected := _verdict(accuracy[half]):
                sums += (1, selected * z_of(accuracy[other]), selected * z_of(changes[other]))
        if _verdict(accuracy) and sums[0] > SPLITS / 10 and sums[1] > 0:
            shares.append(float((sums[1] / sums[2]) ** 2) if sums[2] > 0 else math.inf)
    return {
        "comparisons": len(shares),
        "share": float(np.median(shares)) if shares else None,
        "told": told / judged_splits if judged_splits else None,
        "both": both / SPLITS / len(found),
        "wrong": opposite / both if both else None,
    }


def false_alarms(found: Sequence[Comparison], measure: Measure, seed: int = 4) -> dict[str, float]:
    """Return the shares of losses told (z below -1.96) among equal checkpoints, on a third of the items.

    *swapped*: both answers of every item change places by the toss of a coin. *centred*: the items are drawn anew from
    the differences less their mean. Both average over the comparisons in which anything differs.
    """
    draw = np.random.default_rng(seed)
    swapped, centred = [], []
    for one in found:
        changes = one.differences(measure)
        size = len(changes) // 3
        if not changes.any():
            continue
        some = draw.integers(0, len(changes), (SPLITS, size))
        coins = draw.choice((-1.0, 1.0), (SPLITS, size))
        swapped.append(_share_of_losses(changes[some] * coins))
        centred.append(_share_of_losses((changes - changes.mean())[some]))
    return {"swapped": float(np.mean(swapped)), "centred": float(np.mean(centred))}


def _share_of_losses(changes: Numbers) -> float:
    spread = changes.std(axis=1, ddof=1)
    z = changes.mean(axis=1) / np.where(spread > 0, spread, math.inf) * math.sqrt(changes.shape[1])
    return float(np.mean(z < -Z))
