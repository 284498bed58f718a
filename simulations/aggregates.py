"""Runs that are compared by macro F1: false alarms, power, and the interval of the difference.

python -m simulations.aggregates [--pairs 2000] [--seed 1]

Each item has a class, one of which is rare (10 %; the others are equally frequent), and each run has a chance of a
right answer by class. 70 % of the items are as hard for one run as for the other; a wrong answer is any other class.

- *alike*: both runs have the same chances, 0.92 and 0.65 for the rare class.
- *otherwise*: the new run has the same macro F1 by other errors: 0.9 for the rare class, and less for the others.
- *lost*: the new run has 0.35 for the rare class. ``low above``: an interval lies above the true difference, which is
  how often a loss of just the margin is called "not worse".
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import brentq

from pytest_touchstone.metrics.macro_f1 import macro_f1_of_draws
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.resampling import Draws, compare_resampled
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN

RARE: Final = 0.1
COMMON: Final = 0.7
ALIKE: Final = (0.92, 0.65)
LOST: Final = (0.92, 0.35)
DRAWS: Final = Draws(macro_f1_of_draws, 999)


class Rates(NamedTuple):
    """The shares of pairs: called worse, called better, with the true difference in the interval, and below it."""

    worse: float
    better: float
    covered: float
    low_above: float


def shares(classes: int) -> np.ndarray:
    """Return the share of each class; the last is the rare one."""
    return np.array([(1 - RARE) / (classes - 1)] * (classes - 1) + [RARE])


def true_f1(classes: int, right: tuple[float, float]) -> float:
    """Macro F1 over all items there might be, with these chances for the others and for the rare class."""
    size, chance = shares(classes), np.array([right[0]] * (classes - 1) + [right[1]])
    wrong = size * (1 - chance) / (classes - 1)
    both = size * chance
    return float(np.mean(2 * both / (size + both + wrong.sum() - wrong)))


def otherwise(classes: int) -> tuple[float, float]:
    """Return the chances that give the same macro F1 with 0.9 for the rare class."""
    same = true_f1(classes, ALIKE)
    return brentq(lambda chance: true_f1(classes, (chance, 0.9)) - same, 0.5, 1.0), 0.9


def pair(
    classes: int, items: int, new: tuple[float, float], generator: np.random.Generator
) -> tuple[list[tuple[float, int, int]], list[tuple[float, int, int]]]:
    """Return the items of two runs: score, right and chosen class."""
    right = generator.choice(classes, items, p=shares(classes))
    wrong = (right + generator.integers(1, classes, items)) % classes
    first, second = generator.random((2, items))
    second = np.where(generator.random(items) < COMMON, first, second)
    runs = []
    for hard, chances in ((first, ALIKE), (second, new)):
        chosen = np.where(hard < np.where(right == classes - 1, chances[1], chances[0]), right, wrong)
        runs.append([(float(a == b), int(a), int(b)) for a, b in zip(right, chosen, strict=True)])
    return runs[0], runs[1]


def rates(classes: int, items: int, new: tuple[float, float], pairs: int, seed: int) -> Rates:
    """Return the rates of a gate of one benchmark over several pairs."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(pairs):
        before, after = pair(classes, items, new, generator)
        selection = compare_resampled([before], after, None, DRAWS)
        assert selection is not None
        found.append(selection.comparison)
    true = true_f1(classes, new) - true_f1(classes, ALIKE)
    return rates_of(found, true)


def rates_of(found: Sequence[Comparison], true: float) -> Rates:
    """Return the rates of these comparisons, whose true difference is the same."""

    def share(kept: Sequence[bool]) -> float:
        return float(np.mean(kept))

    moved = [(one.p is not None and one.p <= ALPHA, one.difference or 0.0) for one in found]
    limits = [(-1.0 if one.low is None else one.low, 1.0 if one.high is None else one.high) for one in found]
    return Rates(
        share([certain and difference < -MARGIN for certain, difference in moved]),
        share([certain and difference > MARGIN for certain, difference in moved]),
        share([low <= true <= high for low, high in limits]),
        share([low > true for low, _ in limits]),
    )


def main() -> None:
    """Print the rates by number of classes and items, and by kind of pair, in per cent."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    for classes in (2, 4):
        for items in (100, 300, 1000):
            for kind, new in (("alike", ALIKE), ("otherwise", otherwise(classes)), ("lost", LOST)):
                found = rates(classes, items, new, told.pairs, told.seed)
                true = true_f1(classes, new) - true_f1(classes, ALIKE)
                numbers = "  ".join(
                    f"{name} {100 * value:5.2f}" for name, value in zip(Rates._fields, found, strict=True)
                )
                print(
                    f"{classes} classes, {items:5} items, {kind:9} {100 * true:+6.1f}  {numbers}", flush=True
                )


if __name__ == "__main__":
    main()
