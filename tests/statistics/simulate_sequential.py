"""What stopping early saves, and that it costs no error: the same simulated runs judged at looks and at the end.

python -m tests.statistics.simulate_sequential [--runs 2000] [--seed 1] [--only NAME]

A gate of benchmarks on which 85 % of the items keep their verdict, looked at after each fifth of the items.
*fails*: the share of gates that say worse of any benchmark; *at the end*: the same of all items by the rule without
looks. *saved*: the items that were not asked, of all benchmarks' items. *not worse*: the share of single benchmarks
called so, which at the margin is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.statistics.paired import compare_flips
from harness.statistics.sequential import FRACTIONS, Plan, Stop, look_at, plan_looks
from harness.statistics.verdicts import MARGIN, gate_fails, judge
from tests.statistics.simulate_gate import SIZES, choose

THREE: Final = (2400, 2400, 2400)
FLIPS: Final = 0.15


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of gates that failed with looks and without, of items saved, and of benchmarks called not worse with
    looks and without."""

    runs: int
    failed: float
    failed_at_end: float
    saved: float
    not_worse: float
    not_worse_at_end: float


def gates(
    runs: int,
    seed: int,
    sizes: Sequence[int],
    drops: Sequence[float],
    *,
    flips: float = FLIPS,
    strict: bool = False,
) -> Rates:
    """Gates over benchmarks of these sizes with these true drops."""
    generator = np.random.default_rng(seed)
    plans = {n: plan_looks(looks_of(n), family=len(sizes), strict=strict) for n in set(sizes)}
    failed = at_end = asked = 0
    calm, calm_at_end = 0, 0
    for _ in range(runs):
        stops, ends = [], {}
        for place, (n, drop) in enumerate(zip(sizes, drops, strict=True)):
            cells = segments(n, drop, flips, generator)
            stops.append(follow(plans[n], cells))
            ends[str(place)] = compare_flips(*map(int, cells.sum(axis=0)))
        verdicts = judge(ends)
        failed += any(stop.kind == "worse" for stop in stops)
        at_end += gate_fails(verdicts.values())
        asked += sum(stop.items for stop in stops)
        calm += sum(stop.kind == "not worse" for stop in stops)
        calm_at_end += sum(one.kind == "not worse" for one in verdicts.values())
    tests = runs * len(sizes)
    return Rates(
        runs, failed / runs, at_end / runs, 1 - asked / (runs * sum(sizes)), calm / tests, calm_at_end / tests
    )


def looks_of(n: int) -> tuple[int, ...]:
    return tuple(round(fraction * n) for fraction in FRACTIONS)


def segments(n: int, drop: float, flips: float, generator: np.random.Generator) -> np.ndarray:
    """Items both right, gained, lost and both wrong, newly seen at each look."""
    shares = [0.6, (flips - drop) / 2, (flips + drop) / 2, 0.4 - flips]
    looks = looks_of(n)
    return np.stack(
        [generator.multinomial(now - before, shares) for before, now in zip((0, *looks), looks, strict=False)]
    )


def follow(plan: Plan, cells: np.ndarray) -> Stop:
    """Where the looks stop."""
    for look, seen in enumerate(np.cumsum(cells, axis=0)):
        stop = look_at(plan, look, compare_flips(*map(int, seen), level=plan.levels[look]))
        if stop is not None:
            return stop
    raise AssertionError("the last look always stops")


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], Rates]]:
    """All simulations by name; each has a generator of its own."""
    return {
        "no drop, 3 of 2400": lambda: gates(runs, seed, THREE, (0.0,) * 3),
        "no drop, 10 benchmarks": lambda: gates(runs, seed + 1, SIZES, (0.0,) * 10),
        "one of 3 drops 3": lambda: gates(runs, seed + 2, THREE, (0.03, 0.0, 0.0)),
        "one of 3 drops 5": lambda: gates(runs, seed + 3, THREE, (0.05, 0.0, 0.0)),
        "all of 3 drop 5": lambda: gates(runs, seed + 4, THREE, (0.05,) * 3),
        "all of 3 drop 8": lambda: gates(runs, seed + 5, THREE, (0.08,) * 3),
        "all of 10 drop 5": lambda: gates(runs, seed + 6, SIZES, (0.05,) * 10),
        "at the margin, few flips": lambda: gates(runs, seed + 7, (8000,) * 3, (MARGIN,) * 3, flips=0.05),
        "no drop, few flips, strict": lambda: gates(
            runs, seed + 8, (8000,) * 3, (0.0,) * 3, flips=0.05, strict=True
        ),
    }


def main() -> None:
    """Prints errors and savings."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':28}{'runs':>6}{'fails':>9}{'at the end':>12}{'saved':>8}{'not worse':>11}{'at the end':>12}")
    for name, simulation in chosen.items():
        one = simulation()
        print(
            f"{name:28}{one.runs:6}{one.failed:9.2%}{one.failed_at_end:12.2%}{one.saved:8.1%}"
            f"{one.not_worse:11.2%}{one.not_worse_at_end:12.2%}"
        )


if __name__ == "__main__":
    main()
