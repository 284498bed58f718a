"""The share of gates against the best of 11 that fail, with the choice allowed for and without.

python -m simulations.selection [--runs 2000] [--seed 1] [--only NAME]

Every gate is the product's: the saved results of 11 checkpoints in memory, ``compare.gate.decide`` against the
best of them. *plain*: the same gates judged by the plain paired test against the measured best, for comparison.

All benchmarks take the best of 11 earlier checkpoints over all their items. *equal*: the 11 and the new one are
equally good, each with its own luck (the items as in ``simulate_gate``), on 10 benchmarks of 200 to 2400 items, on 3 of
2400, and on one. *one ahead*: one of the 11 is 4 points better than the others, and so is the new one.
*spread*: the 11 lie up to 3 points apart, and the new one is as good as the truly best. *drop*: the new one is 3 or 5
points below the 11 equal ones on the first of 3 benchmarks of 2400 items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pytest_touchstone.compare.gate.result import GateResult
from pytest_touchstone.statistics.paired import compare_paired
from pytest_touchstone.statistics.verdicts import judge
from simulations.gate import ACCURACIES, SIZES, benches, chances, choose
from simulations.gates import failed, gate_of

RUNS_BEFORE: Final = 11
EQUAL: Final = (0.0,) * RUNS_BEFORE
AHEAD: Final = (0.0,) * (RUNS_BEFORE - 1) + (0.04,)
SPREAD: Final = tuple(np.linspace(-0.03, 0.0, RUNS_BEFORE).tolist())


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of gates that failed, by the rule and by the plain paired test. Then the mean excess of the first
    benchmark's best over its own true value, as measured and after shrinking, in points."""

    runs: int
    failed: float
    failed_plain: float
    excess: float
    excess_shrunk: float


def gates(
    runs: int,
    seed: int,
    benchmarks: Sequence[tuple[int, float]],
    before: Sequence[float],
    new: Sequence[float],
) -> Rates:
    """Gates of one new run over benchmarks of these numbers of items and accuracies; ``before`` is by how much each
    earlier run differs from the accuracy, ``new`` by how much the new one does on each benchmark."""
    generator = np.random.default_rng(seed)
    easy = [chances(accuracy, n, generator) for n, accuracy in benchmarks]
    found = benches([n for n, _ in benchmarks])
    right = [
        moved(base, np.asarray([*before, added])[:, None]) for base, added in zip(easy, new, strict=True)
    ]
    fails, plain, excess, shrunk = 0, 0, [], []
    for _ in range(runs):
        values = [generator.random(one.shape) < one for one in right]
        names = [f"c{place}" for place in range(len(before))]
        gate = gate_of(
            [bench.result(one[-1], "new", began=99.0) for bench, one in zip(found, values, strict=True)],
            [
                bench.result(row, name, began=float(name[1:]))
                for bench, one in zip(found, values, strict=True)
                for name, row in zip(names, one[:-1], strict=True)
            ],
        )
        fails += failed(gate)
        plain += _fails_plainly(values)
        chosen, measured, after = _first(gate)
        truth = float(right[0][names.index(chosen)].mean())
        excess.append(100 * (measured - truth))
        shrunk.append(100 * (after - truth))
    return Rates(runs, fails / runs, plain / runs, float(np.mean(excess)), float(np.mean(shrunk)))


def _first(gate: GateResult) -> tuple[str, float, float]:
    """Return the checkpoint that is the first benchmark's baseline, its value, and what is left of it."""
    line = gate.lines[0]
    measured, shrunk = line.as_measured.baseline, line.comparison.baseline
    assert line.against is not None
    assert measured is not None
    assert shrunk is not None
    return line.against.checkpoint, measured, shrunk


def _fails_plainly(values: Sequence[np.ndarray]) -> bool:
    """Return whether a gate without the allowance would fail."""
    compared = {}
    chosen = sum(one[:-1].sum(axis=1) for one in values).argmax()
    for place, one in enumerate(values):
        best = one[chosen]
        compared[str(place)] = compare_paired(best.astype(float).tolist(), one[-1].astype(float).tolist())
    return any(verdict.verdict == "worse" for verdict in judge(compared).values())


def moved(base: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Return the items' chances with their mean moved by each shift: towards 1 or 0 in proportion to what is left
    there."""
    up, down = shifts / (1 - base.mean()), shifts / base.mean()
    found: np.ndarray = np.where(shifts >= 0, base + up * (1 - base), base + down * base)
    return found


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], Rates]]:
    """All simulations by name; each has a generator of its own."""
    ten, three = list(zip(SIZES, ACCURACIES, strict=True)), [(2400, 0.6)] * 3
    return {
        "equal, 10 benchmarks": lambda: gates(runs, seed, ten, EQUAL, (0.0,) * 10),
        "equal, 3 benchmarks": lambda: gates(runs, seed + 1, three, EQUAL, (0.0,) * 3),
        "equal, 1 benchmark": lambda: gates(runs, seed + 2, three[:1], EQUAL, (0.0,)),
        "one ahead, 3": lambda: gates(runs, seed + 3, three, AHEAD, (0.04,) * 3),
        "spread, 3": lambda: gates(runs, seed + 4, three, SPREAD, (0.0,) * 3),
        "drop of 3 points": lambda: gates(runs, seed + 5, three, EQUAL, (-0.03, 0.0, 0.0)),
        "drop of 5 points": lambda: gates(runs, seed + 6, three, EQUAL, (-0.05, 0.0, 0.0)),
    }


def main() -> None:
    """Print the shares of gates that fail, and what shrinking does to the best."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':22}{'runs':>6}{'fails':>9}{'plain':>9}{'best above truth':>18}{'after shrinking':>17}")
    for name, simulation in chosen.items():
        one = simulation()
        print(
            f"{name:22}{one.runs:6}{one.failed:9.2%}{one.failed_plain:9.2%}"
            f"{one.excess:15.2f} pt{one.excess_shrunk:14.2f} pt",
            flush=True,
        )


if __name__ == "__main__":
    main()
