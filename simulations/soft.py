"""Gates by accuracy and by the soft score, on the answers of real checkpoints.

python -m simulations.soft RUN_OF_THE_START RUN... [--gates 500] [--items 200 400] [--seed 1]

Each RUN is a run's folder. Of every benchmark that it has in common with the start, so many items are drawn without
replacement for each gate, and judged by the rules of ``simulations.contest`` and by the product's gate with
``--eval-set gate_metric=soft``.

- *equal*: for each item it is a toss which of the two checkpoints counts as the new one, so that neither is better.
  What fails is a false alarm.
- *scaled*: the start with all margins divided by 1.5, so that no answer changes. What fails is a false alarm too.
- *worse*, *better*, *same*: the new checkpoint as it is, by what accuracy on all items says: beyond 1.96 standard
  errors of the paired difference, or not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.comparison_verdicts import columns
from pytest_touchstone.compare.load import read_file
from pytest_touchstone.core.aggregation import LOGPROB_MARGIN
from pytest_touchstone.core.aggregation import SOFT as SOFT_SCORE
from pytest_touchstone.statistics.paired import signed_ranks
from simulations.contest import Answer, Suite, Task, a_point, nemo_code, ours, z_test
from simulations.gates import METRIC, PLAIN, Bench, failed, gate_of

SOFT: Final = replace(PLAIN, metrics=(SOFT_SCORE,))
Z: Final = 1.96


def soft(suite: Suite) -> Answer:
    """Return the shipped gate by the soft score and accuracy together."""
    gate = gate_of(suite.new, suite.earlier, SOFT)
    unsure = any(line.comparison.verdict == "inconclusive" for line in gate.lines)
    return "fails" if failed(gate) else "cannot tell" if unsure else "passes"


def fixed(suite: Suite) -> Answer:
    """Return a number written once: two points below the true level, which is that of the start on all items, or of
    both where they are to be equal. SGLang's nightly tests allow as much (``test_nightly_math_eval.py``)."""
    (task,) = suite.tasks
    return "fails" if suite.pairs[0][1].mean() < task.accuracy - 0.02 else "passes"


RULES: Final[Mapping[str, Callable[[Suite], Answer]]] = {
    "soft": soft,
    "accuracy": ours,
    "NeMo, code": nemo_code,
    "lm-eval z-test": z_test,
    "a point": a_point,
    "fixed": fixed,
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A benchmark's scores of the start and of a checkpoint on the items that both have: accuracy, then the margins,
    the start's first."""

    name: str
    hard: np.ndarray
    margins: np.ndarray

    @property
    def truth(self) -> str:
        """What accuracy says on all items."""
        moved = self.hard[1] - self.hard[0]
        error = float(moved.std(ddof=1)) / len(moved) ** 0.5
        z = float(moved.mean()) / error if error else 0.0
        return "worse" if z < -Z else "better" if z > Z else "same"

    def rescaled(self) -> Pair:
        """Return the start, and the start with flatter log-probabilities."""
        start, margins = self.hard[0], self.margins[0]
        return Pair(self.name, np.array([start, start]), np.array([margins, margins / 1.5]))

    def drawn(self, items: int, equal: bool, generator: np.random.Generator) -> Suite:
        """Return a suite of some of the items, with the checkpoints of each tossed if they are to be equal."""
        chosen = generator.choice(self.hard.shape[1], items, replace=False)
        hard, margins = self.hard[:, chosen], self.margins[:, chosen]
        if equal:
            turned = generator.random(items) < 0.5
            hard, margins = (np.where(turned, one[::-1], one) for one in (hard, margins))
        bench = Bench(self.name, items)
        old, new = (
            {METRIC: hard[place], SOFT_SCORE: np.array(signed_ranks(margins[place]))} for place in (0, 1)
        )
        level = self.hard if equal else self.hard[0]
        task = Task(self.name, items, float(level.mean()), "critical")
        return Suite(
            [task], [(hard[0], hard[1])], [bench.result(old, "old")], [bench.result(new, "new", began=1.0)]
        )


def pairs_of(
    start: Mapping[str, BenchmarkScores], other: Mapping[str, BenchmarkScores], name: str
) -> Iterator[Pair]:
    """Yield the pairs of the benchmarks that both have with soft scores."""
    for benchmark in start.keys() & other.keys():
        old, new = start[benchmark], other[benchmark]
        if LOGPROB_MARGIN in old.items.scores and LOGPROB_MARGIN in new.items.scores:
            both = (columns(new.items, [old.items], score) for score in (old.saved.primary, LOGPROB_MARGIN))
            found = [np.array([*one.baselines, one.new]) for one in both]
            yield Pair(f"{benchmark}, {name}", *found)


def rates(
    pairs: Sequence[Pair], items: int, gates: int, seed: int, *, equal: bool
) -> dict[str, dict[Answer, float]]:
    """By rule: the shares of gates that fail, pass, and cannot tell, in the mean over the pairs."""
    generator = np.random.default_rng(seed)
    counts = {name: dict.fromkeys(("fails", "passes", "cannot tell"), 0.0) for name in RULES}
    for pair in pairs:
        for _ in range(gates):
            suite = pair.drawn(min(items, pair.hard.shape[1]), equal, generator)
            for name, rule in RULES.items():
                counts[name][rule(suite)] += 1 / gates / len(pairs)
    return counts  # type: ignore[return-value]  # the keys are answers


def entries(folder: Path) -> dict[str, Mapping[str, BenchmarkScores]]:
    """Return the results of a run's checkpoints, by name."""
    return {one.name: one.entries for one in read_file(folder, {}).candidates}


def main() -> None:
    """Print, by kind of pair, number of items and rule, the shares of gates that fail, and that cannot tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("start", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--gates", type=int, default=500)
    parser.add_argument("--items", type=int, nargs="+", default=[200, 400])
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    (start,) = entries(told.start).values()
    pairs = [
        pair
        for run in told.runs
        for name, other in entries(run).items()
        for pair in pairs_of(start, other, f"{run.name} {name}")
    ]
    scaled = list({one.hard[0].tobytes(): one.rescaled() for one in pairs}.values())
    kinds = {kind: [one for one in pairs if one.truth == kind] for kind in ("worse", "same", "better")}
    print(f"{'fails (cannot tell)':28}{'items':>6}{'pairs':>6}" + "".join(f"{name:>18}" for name in RULES))
    for items in told.items:
        for kind, mine in {"equal": pairs, "scaled": scaled, **kinds}.items():
            if mine:
                found = rates(mine, items, told.gates, told.seed, equal=kind == "equal")
                cells = [f"{one['fails']:.1%} ({one['cannot tell']:.1%})" for one in found.values()]
                print(f"{kind:28}{items:6}{len(mine):6}" + "".join(f"{one:>18}" for one in cells), flush=True)


if __name__ == "__main__":
    main()
