"""Macro F1: the mean over all classes of F1 = 2 TP / (2 TP + FP + FN).

    aggregate={"f1": MACRO_F1}                                 # in the benchmark
    return ChoiceScores({"acc": ...}, right, chosen)           # from its function

Classes are those that occur, as right or as chosen, as in scikit-learn's ``f1_score(average="macro")``; a class that is
never both has F1 0. One answer to all items gives about 1/3 where two classes are equally frequent.

The standard error is that of the delta method (Takahashi, Yamamoto, Kuchiba and Koyama 2022, "Confidence interval for
micro-averaged F1 and macro-averaged F1 scores", Applied Intelligence 52). Let r and q be the shares of items whose
right and whose chosen class is c, so that F_c = 2 p_cc / (r + q). An item then moves F_c by

    (2 [right = chosen = c] - F_c ([right = c] + [chosen = c])) / (r + q)

Their interval is value +- 1.96 standard errors, which leaves [0, 1], has no width where all items are right, and holds
the true value much too seldom where a class is small. Ours goes by class. Of the items that have c as right or as
chosen, the share J that have both is a plain share, and F_c = 2 J / (1 + J) rises with it. So F_c has the limits that
Wilson's of J give (of clusters: with the effective number of items). The mean of the classes has MOVER's limits (Zou
and Donner 2008, Statistics in Medicine 27), with the correlations of the classes' F1 by the delta method. A class that
does not occur in the items is none, whatever others would show. ``simulations.intervals`` has the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.statistics.comparison import LEVEL, z_quantile
from pytest_touchstone.statistics.intervals import Clusters, Estimate, moments_of, t_quantile, wilson_limits

if TYPE_CHECKING:
    import numpy as np


class _ClassScore(NamedTuple):
    """F1 of a class, how far each item moves it, and the distances of its limits."""

    f1: float
    moves: list[float]
    down: float
    up: float


def macro_f1(
    items: Sequence[tuple[float, int, int]], clusters: Sequence[str | None] | None = None
) -> Estimate:
    """Return macro F1 of items (score, right, chosen), with its interval; ``clusters`` as in ``mean_estimate``."""
    pairs = [(right, chosen) for _, right, chosen in items]
    if not pairs:
        return Estimate(None, None, None, None, "none", "no items were scored")
    class_scores = [
        _class_score(pairs, label, clusters) for label in sorted({label for pair in pairs for label in pair})
    ]
    count = len(class_scores)
    value = math.fsum(score.f1 for score in class_scores) / count
    moved = zip(*(score.moves for score in class_scores), strict=True)
    moments = moments_of([math.fsum(moves) / count for moves in moved], clusters)
    error = None if moments.variance is None else math.sqrt(moments.variance)
    low = value - _combined_distance([score.down for score in class_scores], class_scores, clusters) / count
    high = value + _combined_distance([score.up for score in class_scores], class_scores, clusters) / count
    why = f"{moments.one_unit}: no standard error" if error is None else None
    method = "MOVER from the classes' Wilson limits"
    return Estimate(value, max(0.0, low), min(1.0, high), error, method, why)


def _class_score(pairs: Sequence[tuple[int, int]], label: int, clusters: Clusters | None) -> _ClassScore:
    both = sum(right == chosen == label for right, chosen in pairs)
    either = sum((right == label) + (chosen == label) for right, chosen in pairs)
    f1, union = 2 * both / either, either - both
    scale = len(pairs) / either
    moves = [
        scale * (2 * (right == chosen == label) - f1 * ((right == label) + (chosen == label)))
        for right, chosen in pairs
    ]
    low, high = wilson_limits(both / union, union * _effective_share(moves, clusters), z_quantile(LEVEL))
    return _ClassScore(f1, moves, f1 - 2 * low / (1 + low), 2 * high / (1 + high) - f1)


def _effective_share(moves: Sequence[float], clusters: Clusters | None) -> float:
    """Return the part of the items that counts, for clusters as in ``statistics.intervals``."""
    moments = moments_of(moves, clusters)
    if not moments.clustered:
        return 1.0
    if not moments.plain or moments.variance is None:
        return moments.kish / moments.n
    certain = z_quantile(LEVEL) / t_quantile(len(moments.totals) - 1, LEVEL)
    return certain**2 / max(1.0, moments.variance / moments.plain)


def _combined_distance(
    distances: Sequence[float], class_scores: Sequence[_ClassScore], clusters: Clusters | None
) -> float:
    """Return the distance of the sum's limit; parts that do not vary count as wholly dependent."""
    import numpy as np

    totals = np.array([moments_of(score.moves, clusters).totals for score in class_scores])
    totals = totals[:, np.lexsort(totals)]  # so that no sum depends on the order of the items
    length = np.sqrt((totals**2).sum(axis=1))
    products = np.outer(length, length)
    correlation = np.divide(totals @ totals.T, products, out=np.ones_like(products), where=products > 0)
    return math.sqrt(max(0.0, float(np.array(distances) @ correlation @ np.array(distances))))


def macro_f1_of_draws(
    items: Sequence[tuple[float, int, int]], clusters: Clusters | None, counts: np.ndarray
) -> np.ndarray:
    """Return macro F1 of each draw of the items: a row of ``counts`` says how often it has each."""
    import numpy as np

    del clusters  # they move no value
    right, chosen = (np.array(column)[:, None] for column in list(zip(*items, strict=True))[1:])
    classes = np.union1d(right, chosen)
    both = counts @ ((right == classes) & (chosen == classes))
    either = counts @ ((right == classes).astype(float) + (chosen == classes))
    f1 = np.divide(2 * both, either, out=np.zeros_like(either), where=either > 0)
    scores: np.ndarray = f1.sum(axis=1) / (either > 0).sum(axis=1)
    return scores


MACRO_F1: Final = Aggregation("macro F1", "acc", function=macro_f1, beside=("right", "chosen"))
"""The metric of a choice whose scores have ``acc``."""
