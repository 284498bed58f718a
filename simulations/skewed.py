"""Graded scores whose differences are skewed: how often two runs that are equal on average are called worse or better.

python -m simulations.skewed [--runs 2000] [--seed 1] [--only NAME]

Every comparison and verdict is the product's: ``pytest_touchstone.statistics.paired.compare_paired`` and
``pytest_touchstone.statistics.verdicts.judge``. *t*: the same by the paired t test, which calls about as much worse as
a test that flips signs. At most 2.5 % may be called either.

- *5 % gain 0.4*: so many items gain, and the others lose a little alike, so that the mean stays. *noise*: with normal
  noise of this standard deviation on all.
- *lognormal*: differences from a lognormal distribution with sigma 1 less its mean; *of no known range*: logarithms.
- *half unmoved*: half of the items do not differ, the others by a lognormal amount.
- *lose*: power. Normal differences with this standard deviation, or those of two runs with four samples of each item,
  and a loss that a z test finds in 80 of 100 cases.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pytest_touchstone.statistics.paired import compare_paired
from pytest_touchstone.statistics.verdicts import MARGIN, judge
from simulations.gate import choose

Generator = np.random.Generator
Draw = Callable[[Generator, int], np.ndarray]
START: Final = 0.5
FOUND: Final = 2.8
"""The standard errors of a loss that a z test finds with power 0.8."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of comparisons that are called worse and better, and that a t test calls worse."""

    runs: int
    worse: float
    better: float
    worse_by_t: float


def shares(runs: int, seed: int, n: int, draw: Draw, *, start: float = START, loss: float = 0.0) -> Shares:
    """Comparisons of n items whose differences are drawn; scores stay within [0, 1] but for a ``start`` below 0."""
    from scipy.special import stdtrit

    generator, limit = np.random.default_rng(seed), float(stdtrit(n - 1, 0.975))
    worse = better = by_t = 0
    for _ in range(runs):
        moved = draw(generator, n) - loss
        if start > 0:
            moved = np.clip(moved, -1, 1)
            before = np.clip(start, np.maximum(0, -moved), np.minimum(1, 1 - moved))
        else:
            before = np.full(n, start)
        after = before + moved if start < 0 else np.clip(before + moved, 0, 1)
        (found,) = judge({"": compare_paired(before.tolist(), after.tolist())}).values()
        worse += found.verdict == "worse"
        better += found.verdict == "better"
        mean, error = float(moved.mean()), float(moved.std(ddof=1)) / math.sqrt(n)
        by_t += mean < -MARGIN and mean + limit * error < 0
    return Shares(runs, worse / runs, better / runs, by_t / runs)


def rare(share: float, gain: float, noise: float, generator: Generator, n: int) -> np.ndarray:
    """Differences of which this share gains, and the others lose so much that the mean stays."""
    found = np.where(generator.random(n) < share, gain, -share * gain / (1 - share))
    return found + noise * generator.standard_normal(n)


def lognormal(unmoved: float, scale: float, generator: Generator, n: int) -> np.ndarray:
    """Lognormal differences with mean 0, of which this share is 0."""
    found = scale * (generator.lognormal(0, 1, n) - math.exp(0.5))
    return np.where(generator.random(n) < unmoved, 0.0, found)


def normal(spread: float, generator: Generator, n: int) -> np.ndarray:
    """Return normal differences."""
    return spread * generator.standard_normal(n)


def samples(generator: Generator, n: int) -> np.ndarray:
    """Differences of the shares of right ones among four samples of each item, of two equal runs."""
    chance = generator.beta(0.7, 0.7, n)
    found: np.ndarray = (generator.binomial(4, chance) - generator.binomial(4, chance)) / 4
    return found


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], Shares]]:
    """All simulations by name; each has a generator of its own."""
    equal: dict[str, tuple[Draw, float]] = {
        "5 % gain 0.4": (functools.partial(rare, 0.05, 0.4, 0.0), START),
        "5 % gain 0.4, noise 0.05": (functools.partial(rare, 0.05, 0.4, 0.05), START),
        "1 % gain 1, noise 0.05": (functools.partial(rare, 0.01, 1.0, 0.05), START),
        "lognormal": (functools.partial(lognormal, 0.0, 0.05), START),
        "half unmoved, lognormal": (functools.partial(lognormal, 0.5, 0.08), START),
        "lognormal, of no known range": (functools.partial(lognormal, 0.0, 0.2), -2.0),
    }
    lost: dict[str, tuple[Draw, float]] = {
        "lose, normal 0.3": (functools.partial(normal, 0.3), START),
        "lose, normal 0.1": (functools.partial(normal, 0.1), START),
        "lose, four samples": (samples, START),
    }
    found: dict[str, Callable[[], Shares]] = {}
    for name, (draw, start) in equal.items():
        for n in (50, 100, 300):
            found[f"{name}, {n}"] = functools.partial(shares, runs, seed, n, draw, start=start)
    for name, (draw, start) in lost.items():
        spread = float(draw(np.random.default_rng(seed), 100_000).std())
        for n in (100, 200, 500):
            loss = FOUND * spread / math.sqrt(n)
            found[f"{name}, {n}"] = functools.partial(shares, runs, seed, n, draw, start=start, loss=loss)
    return found


def main() -> None:
    """Print the shares."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':36}{'runs':>6}{'worse':>9}{'better':>9}{'worse by t':>12}")
    for name, simulation in chosen.items():
        one = simulation()
        print(f"{name:36}{one.runs:6}{one.worse:9.2%}{one.better:9.2%}{one.worse_by_t:12.2%}", flush=True)


if __name__ == "__main__":
    main()
