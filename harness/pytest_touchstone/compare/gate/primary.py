"""The primary metric beside a verdict by the probability of the right choice (``p_right``).

The probability moves before right and wrong do, and is not what a benchmark publishes. So its line has the change of
the primary metric against the same baseline, in what both measure of one item; where the two contradict each other; and
what one point of it has been worth in points of the primary metric, by all baselines that have both. Bits per byte of
the right answer are never asked here: fluency moves them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.judge import AlignedScores, Judged, columns, compare, score_name
from pytest_touchstone.core.aggregation import P_RIGHT
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.text import count
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.contrasts import noise_of
from pytest_touchstone.statistics.exchange import PairedChange, Slope, slope
from pytest_touchstone.statistics.verdicts import kind_of

CONTRADICTION: Final = "contradiction"
"""The first word of a note that a short report shows too."""


class PrimaryChange(NamedTuple):
    """The change of the primary metric in words, and the notes on it."""

    text: str
    notes: tuple[str, ...]


def primary_change(
    entry: BenchmarkScores,
    baselines: Sequence[BenchmarkScores],
    judged: Judged,
    *,
    margin: float,
    alpha: float,
) -> PrimaryChange | None:
    """What stands beside a verdict by ``p_right``; None for one by another metric, or without a primary one that
    both results have item by item."""
    primary, chosen = entry.saved.primary, baselines[judged.compared.chosen]
    if judged.compared.metric != P_RIGHT or primary == P_RIGHT or primary not in chosen.saved.metrics:
        return None
    try:
        found = compare(entry, [chosen], primary, level=1 - alpha).comparison
    except GateError:  # a mean over groups
        return None
    if found.difference is None:
        return None
    p = "" if found.p is None else f", p = {found.p:.2g}"
    rate = exchange_rate([chosen, *(one for one in baselines if one is not chosen)], primary)
    notes = (*_contradiction(found, judged, primary, margin, alpha), rate_text(rate, primary))
    return PrimaryChange(f"{primary} {found.told_in.told(found.difference)}{p}", notes)


def _contradiction(
    found: Comparison, judged: Judged, primary: str, margin: float, alpha: float
) -> tuple[str, ...]:
    """The note where one of the two is worse, or better, and the other is not even the same way."""
    mine, other = judged.verdict.kind, kind_of(found, found.p, margin, alpha)
    moved = judged.compared.comparison.difference or 0.0
    apart = moved * (found.oriented.difference or 0.0) < 0
    if not apart or not {mine, other} & {"worse", "better"}:
        return ()
    return (
        f"{CONTRADICTION}: {P_RIGHT} is {mine}, {primary} {other}: look at the items before you trust either",
    )


def exchange_rate(results: Sequence[BenchmarkScores], primary: str) -> Slope | None:
    """The points of the primary metric that went with a point of ``p_right``, by the changes between the first of the
    results and each of the others."""
    first, *others = results
    changes = []
    for other in others:
        if {P_RIGHT, primary} <= other.saved.metrics.keys():
            soft, hard = (_aligned(first, other, name) for name in (P_RIGHT, primary))
            if (change := _change(soft, hard)) is not None:
                changes.append(change)
    return slope(changes)


def rate_text(rate: Slope | None, primary: str) -> str:
    """The rate in words."""
    if rate is None:
        return f"one point of {P_RIGHT} in points of {primary}: not known, too few saved checkpoints"
    low, high = ("?" if one is None else f"{one:.2g}" for one in (rate.low, rate.high))
    return (
        f"one point of {P_RIGHT} is about {rate.value:.2g} [{low}, {high}] of {primary}, by "
        f"{count(rate.pairs, 'saved checkpoint')}"
    )


def _aligned(first: BenchmarkScores, other: BenchmarkScores, metric: str) -> AlignedScores:
    return columns(first.items, [other.items], score_name(first.saved, metric))


def _change(soft: AlignedScores, hard: AlignedScores) -> PairedChange | None:
    """The changes of both means, with the covariance of their errors."""
    if len(soft.new) < 2 or soft.names != hard.names:
        return None
    moved = [
        [after - before for before, after in zip(one.baselines[0], one.new, strict=True)]
        for one in (soft, hard)
    ]
    noise = noise_of([moved[0]], moved[1], soft.clusters)
    if noise is None:
        return None
    (x_variance, covariance), (_, y_variance) = noise.covariance.tolist()
    x, y = (sum(one) / len(one) for one in moved)
    return PairedChange(x, y, x_variance, y_variance, covariance)
