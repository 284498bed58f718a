"""Macro F1: the mean over all classes of F1 = 2 TP / (2 TP + FP + FN), where each item has a right and a chosen class.

    aggregate={"f1": MACRO_F1}                                 # in the benchmark
    return ChoiceScores({"acc": ...}, right, chosen)           # from its function

Classes are those that occur, as right or as chosen, as in scikit-learn's ``f1_score(average="macro")``; a class that is
never both has F1 0. One answer to all items gives about 1/3 where two classes are equally frequent.

The standard error is that of the delta method (Takahashi, Yamamoto, Kuchiba and Koyama 2022, "Confidence interval for
micro-averaged F1 and macro-averaged F1 scores", Applied Intelligence 52). Let r and q be the shares of items whose
right and whose chosen class is c, so that F_c = 2 p_cc / (r + q). An item then moves F_c by

    (2 [right = chosen = c] - F_c ([right = c] + [chosen = c])) / (r + q)

Their interval is value +- 1.96 standard errors, which leaves [0, 1] and has no width where all items are right. So ours
is Wilson's with the number of items that gives the same standard error, value (1 - value) / error^2, at most the true
one (of clusters: Kish's).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from harness.core.aggregation import Aggregation
from harness.statistics.comparison import LEVEL, z_quantile
from harness.statistics.intervals import Estimate
from harness.statistics.moments import moments_of
from harness.statistics.proportions import wilson_limits


def macro_f1(
    items: Sequence[tuple[float, int, int]], clusters: Sequence[str | None] | None = None
) -> Estimate:
    """Return macro F1 of items (score, right, chosen), with its interval; ``clusters`` as in ``mean_estimate``."""
    pairs = [(right, chosen) for _, right, chosen in items]
    if not pairs:
        return Estimate(None, None, None, None, "none", "no items were scored")
    classes = sorted({one for pair in pairs for one in pair})
    count = len(pairs)
    parts = [_f1(pairs, one) for one in classes]
    value = math.fsum(f1 for f1, _ in parts) / len(classes)
    moved = [
        math.fsum(
            (2 * (right == chosen == one) - f1 * ((right == one) + (chosen == one))) * count / either
            for one, (f1, either) in zip(classes, parts, strict=True)
        )
        / len(classes)
        for right, chosen in pairs
    ]
    found = moments_of(moved, clusters)
    error = None if found.variance is None else math.sqrt(found.variance)
    apart, held = value * (1 - value), found.kish
    if apart and error:
        held = min(held, apart / error**2)
    low, high = wilson_limits(value, held, z_quantile(LEVEL))
    why = f"{found.one_unit}: no standard error" if error is None else None
    return Estimate(value, low, high, error, "Wilson, delta-method error", why)


def _f1(pairs: Sequence[tuple[int, int]], one: int) -> tuple[float, int]:
    """Return F1 of a class, and the number of items that have it as right plus those that have it as chosen."""
    both = sum(right == chosen == one for right, chosen in pairs)
    either = sum((right == one) + (chosen == one) for right, chosen in pairs)
    return 2 * both / either, either


MACRO_F1: Final = Aggregation("macro F1", "acc", function=macro_f1, beside=("right", "chosen"))
"""The metric of a choice whose scores have ``acc``."""
