"""How often the gate fails over a checkpoint compared with itself, and how often it catches a real drop.

python -m tests.statistics.simulate_gate [--runs 2000] [--seed 1] [--only NAME]

- *same*: 10 benchmarks of 200 to 2400 items, accuracies 0.3 to 0.9. Each item has its own chance of being right, the
  same in both runs (a beta distribution in which items are mostly easy or mostly hard), and each run its own luck:
  only the sampling seeds differ. *same, texts* lets the luck of up to three items of a text go together.
- *drop*: one of 3 benchmarks loses 3 points; it has 2400 items, of which 85 % keep their verdict (6 % are gained, 9 %
  lost). The other two flip as many items without a loss.
- *uncorrected limit*: the same runs, with a benchmark also called worse where the upper limit of its own 95 %
  interval is below -m. *subjects* is that on 18 benchmarks of 100 items.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from harness.statistics.comparison import Comparison
from harness.statistics.paired import compare_flips, compare_paired
from harness.statistics.verdicts import MARGIN, gate_fails, judge

T = TypeVar("T")

SIZES: Final = (200, 2400, 440, 1900, 700, 1660, 930, 1420, 1180, 2150)
ACCURACIES: Final = tuple(np.linspace(0.3, 0.9, 10).tolist())
SUBJECTS: Final = ((100,) * 18, tuple(np.linspace(0.3, 0.7, 18).tolist()))
CONCENTRATION: Final = 1.5


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of simulated gates: that failed, that failed by uncorrected limits, that said worse of any benchmark by
    its own p alone."""

    runs: int
    failed: float
    uncorrected_limit: float
    uncorrected_p: float


def chances(accuracy: float, n: int, generator: np.random.Generator) -> np.ndarray:
    """Each item's chance of being right; their mean is near the accuracy."""
    found: np.ndarray = generator.beta(CONCENTRATION * accuracy, CONCENTRATION * (1 - accuracy), n)
    return found


def same_twice(
    runs: int, generator: np.random.Generator, sizes: tuple[int, ...], accuracies: tuple[float, ...]
) -> Iterator[dict[str, Comparison]]:
    """The comparisons of so many pairs of runs of one checkpoint."""
    columns = []
    for n, accuracy in zip(sizes, accuracies, strict=True):
        right = chances(accuracy, n, generator)
        cells = []
        for start in range(0, runs, 200):
            first, second = generator.random((2, min(200, runs - start), n)) < right
            counts = [first & second, ~first & second, first & ~second, ~first & ~second]
            cells.append(np.stack([one.sum(axis=1) for one in counts], axis=1))
        columns.append(np.concatenate(cells))
    for run in range(runs):
        yield {str(place): compare_flips(*map(int, column[run])) for place, column in enumerate(columns)}


def same_twice_with_texts(runs: int, generator: np.random.Generator) -> Iterator[dict[str, Comparison]]:
    """The same where each run's luck is partly that of a text of up to three items."""
    prepared = []
    for n, accuracy in zip(SIZES, ACCURACIES, strict=True):
        texts = np.repeat(np.arange(n), generator.integers(1, 4, n))[:n]
        prepared.append((chances(accuracy, n, generator), texts))
    for _ in range(runs):
        found = {}
        for place, (right, texts) in enumerate(prepared):
            pair = []
            for _side in range(2):
                shared = generator.random(texts[-1] + 1)[texts]
                own = generator.random(len(right))
                pair.append(np.where(generator.random(len(right)) < 0.5, shared, own) < right)
            found[str(place)] = compare_paired(*(one.astype(float).tolist() for one in pair), texts.tolist())
        yield found


def one_drop(
    runs: int, generator: np.random.Generator, drop: float = 0.03
) -> Iterator[dict[str, Comparison]]:
    """A gate of 3 benchmarks of 2400 items, the first of which loses; 85 % of the items keep their verdict."""
    even = [0.6, 0.075, 0.075, 0.25]
    uneven = [0.6, 0.075 - drop / 2, 0.075 + drop / 2, 0.25]
    cells = [generator.multinomial(2400, one, size=runs) for one in (uneven, even, even)]
    for run in range(runs):
        yield {str(place): compare_flips(*map(int, one[run])) for place, one in enumerate(cells)}


def rates(gates: Iterator[dict[str, Comparison]]) -> Rates:
    """What became of the gates, by the rule and by the two that correct nothing."""
    failed, limit, alone = [], [], []
    for comparisons in gates:
        failed.append(gate_fails(judge(comparisons).values()))
        limit.append(failed[-1] or any(_below(one) for one in comparisons.values()))
        alone.append(any(_worse_alone(one) for one in comparisons.values()))
    return Rates(len(failed), *(float(np.mean(one)) for one in (failed, limit, alone)))


def _below(one: Comparison) -> bool:
    return one.high is not None and one.high < -MARGIN


def _worse_alone(one: Comparison) -> bool:
    return judge({"alone": one})["alone"].kind == "worse"


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], Rates]]:
    """All simulations by name; each has a generator of its own."""
    few = max(1, runs // 4)
    return {
        "same": lambda: rates(same_twice(runs, np.random.default_rng(seed), SIZES, ACCURACIES)),
        "same, subjects": lambda: rates(same_twice(runs, np.random.default_rng(seed + 1), *SUBJECTS)),
        "same, texts": lambda: rates(same_twice_with_texts(few, np.random.default_rng(seed + 2))),
        "drop of 3 points": lambda: rates(one_drop(runs, np.random.default_rng(seed + 3))),
    }


def main() -> None:
    """Prints the shares of gates that fail."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':20}{'runs':>8}{'fails':>10}{'uncorrected limit':>20}{'uncorrected p':>16}")
    for name, simulation in chosen.items():
        one = simulation()
        print(
            f"{name:20}{one.runs:8}{one.failed:10.2%}{one.uncorrected_limit:20.2%}{one.uncorrected_p:16.2%}"
        )


def choose(
    text: str, simulations_: Callable[[int, int], Mapping[str, Callable[[], T]]]
) -> dict[str, Callable[[], T]]:
    """The simulations that the command line asks for."""
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
