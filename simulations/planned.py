"""The predictions of a plan against the decisions of the shipped gate: power, "not worse", and the pooled verdict.

python -m simulations.planned [--runs 2000] [--seed 1] [--only NAME]

Each simulated gate is the product's (``compare.gate.decide``), on benchmarks of which a share of the items flips and
the first one, or all, lose the drop. The predictions are those of ``touchstone baseline plan`` and of the gate's own
lines (``statistics.power``), from the true share of flips.

- *worse*: the share of gates in which the first benchmark is called worse; *not worse*: in which it is called not
  worse or better; *fails*: that fail; *pooled*: whose line of all items is worse.
- *z*: the difference of measured and predicted in standard errors of the simulation. The prediction of *worse* is that
  of Holm's first step: where several benchmarks lose, more is found.
- *composite*: the same gates where a sum of the benchmarks with equal weights is compared too
  (``gate_metric``), and is one more test in Holm's family; *worse, sum*: the share in which it is called worse.
- *best of 11*: the new result against the best of 11 equal ones (``simulations.selection``), where the prediction
  is that against a single one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.result import GateResult
from pytest_touchstone.core.composite import COMPOSITE, Composite, WeightedMetric
from pytest_touchstone.statistics.power import (
    Design,
    binary_design,
    chance_not_worse,
    composite_design,
    pooled_design,
    power_of_drop,
)
from simulations.gate import benches, chances, choose, flipping
from simulations.gates import METRIC, PLAIN, failed, gate_of
from simulations.selection import moved

LUCKY = 11


@dataclass(frozen=True, slots=True)
class Checked:
    """A chance as predicted, and its share among so many simulated gates."""

    what: str
    predicted: float
    measured: float
    runs: int

    @property
    def z(self) -> float:
        """The distance in standard errors; a simulation that should never vary may be off by one gate."""
        error = math.sqrt(max(self.predicted * (1 - self.predicted), 1 / self.runs) / self.runs)
        return (self.measured - self.predicted) / error


def gates(
    runs: int,
    seed: int,
    sizes: Sequence[int],
    flips: float,
    drops: Sequence[float],
    *,
    composite: Composite | None = None,
) -> Iterator[GateResult]:
    """Gates over benchmarks of these sizes, each of which truly loses its drop, and over a ``composite`` of them."""
    generator = np.random.default_rng(seed)
    found = benches(sizes)
    plan = PLAIN if composite is None else replace(PLAIN, metrics=(composite.name,))

    def known(one: BenchmarkScores) -> BenchmarkScores:
        named = [] if composite is None else [composite.plain()]
        return replace(one, saved=replace(one.saved, composites=named))

    for _ in range(runs):
        earlier, new = [], []
        for bench, drop in zip(found, drops, strict=True):
            old, now = flipping(bench.n, drop, flips, generator)
            earlier.append(known(bench.result(old, "old")))
            new.append(known(bench.result(now, "new", began=1.0)))
        yield gate_of(new, earlier, plan)


def against_best(runs: int, seed: int, n: int, accuracy: float, drop: float) -> Iterator[GateResult]:
    """Gates over one benchmark against the best of 11 results of one chance per item, the new one this much below."""
    generator = np.random.default_rng(seed)
    (bench,) = benches((n,))
    easy = chances(accuracy, n, generator)
    new = moved(easy, np.asarray([-drop])) if drop else easy
    for _ in range(runs):
        earlier = [
            bench.result(generator.random(n) < easy, f"c{place}", began=float(place))
            for place in range(LUCKY)
        ]
        yield gate_of([bench.result(generator.random(n) < new, "new", began=99.0)], earlier)


def checked(
    found: Iterator[GateResult],
    designs: Sequence[Design],
    drops: Sequence[float],
    composite: tuple[Design, float] | None = None,
) -> list[Checked]:
    """Return the predictions about the first benchmark and about all of them, with what the gates did; ``composite`` is
    the design of a sum of them, and what it loses."""
    worse, calm, fails, pooled, sums = [], [], [], [], []
    for gate in found:
        first = gate.lines[0]
        worse.append(first.comparison.verdict == "worse")
        calm.append(first.comparison.verdict in ("not worse", "better"))
        fails.append(failed(gate))
        pooled += [line.comparison.verdict == "worse" for line in gate.pooled]
        sums += [line.comparison.verdict == "worse" for line in gate.lines if line.metric == COMPOSITE]
    family = len(designs) + (composite is not None)
    powers = [power_of_drop(one, drop, family=family) for one, drop in zip(designs, drops, strict=True)]
    rows = [
        ("worse", powers[0], worse),
        ("not worse", chance_not_worse(designs[0], drop=drops[0]), calm),
    ]
    whole = 1 - math.prod(1 - power for power in powers)
    if composite is not None:
        power = power_of_drop(*composite, family=family)
        rows.append(("worse, sum", power, sums))
        whole = max(whole, power)
    rows.append(("fails", whole, fails))
    if pooled:
        total = sum(one.items for one in designs)
        mean = math.fsum(one.items * drop for one, drop in zip(designs, drops, strict=True)) / total
        rows.append(("pooled", power_of_drop(pooled_design(designs), mean), pooled))
    return [Checked(what, predicted, float(np.mean(all_)), len(all_)) for what, predicted, all_ in rows]


def check(runs: int, seed: int, sizes: Sequence[int], flips: float, drops: Sequence[float]) -> list[Checked]:
    """Compare predictions with gates for benchmarks of right and wrong answers."""
    designs = [binary_design(n, flips) for n in sizes]
    return checked(gates(runs, seed, sizes, flips, drops), designs, drops)


def check_composite(
    runs: int, seed: int, sizes: Sequence[int], flips: float, drops: Sequence[float]
) -> list[Checked]:
    """Compare predictions with gates for a composite of all benchmarks with equal weights."""
    share = 1 / len(sizes)
    made = Composite("sum", tuple(WeightedMetric(share, bench.name, METRIC) for bench in benches(sizes)))
    designs = [binary_design(n, flips) for n in sizes]
    whole = composite_design([replace(one, spread=share * one.spread) for one in designs])
    lost = math.fsum(drops) / len(drops)
    return checked(gates(runs, seed, sizes, flips, drops, composite=made), designs, drops, (whole, lost))


def check_best(runs: int, seed: int, n: int, accuracy: float, drop: float) -> list[Checked]:
    """Compare predictions with gates against the best of 11.

    The share of flips is that of two results with equal chances.
    """
    easy = chances(accuracy, n, np.random.default_rng(seed))
    design = binary_design(n, float(2 * np.mean(easy * (1 - easy))))
    return checked(against_best(runs, seed, n, accuracy, drop), [design], [drop])


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], list[Checked]]]:
    """All simulations by name; each has a generator of its own."""
    return {
        "one of 3 of 2400 loses 2": lambda: check(runs, seed, (2400,) * 3, 0.15, (0.02, 0, 0)),
        "one of 3 of 2400 loses 3": lambda: check(runs, seed + 1, (2400,) * 3, 0.15, (0.03, 0, 0)),
        "all of 3 of 2400 lose 2": lambda: check(runs, seed + 2, (2400,) * 3, 0.15, (0.02,) * 3),
        "all of 6 of 400 lose 3": lambda: check(runs, seed + 3, (400,) * 6, 0.2, (0.03,) * 6),
        "nothing lost, 6 of 400": lambda: check(runs, seed + 4, (400,) * 6, 0.2, (0.0,) * 6),
        "one of 164 loses 10": lambda: check(runs, seed + 5, (164,), 0.2, (0.1,)),
        "nothing lost, 8000, few flips": lambda: check(runs, seed + 6, (8000,), 0.05, (0.0,)),
        "composite, one of 3 loses 3": lambda: check_composite(
            runs, seed + 9, (2400,) * 3, 0.15, (0.03, 0, 0)
        ),
        "composite, all of 3 lose 2": lambda: check_composite(
            runs, seed + 10, (2400,) * 3, 0.15, (0.02,) * 3
        ),
        "composite, 6 of 400 lose 3": lambda: check_composite(runs, seed + 11, (400,) * 6, 0.2, (0.03,) * 6),
        "composite, nothing lost": lambda: check_composite(runs, seed + 12, (400,) * 6, 0.2, (0.0,) * 6),
        "best of 11, 2400, loses 3": lambda: check_best(runs, seed + 7, 2400, 0.6, 0.03),
        "best of 11, 2400, nothing lost": lambda: check_best(runs, seed + 8, 2400, 0.6, 0.0),
    }


def main() -> None:
    """Print each chance as predicted and as measured."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':32}{'':10}{'gates':>7}{'predicted':>11}{'measured':>10}{'z':>7}")
    for name, simulation in chosen.items():
        for one in simulation():
            numbers = f"{one.runs:7}{one.predicted:11.2%}{one.measured:10.2%}{one.z:+7.1f}"
            print(f"{name:32}{one.what:10}{numbers}", flush=True)


if __name__ == "__main__":
    main()
