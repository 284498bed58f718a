"""The shares of gates that fail over a checkpoint as good as its baseline, and that catch a real drop.

python -m simulations.gate [--runs 2000] [--seed 1] [--only NAME]

Every gate is the product's: saved results in memory, compared by ``pytest_touchstone.compare.gate.decide.decide``.

- *same*: 10 benchmarks of 200 to 2400 items, accuracies 0.3 to 0.9. Each item has its own chance of being right, the
  same for both checkpoints (a beta distribution in which items are mostly easy or mostly hard), and each its own luck.
  *same, subjects* is that on 18 benchmarks of 100 items; *same, texts* lets up to three items of a text share their
  luck.
- *same, half identical*: one checkpoint twice; on five of the ten benchmarks every item scores as before (the answers
  are not drawn), which the gate knows for identical.
- *same, max_drop* and *same, floors*: every benchmark has ``max_drop`` = 0.05, or a floor 5 points below its accuracy.
- *drop*: one of 3 benchmarks loses 3 points; it has 2400 items, of which 85 % keep their verdict (6 % are gained, 9 %
  lost). The other two flip as many items without a loss. *drop, max_drop*: with ``max_drop`` = 0.03 besides.
- *uncorrected limit*: the same gates, with a benchmark also called worse where the upper limit of its own 95 %
  interval is below -m; *uncorrected p*: where its own p is at most 0.05. For comparison: nothing ships with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import BenchmarkRules, Floor, GateConfig
from pytest_touchstone.compare.gate.result import GateResult
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN
from simulations.gates import METRIC, PLAIN, Bench, failed, gate_of

T = TypeVar("T")

SIZES: Final = (200, 2400, 440, 1900, 700, 1660, 930, 1420, 1180, 2150)
ACCURACIES: Final = tuple(np.linspace(0.3, 0.9, 10).tolist())
SUBJECTS: Final = ((100,) * 18, tuple(np.linspace(0.3, 0.7, 18).tolist()))
CONCENTRATION: Final = 1.5
KEPT: Final = 0.05
"""The loss that floors and ``max_drop`` allow."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of simulated gates: that failed, that would have by uncorrected limits, and by uncorrected p."""

    runs: int
    failed: float
    uncorrected_limit: float
    uncorrected_p: float


def chances(accuracy: float, n: int, generator: np.random.Generator) -> np.ndarray:
    """Each item's chance of being right; their mean is near the accuracy."""
    found: np.ndarray = generator.beta(CONCENTRATION * accuracy, CONCENTRATION * (1 - accuracy), n)
    return found


def benches(sizes: Sequence[int]) -> list[Bench]:
    """Benchmarks of these sizes, whose items share nothing."""
    return [Bench(f"bench{place}", n) for place, n in enumerate(sizes)]


def same_twice(
    runs: int,
    seed: int,
    sizes: Sequence[int] = SIZES,
    accuracies: Sequence[float] = ACCURACIES,
    *,
    plan: GateConfig = PLAIN,
    identical: int = 0,
) -> Iterator[GateResult]:
    """Gates of a checkpoint against one as good; or, where so many benchmarks are ``identical``, of one against
    itself."""
    generator = np.random.default_rng(seed)
    found = benches(sizes)
    easy = [chances(accuracy, n, generator) for n, accuracy in zip(sizes, accuracies, strict=True)]
    name = "old" if identical else "new"
    for _ in range(runs):
        earlier: list[BenchmarkScores] = []
        new: list[BenchmarkScores] = []
        for place, (bench, right) in enumerate(zip(found, easy, strict=True)):
            first, second = generator.random((2, bench.n)) < right
            earlier.append(bench.result(first, "old"))
            new.append(bench.result(first if place < identical else second, name, began=1.0))
        yield gate_of(new, earlier, plan)


def same_twice_with_texts(runs: int, seed: int) -> Iterator[GateResult]:
    """Yield pairs without a change, where part of each result's luck is that of a text of up to three items."""
    generator = np.random.default_rng(seed)
    prepared = []
    for place, (n, accuracy) in enumerate(zip(SIZES, ACCURACIES, strict=True)):
        texts = np.repeat(np.arange(n), generator.integers(1, 4, n))[:n]
        bench = Bench(f"bench{place}", n, [f"text {text}" for text in texts])
        prepared.append((bench, chances(accuracy, n, generator), texts))
    for _ in range(runs):
        earlier, new = [], []
        for bench, right, texts in prepared:
            first, second = (_by_texts(right, texts, generator) for _side in range(2))
            earlier.append(bench.result(first, "old"))
            new.append(bench.result(second, "new", began=1.0))
        yield gate_of(new, earlier)


def _by_texts(right: np.ndarray, texts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    shared = generator.random(texts[-1] + 1)[texts]
    own = generator.random(len(right))
    return np.where(generator.random(len(right)) < 0.5, shared, own) < right


def one_drop(runs: int, seed: int, drop: float = 0.03, *, plan: GateConfig = PLAIN) -> Iterator[GateResult]:
    """Gates of 3 benchmarks of 2400 items, the first of which loses; 85 % of the items keep their verdict."""
    generator = np.random.default_rng(seed)
    found = benches((2400, 2400, 2400))
    for _ in range(runs):
        earlier, new = [], []
        for bench, lost in zip(found, (drop, 0.0, 0.0), strict=True):
            first, second = flipping(bench.n, lost, 0.15, generator)
            earlier.append(bench.result(first, "old"))
            new.append(bench.result(second, "new", began=1.0))
        yield gate_of(new, earlier, plan)


def flipping(
    n: int, drop: float, flips: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Two results on n items of which 60 % are right in both and this share differs, with this true drop."""
    shares = [0.6, (flips - drop) / 2, (flips + drop) / 2, 0.4 - flips]  # both, gained, lost, neither
    kind = np.searchsorted(np.cumsum(shares)[:-1], generator.random(n), side="right")
    return (kind == 0) | (kind == 2), kind <= 1


def rates(gates: Iterator[GateResult]) -> Rates:
    """Return the outcomes of the gates, by the product's rule and by the two that correct nothing."""
    failures, limit, alone = [], [], []
    for gate in gates:
        failures.append(failed(gate))
        limit.append(failures[-1] or any(_below(line) for line in gate.lines))
        alone.append(any(_worse_alone(line) for line in gate.lines))
    return Rates(len(failures), *(float(np.mean(one)) for one in (failures, limit, alone)))


def _below(line: BenchmarkComparison) -> bool:
    return line.comparison.high is not None and line.comparison.high < -MARGIN


def _worse_alone(line: BenchmarkComparison) -> bool:
    certain = line.comparison.p is not None and line.comparison.p <= ALPHA
    return certain and line.comparison.difference is not None and line.comparison.difference < -MARGIN


def _own(sizes: Sequence[int], **asked: Any) -> GateConfig:
    return replace(
        PLAIN, benchmarks={f"bench{place}": BenchmarkRules(**asked) for place in range(len(sizes))}
    )


def _floors() -> GateConfig:
    own = {
        f"bench{place}": BenchmarkRules(floors=(Floor(METRIC, ">=", accuracy - KEPT),))
        for place, accuracy in enumerate(ACCURACIES)
    }
    return replace(PLAIN, benchmarks=own)


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], Rates]]:
    """All simulations by name; each has a generator of its own."""
    few = max(1, runs // 4)
    own = _own(SIZES, max_drop=KEPT)
    three = _own((2400,) * 3, max_drop=0.03)
    return {
        "same": lambda: rates(same_twice(runs, seed)),
        "same, subjects": lambda: rates(same_twice(runs, seed + 1, *SUBJECTS)),
        "same, texts": lambda: rates(same_twice_with_texts(few, seed + 2)),
        "same, half identical": lambda: rates(same_twice(runs, seed + 4, identical=5)),
        "same, max_drop": lambda: rates(same_twice(runs, seed + 5, plan=own)),
        "same, floors": lambda: rates(same_twice(runs, seed + 6, plan=_floors())),
        "drop of 3 points": lambda: rates(one_drop(runs, seed + 3)),
        "drop of 3 points, max_drop": lambda: rates(one_drop(runs, seed + 7, plan=three)),
    }


def main() -> None:
    """Print the shares of gates that fail."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':28}{'runs':>6}{'fails':>9}{'uncorrected limit':>20}{'uncorrected p':>16}")
    for name, simulation in chosen.items():
        one = simulation()
        print(
            f"{name:28}{one.runs:6}{one.failed:9.2%}{one.uncorrected_limit:20.2%}{one.uncorrected_p:16.2%}",
            flush=True,
        )


def choose(
    text: str, simulations_: Callable[[int, int], Mapping[str, Callable[[], T]]]
) -> dict[str, Callable[[], T]]:
    """Return the simulations that the command line asks for."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", metavar="NAME", help="may be given several times")
    options = parser.parse_args()
    known = simulations_(options.runs, options.seed)
    for name in options.only or ():
        if name not in known:
            parser.error(f"no simulation {name!r}; there are: {'; '.join(known)}")
    return {name: one for name, one in known.items() if name in (options.only or known)}


if __name__ == "__main__":
    main()
