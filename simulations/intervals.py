"""The share of 95 % intervals of a single run that hold the true value, where scores are skewed or items few.

python -m simulations.intervals [--runs 2000] [--seed 1] [--only NAME]

Every interval is the product's: ``pytest_touchstone.statistics.intervals.mean_estimate``, and ``macro_f1`` and
``cohen_kappa`` of ``pytest_touchstone.metrics``. *below* and *above*: the share of runs whose interval lies wholly
below, or above, the true value; *width*: the mean width.

- *pass@k*: tasks with success rates from a beta distribution, the unbiased estimate from so many samples. *one in 50*:
  of tasks at 0.9999 one in fifty is at 0.
- *skewed*: scores from beta(0.2, 2), beta(0.5, 5), or 0 for 90 % of the items and else uniform.
- *clusters*: 20 texts of 1 to 12 items, which share part of what makes them hard.
- *kappa*: a judge that is right on this share of the items, whose labels are one of two classes on this share.
- *macro F1*: classes with these shares of the items and these accuracies; runs in which a class does not occur are
  left out, since it then does not count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pytest_touchstone.metrics.judged import cohen_kappa
from pytest_touchstone.metrics.macro_f1 import macro_f1
from pytest_touchstone.statistics.intervals import Estimate, mean_estimate
from simulations.gate import choose

Generator = np.random.Generator
MANY: Final = 1_000_000
"""The items from which a true value is taken that has no formula."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The shares of intervals that hold the true value, lie below and above it; and their mean width."""

    runs: int
    covered: float
    below: float
    above: float
    width: float


def coverage(true: float, estimates: Iterator[Estimate]) -> Coverage:
    """Return the outcomes of intervals for this true value."""
    found = [(one.low, one.high) for one in estimates if one.low is not None and one.high is not None]
    low, high = np.array(found).T
    below, above = float(np.mean(high < true)), float(np.mean(low > true))
    return Coverage(len(found), 1 - below - above, below, above, float(np.mean(high - low)))


def means(
    runs: int, seed: int, draw: Callable[[Generator, int], np.ndarray], n: int, true: float | None = None
) -> Coverage:
    """Intervals of the mean of n scores that ``draw`` makes."""
    generator = np.random.default_rng(seed)
    true = float(np.mean(draw(generator, MANY))) if true is None else true
    return coverage(true, (mean_estimate(draw(generator, n).tolist()) for _ in range(runs)))


def pass_at(k: int, samples: int, rates: tuple[float, float], generator: Generator, n: int) -> np.ndarray:
    """pass@k of n tasks whose success rates come from this beta distribution, from so many samples of each."""
    wrong = samples - generator.binomial(samples, generator.beta(*rates, n))
    steps = np.arange(k)
    missed = np.clip((np.arange(samples + 1)[:, None] - steps) / (samples - steps), 0, None).prod(axis=1)
    found: np.ndarray = 1 - missed[wrong]
    return found


def mostly(end: float, share: float, other: float | None, generator: Generator, n: int) -> np.ndarray:
    """Scores of which this share is at ``end``, and the rest at another value, or uniform."""
    rest = generator.random(n) if other is None else np.full(n, other)
    return np.where(generator.random(n) < share, end, rest)


def clustered(runs: int, seed: int, a: float, b: float, texts: int = 20) -> Coverage:
    """Intervals of scores from beta(a, b) in texts of 1 to 12 items; ranks of a text have the correlation 0.4."""
    from scipy.special import betaincinv, ndtr

    generator = np.random.default_rng(seed)
    owners = np.repeat(np.arange(texts), np.linspace(1, 12, texts).round().astype(int))
    names = [f"text {owner}" for owner in owners]

    def one() -> Estimate:
        shared, own = generator.normal(size=texts)[owners], generator.normal(size=len(owners))
        return mean_estimate(betaincinv(a, b, ndtr(0.4**0.5 * shared + 0.6**0.5 * own)).tolist(), names)

    return coverage(a / (a + b), (one() for _ in range(runs)))


def macro(runs: int, seed: int, n: int, shares: Sequence[float], accuracies: Sequence[float]) -> Coverage:
    """Intervals of macro F1; a wrong answer is any class, as often as it occurs."""
    generator, count = np.random.default_rng(seed), len(shares)

    def pairs(n: int) -> tuple[np.ndarray, np.ndarray]:
        right, guess = generator.choice(count, (2, n), p=shares)
        return right, np.where(generator.random(n) < np.array(accuracies)[right], right, guess)

    def estimates() -> Iterator[Estimate]:
        for _ in range(runs):
            right, chosen = pairs(n)
            if len(np.union1d(right, chosen)) == count:
                yield macro_f1([(0.0, *pair) for pair in zip(right.tolist(), chosen.tolist(), strict=True)])

    right, chosen = pairs(MANY)
    both = [2 * np.sum((right == one) & (chosen == one)) for one in range(count)]
    either = [np.sum(right == one) + np.sum(chosen == one) for one in range(count)]
    true = float(np.mean(np.array(both) / np.array(either)))
    return coverage(true, estimates())


def kappa(runs: int, seed: int, n: int, prevalence: float, right: float) -> Coverage:
    """Intervals of Cohen's kappa; sets of one class only have none."""
    generator = np.random.default_rng(seed)
    shares = np.array([prevalence * right, prevalence * (1 - right), (1 - prevalence) * (1 - right), 0.0])
    shares[3] = 1 - shares.sum()
    first, second = shares[0] + shares[1], shares[0] + shares[2]
    chance = first * second + (1 - first) * (1 - second)

    def estimates() -> Iterator[Estimate]:
        for _ in range(runs):
            kinds = generator.choice(4, n, p=shares).tolist()
            yield cohen_kappa([(float(kind in (0, 3)), kind // 2, kind % 2) for kind in kinds])

    return coverage(float((right - chance) / (1 - chance)), estimates())


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], Coverage]]:
    """All simulations by name; each has a generator of its own."""
    draws: dict[str, tuple[Callable[[Generator, int], np.ndarray], float | None]] = {
        "pass@10 of 20, beta(1, 0.3)": (functools.partial(pass_at, 10, 20, (1.0, 0.3)), None),
        "pass@10 of 20, beta(3, 0.5)": (functools.partial(pass_at, 10, 20, (3.0, 0.5)), None),
        "pass@100 of 200, beta(2, 0.4)": (functools.partial(pass_at, 100, 200, (2.0, 0.4)), None),
        "one in 50 at 0": (functools.partial(mostly, 0.0, 0.02, 0.9999), 0.98 * 0.9999),
    }
    skewed: dict[str, tuple[Callable[[Generator, int], np.ndarray], float | None]] = {
        "skewed, beta(0.2, 2)": (lambda generator, n: generator.beta(0.2, 2, n), 0.2 / 2.2),
        "skewed, beta(0.5, 5)": (lambda generator, n: generator.beta(0.5, 5, n), 0.5 / 5.5),
        "skewed, 90 % at 0": (functools.partial(mostly, 0.0, 0.9, None), 0.05),
    }
    found: dict[str, Callable[[], Coverage]] = {}
    for sizes, group in (((20, 40, 164), draws), ((30, 100), skewed)):
        for name, (draw, true) in group.items():
            for n in sizes:
                found[f"{name}, n = {n}"] = functools.partial(means, runs, seed, draw, n, true)
    for a, b in ((2.0, 2.0), (0.5, 5.0), (5.0, 1.0), (0.3, 0.3)):
        found[f"20 clusters, beta({a:g}, {b:g})"] = functools.partial(clustered, runs, seed, a, b)
    for n in (20, 30, 50, 100):
        for prevalence in (0.5, 0.9, 0.97):
            for share in (0.8, 0.9, 0.95, 0.97):
                name = f"kappa, {prevalence:g} of one class, right {share:g}, n = {n}"
                found[name] = functools.partial(kappa, runs, seed, n, prevalence, share)
    for shares, accuracies in (
        ((0.5, 0.5), (0.7, 0.7)),
        ((0.9, 0.1), (0.9, 0.5)),
        ((0.95, 0.05), (0.9, 0.6)),
        ((0.8, 0.15, 0.05), (0.8, 0.6, 0.5)),
    ):
        for n in (50, 100, 400):
            name = f"macro F1, {'/'.join(f'{share:g}' for share in shares)}, n = {n}"
            found[name] = functools.partial(macro, runs, seed, n, shares, accuracies)
    return found


def main() -> None:
    """Print the coverage."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':48}{'runs':>6}{'covered':>9}{'below':>8}{'above':>8}{'width':>8}")
    for name, simulation in chosen.items():
        one = simulation()
        shares = f"{one.covered:9.1%}{one.below:8.1%}{one.above:8.1%}"
        print(f"{name:48}{one.runs:6}{shares}{one.width:8.3f}", flush=True)


if __name__ == "__main__":
    main()
