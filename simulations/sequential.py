"""The savings and error rates of stopping early: the same simulated runs judged at interim analyses and at the end.

python -m simulations.sequential [--runs 2000] [--seed 1] [--only NAME]

Every gate is the product's: ``pytest_touchstone.compare.sequential.SequentialMonitor`` follows the records of a run, in
the order that ``draw_schedule`` gives, against the baseline that ``best`` finds; what it settles goes to
``pytest_touchstone.compare.gate.decide.decide``. Only the journal is in memory. A gate without a
baseline ends the simulation.

A gate of benchmarks on which 85 % of the items keep their verdict, analysed after each fifth of the items. *fails*:
the share of gates that fail; *at the end*: the same of all items without interim analyses. *saved*: the items that
were not asked, of all benchmarks' items. *not worse*: the share of single benchmarks called so, which at the margin
is an error.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.gate.result import GateResult
from pytest_touchstone.compare.sequential import InterimSchedule, SequentialMonitor, draw_schedule
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.statistics.verdicts import MARGIN
from simulations.gate import SIZES, benches, choose, flipping
from simulations.gates import METRIC, PLAIN, STRICT, Bench, failed, gate_of, manifest_of, source_of

THREE: Final = (2400, 2400, 2400)
FLIPS: Final = 0.15
NEW: Final = "new"


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of gates that failed with interim analyses and without, of items saved, and of benchmarks called not
    worse with and without them."""

    runs: int
    failed: float
    failed_at_end: float
    saved: float
    not_worse: float
    not_worse_at_end: float


@dataclass(slots=True)
class Asked:
    """A benchmark in the order in which it is asked, and for every item the record of a wrong and of a right answer."""

    bench: Bench
    order: list[int] = field(init=False)
    schedule: InterimSchedule = field(init=False)
    records: list[tuple[Record, Record]] = field(init=False)

    def __post_init__(self) -> None:
        bench = self.bench
        self.order, self.schedule = draw_schedule(
            bench.examples, bench.examples, bench.rows, [None] * bench.n, seed=0
        )
        self.records = [
            (_record(bench.name, example, row, 0.0), _record(bench.name, example, row, 1.0))
            for example, row in zip(self.schedule.examples, self.schedule.rows, strict=True)
        ]

    def answered(self, right: np.ndarray) -> list[Record]:
        """Return the records of a run, in the order in which it asks."""
        return [
            records[which] for records, which in zip(self.records, right[self.order].tolist(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Answered:
    """The journal of a run that has answered everything."""

    records: Sequence[Record]

    def new(self) -> list[Record]:
        """All records: the monitor reads them once."""
        return list(self.records)


def _record(benchmark: str, example: str, row: str, score: float) -> Record:
    return Record(
        item=example,
        benchmark=benchmark,
        example=example,
        checkpoint=NEW,
        status="scored",
        scores={METRIC: score},
        row=row,
    )


def gates(
    runs: int,
    seed: int,
    sizes: Sequence[int],
    drops: Sequence[float],
    *,
    flips: float = FLIPS,
    strict: bool = False,
    earlier: int = 1,
) -> Rates:
    """Gates over benchmarks of these sizes with these true drops, against the best of so many equal earlier results."""
    generator = np.random.default_rng(seed)
    plan = replace(STRICT if strict else PLAIN, sequential=True)
    asked = [Asked(bench) for bench in benches(sizes)]
    fails = at_end = items = calm = calm_at_end = 0
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder))
        directory.manifest.write_text(json.dumps(manifest_of(NEW, 1.0)), encoding="utf-8")
        for _ in range(runs):
            pairs = [
                answered(one.bench.n, drop, flips, earlier, generator)
                for one, drop in zip(asked, drops, strict=True)
            ]
            looked, whole, seen = both(asked, pairs, plan, directory)
            fails += failed_by_worse(looked)
            at_end += failed_by_worse(whole)
            items += seen
            calm += sum(line.comparison.verdict == "not worse" for line in looked.lines)
            calm_at_end += sum(line.comparison.verdict == "not worse" for line in whole.lines)
    tests = runs * len(sizes)
    return Rates(
        runs, fails / runs, at_end / runs, 1 - items / (runs * sum(sizes)), calm / tests, calm_at_end / tests
    )


def answered(
    n: int, drop: float, flips: float, earlier: int, generator: np.random.Generator
) -> tuple[list[np.ndarray], np.ndarray]:
    """Earlier results on n items, and a new one: of two this share flips. The chances of several to be right come from
    a beta distribution with mean 0.5."""
    if earlier == 1:
        old, new = flipping(n, drop, flips, generator)
        return [old], new
    a = flips / (1 - 2 * flips)
    easy = generator.beta(a, a, n)
    return list(generator.random((earlier, n)) < easy), generator.random(n) < easy * (1 - 2 * drop)


def failed_by_worse(gate: GateResult) -> bool:
    """Return whether the gate fails for a reason other than being strict and inconclusive."""
    return failed(gate) and any(line.comparison.verdict == "worse" for line in gate.lines)


def both(
    asked: Sequence[Asked],
    pairs: Sequence[tuple[Sequence[np.ndarray], np.ndarray]],
    plan: GateConfig,
    directory: RunDirectory,
) -> tuple[GateResult, GateResult, int]:
    """Return the gate with interim analyses and the one of all items, and the number of items that the first asked."""
    earlier = [
        one.bench.result(old, f"old {place}", began=-place)
        for one, (olds, _) in zip(asked, pairs, strict=True)
        for place, old in enumerate(olds)
    ]
    everything = [one.bench.result(new, NEW, began=1.0) for one, (_, new) in zip(asked, pairs, strict=True)]
    monitor = SequentialMonitor(
        directory,
        {(NEW, one.bench.name): one.schedule for one in asked},
        {one.bench.name: one.bench.declaration for one in asked},
        source_of(earlier),
        plan,
        Answered(
            [record for one, (_, new) in zip(asked, pairs, strict=True) for record in one.answered(new)]
        ),
    )
    stops = {benchmark: early.stop.items for (_, benchmark), early in monitor.early().items() if early.stop}
    stopped = [  # the last analysis always stops: one that is missing has no baseline, a KeyError
        one.bench.result(new, NEW, began=1.0, asked=stops[one.bench.name])
        for one, (_, new) in zip(asked, pairs, strict=True)
    ]
    looked = gate_of(stopped, earlier, plan, monitor.early())
    return looked, gate_of(everything, earlier, plan), sum(stops.values())


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
        "no drop, best of 8": lambda: gates(runs, seed + 9, (1000,) * 3, (0.0,) * 3, earlier=8),
        "one of 3 drops 3, best of 8": lambda: gates(
            runs, seed + 10, (1000,) * 3, (0.03, 0.0, 0.0), earlier=8
        ),
        "at the margin, few flips": lambda: gates(runs, seed + 7, (8000,) * 3, (MARGIN,) * 3, flips=0.05),
        "no drop, few flips, strict": lambda: gates(
            runs, seed + 8, (8000,) * 3, (0.0,) * 3, flips=0.05, strict=True
        ),
    }


def main() -> None:
    """Print errors and savings."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':32}{'runs':>6}{'fails':>9}{'at the end':>12}{'saved':>8}{'not worse':>11}{'at the end':>12}")
    for name, simulation in chosen.items():
        one = simulation()
        print(
            f"{name:32}{one.runs:6}{one.failed:9.2%}{one.failed_at_end:12.2%}{one.saved:8.1%}"
            f"{one.not_worse:11.2%}{one.not_worse_at_end:12.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
