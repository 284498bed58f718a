"""The shares of gates of right or wrong answers that fail, enumerated instead of drawn.

python -m simulations.exact

Three benchmarks of 2400 items, of which 15 % flip: the gates of ``simulations.gate`` and ``simulations.sequential``. Of
each benchmark every pair of numbers of gained and lost items has its chance. At the end p is McNemar's, corrected by
``pytest_touchstone.statistics.verdicts.holm``; interim analyses are decided by
``pytest_touchstone.statistics.sequential.decide_at``.
Benchmarks are independent. Pairs with a chance below 1e-12 at any stage are left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.special import gammaln

from pytest_touchstone.statistics.intervals import mcnemar_p
from pytest_touchstone.statistics.paired import compare_flips
from pytest_touchstone.statistics.sequential import cut, decide_at, plan_analyses
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN, ROUNDING, holm

LEAST: Final = 1e-12
"""The least chance of a pair of counts that is looked at."""

N: Final = 2400
FLIPS: Final = 0.15


def pairs(n: int, drop: float, flips: float) -> np.ndarray:
    """Return the chance of each number of gained (rows) and lost (columns) items of n."""
    most = math.ceil(n * flips + 9 * math.sqrt(n * flips) + 20)
    gained, lost = np.meshgrid(np.arange(most), np.arange(most), indexing="ij")
    same = np.maximum(0, n - gained - lost)
    logs = (
        gained * math.log((flips - drop) / 2)
        + lost * math.log((flips + drop) / 2)
        + same * math.log1p(-flips)
    )
    ways = gammaln(n + 1) - gammaln(gained + 1) - gammaln(lost + 1) - gammaln(same + 1)
    return np.where(gained + lost <= n, np.exp(logs + ways), 0.0)


def at_end(n: int, drops: Sequence[float], flips: float) -> float:
    """Return the chance that a gate of benchmarks of n items with these true drops fails."""
    family = len(drops)
    steps = [ALPHA / rank * (1 - 1e-9) for rank in range(family, 0, -1)]
    parts = [_by_step(n, drop, flips, steps) for drop in drops]
    failing = 0.0
    for outcome in itertools.product(*(part.items() for part in parts)):
        adjusted = holm([p for (p, _), _ in outcome])
        if any(
            worse and p is not None and p <= ALPHA
            for p, ((_, worse), _) in zip(adjusted, outcome, strict=True)
        ):
            failing += math.prod(chance for _, chance in outcome)
    return failing


def _by_step(n: int, drop: float, flips: float, steps: Sequence[float]) -> dict[tuple[float, bool], float]:
    """Return the chance of each of Holm's steps that p reaches, and of a loss beyond the margin."""
    found: dict[tuple[float, bool], float] = {}
    chances = pairs(n, drop, flips)
    for gained, lost in np.argwhere(chances > LEAST).tolist():
        p = mcnemar_p(gained, lost)
        key = next((step for step in steps if p <= step), 1.0), (gained - lost) / n < -MARGIN - ROUNDING
        found[key] = found.get(key, 0.0) + float(chances[gained, lost])
    return found


def with_analyses(n: int, drop: float, flips: float, family: int) -> tuple[float, float]:
    """Return the chance that interim analyses call a benchmark of a plain gate worse, and the mean share of items
    asked."""
    plan = plan_analyses(cut([None] * n), family=family)
    state, worse, asked, before = np.ones((1, 1)), 0.0, 0.0, 0
    for number, (items, level) in enumerate(zip(plan.analyses, plan.levels, strict=True)):
        state = _added(state, pairs(items - before, drop, flips))
        asked += float(state.sum()) * (items - before) / n
        for gained, lost in np.argwhere(state > LEAST).tolist():
            seen = compare_flips(0, gained, lost, items - gained - lost, level=level)
            stop = decide_at(plan, number, seen)
            if stop is not None:
                worse += float(state[gained, lost]) * (stop.kind == "worse")
                state[gained, lost] = 0.0
        before = items
    return worse, asked


def _added(state: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Return the chances of the sums of two independent pairs of counts."""
    shape = [a + b - 1 for a, b in zip(state.shape, more.shape, strict=True)]
    found: np.ndarray = np.fft.irfft2(np.fft.rfft2(state, shape) * np.fft.rfft2(more, shape), shape)
    return np.where(found > LEAST, found, 0.0)


def main() -> None:
    """Print the exact shares."""
    print(f"{'3 benchmarks of 2400 items':34}{'fails':>9}{'at the end':>12}{'saved':>8}")
    for name, drops in (
        ("no drop", (0.0, 0.0, 0.0)),
        ("one drops 3", (0.03, 0.0, 0.0)),
        ("one drops 5", (0.05, 0.0, 0.0)),
    ):
        each = [with_analyses(N, drop, FLIPS, len(drops)) for drop in drops]
        fails = 1 - math.prod(1 - worse for worse, _ in each)
        saved = 1 - math.fsum(asked for _, asked in each) / len(each)
        print(f"{name:34}{fails:9.2%}{at_end(N, drops, FLIPS):12.2%}{saved:8.1%}", flush=True)


if __name__ == "__main__":
    main()
