"""Gates of other projects and ours on the same simulated suites: false alarms, misses, and how often each cannot tell.

python -m simulations.contest [--runs 1000] [--seed 1] [--only NAME]

Every rule sees the same two results of each suite. A suite fails, passes, or the rule says that it cannot tell.

- *ours*: ``pytest --gate`` (``compare.gate.decide``), plain, margin one point. It fails where a benchmark is worse:
  p, exact and paired, at most 0.05 after Holm, and a measured loss of more than the margin. Where it does not fail and
  a benchmark is inconclusive, it cannot tell.
- *ours, pooled*: the same with ``pooled = true``: all items together are one more test in Holm's family.
- *NeMo, text*: the policy of the tutorial "Implementing Quality Gates" of NVIDIA NeMo Evaluator 0.3.0
  (docs.nvidia.com/nemo/evaluator/0.3.0/tutorials/quality-gate.html), by its words. A benchmark is in breach where its
  measured drop on the paired items exceeds ``max_drop``: 0.01 for tier "critical", 0.015 for "supporting". "advisory"
  ones never count. Below ``relative_guard_below`` (0.20) of the baseline's accuracy a drop of more than 0.02 of it is
  a breach as well. Fewer than 10 pairs are insufficient evidence. NO-GO for any breach, else INCONCLUSIVE for any
  insufficient evidence, else GO.
- *NeMo, code*: the same policy as the code of the package nemo-evaluator 0.3.0 applies it
  (nemo_evaluator/engine/gate.py; without its clusters by category).
  The relative guard looks at the measured drop. Else a benchmark is in
  breach where the 95 % t interval of the mean paired difference lies beyond ``max_drop``, passes where it lies within,
  and is insufficient evidence where it has ``max_drop`` inside. No correction for the number of benchmarks.
- *lm-eval z-test*: lm-evaluation-harness, scripts/model_comparator.py: z of the difference of the two accuracies by
  their own standard errors, as if the runs had different items; two-tailed p. It marks tasks with p at most 0.05. The
  script has no rule for a suite; here a suite fails where a marked task has become worse. It always can tell.
- *a point*: fails where a measured value has dropped by more than one point. It always can tell.

Suites: *ten benchmarks* of 200 to 2400 items, accuracies 0.3 to 0.9 (``simulations.gate``), every other one critical
and the rest supporting. *few flips*: the same ten, where only 8 % of the items change their verdict from one result to
the other, as with a checkpoint and its quantised form. *tutorial*: the benchmarks of the tutorial's policy with their
published sizes (TriviaQA: 2,000 items). MMLU-Pro and GPQA are critical, HumanEval supporting, AIME 2025 critical with
the relative guard, TriviaQA advisory. Where nothing is said of flips, each item has its own chance of being right, and
each result its own luck; about a quarter of the items flip. A loss "on one" is on a benchmark drawn anew for each
suite (of the tutorial's, MMLU-Pro, GPQA or HumanEval).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.statistics.intervals import t_quantile
from pytest_touchstone.statistics.verdicts import ALPHA
from simulations.gate import ACCURACIES, SIZES, chances, choose
from simulations.gates import PLAIN, Bench, failed, gate_of
from simulations.selection import moved

Answer = Literal["fails", "passes", "cannot tell"]
LOSSES: Final = (0.01, 0.02, 0.03, 0.05)


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark of a suite: its size and accuracy, and the share of items that flip, where that is given.

    It has a tier in a policy of NeMo Evaluator. It may be guarded relatively, and a loss "on one" may fall on it.
    """

    name: str
    n: int
    accuracy: float
    tier: Literal["critical", "supporting", "advisory"]
    guarded: bool = False
    may_lose: bool = True
    flips: float | None = None


TEN: Final = tuple(
    Task(f"bench{place}", n, accuracy, "supporting" if place % 2 else "critical")
    for place, (n, accuracy) in enumerate(zip(SIZES, ACCURACIES, strict=True))
)
FEW: Final = tuple(replace(task, flips=0.08) for task in TEN)
TUTORIAL: Final = (
    Task("mmlu_pro", 12_032, 0.5, "critical"),
    Task("gpqa", 198, 0.45, "critical"),
    Task("humaneval", 164, 0.8, "supporting"),
    Task("aime_2025", 30, 0.15, "critical", guarded=True, may_lose=False),
    Task("triviaqa", 2_000, 0.7, "advisory", may_lose=False),
)

MAX_DROP: Final = {"critical": 0.01, "supporting": 0.015}
RELATIVE_DROP: Final = 0.02
GUARD_BELOW: Final = 0.20
FEWEST: Final = 10


@dataclass(frozen=True, slots=True)
class Suite:
    """A simulated suite: its tasks with the right answers of the earlier and of the new run, and both as results."""

    tasks: Sequence[Task]
    pairs: Sequence[tuple[np.ndarray, np.ndarray]]
    earlier: Sequence[BenchmarkScores]
    new: Sequence[BenchmarkScores]


def suites(runs: int, seed: int, tasks: Sequence[Task], loss: float, everywhere: bool) -> Iterator[Suite]:
    """So many suites in which the new run has truly lost on one task or on all of them."""
    generator = np.random.default_rng(seed)
    found = [Bench(task.name, task.n) for task in tasks]
    easy = [chances(task.accuracy, task.n, generator) for task in tasks]
    losing = [moved(base, np.asarray([-loss])) if loss else base for base in easy]
    possible = [place for place, task in enumerate(tasks) if task.may_lose]
    for _ in range(runs):
        one = int(generator.choice(possible))
        pairs = []
        for place, (task, before, after) in enumerate(zip(tasks, easy, losing, strict=True)):
            loses = everywhere or place == one
            if task.flips is None:
                first, second = generator.random((2, task.n))
                pairs.append((first < before, second < (after if loses else before)))
            else:
                pairs.append(_flipping(task, task.flips, loss if loses else 0.0, generator))
        yield Suite(
            tasks,
            pairs,
            [bench.result(old, "old") for bench, (old, _) in zip(found, pairs, strict=True)],
            [bench.result(new, "new", began=1.0) for bench, (_, new) in zip(found, pairs, strict=True)],
        )


def _flipping(
    task: Task, flips: float, drop: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Two results of which this share of the items differs, with this true drop."""
    shares = [task.accuracy - flips / 2, (flips - drop) / 2, (flips + drop) / 2]  # both right, gained, lost
    kind = np.searchsorted(np.cumsum(shares), generator.random(task.n), side="right")
    return (kind == 0) | (kind == 2), kind <= 1


# The rules


def ours(suite: Suite, *, pooled: bool = False) -> Answer:
    """Return the shipped gate."""
    gate = gate_of(suite.new, suite.earlier, replace(PLAIN, pooled=pooled))
    if failed(gate):
        return "fails"
    unsure = any(line.comparison.verdict == "inconclusive" for line in gate.lines)
    return "cannot tell" if unsure else "passes"


def nemo_text(suite: Suite) -> Answer:
    """NeMo Evaluator's policy by the words of its tutorial."""
    return _nemo(suite, lambda drop, _, most: "fails" if drop > most else "passes")


def nemo_code(suite: Suite) -> Answer:
    """NeMo Evaluator's policy as its code applies it."""
    return _nemo(suite, _by_interval)


def _by_interval(drop: float, half: float, most: float) -> Answer:
    if drop - half > most:
        return "fails"
    return "passes" if drop + half <= most else "cannot tell"


def _nemo(suite: Suite, absolute: Callable[[float, float, float], Answer]) -> Answer:
    found: list[Answer] = []
    for task, (old, new) in zip(suite.tasks, suite.pairs, strict=True):
        if task.tier == "advisory":
            continue
        lost = old.astype(float) - new.astype(float)
        drop, before = float(lost.mean()), float(old.mean())
        if len(lost) < FEWEST:
            found.append("cannot tell")
        elif task.guarded and 0 < before < GUARD_BELOW and drop / before > RELATIVE_DROP:
            found.append("fails")
        else:
            half = t_quantile(len(lost) - 1, 0.95) * float(lost.std(ddof=1)) / math.sqrt(len(lost))
            found.append(absolute(drop, half, MAX_DROP[task.tier]))
    return "fails" if "fails" in found else "cannot tell" if "cannot tell" in found else "passes"


def z_test(suite: Suite) -> Answer:
    """lm-evaluation-harness's comparison of two models, each with its own standard error."""
    for old, new in suite.pairs:
        a, b = float(old.mean()), float(new.mean())
        error = math.sqrt(a * (1 - a) / (len(old) - 1) + b * (1 - b) / (len(new) - 1))
        if a > b and error and math.erfc((a - b) / error / math.sqrt(2)) <= ALPHA:
            return "fails"
    return "passes"


def a_point(suite: Suite) -> Answer:
    """Return "fails" for a measured drop of more than a point."""
    dropped = any(old.mean() - new.mean() > 0.01 + 1e-9 for old, new in suite.pairs)
    return "fails" if dropped else "passes"


RULES: Final[Mapping[str, Callable[[Suite], Answer]]] = {
    "ours": ours,
    "ours, pooled": lambda suite: ours(suite, pooled=True),
    "NeMo, text": nemo_text,
    "NeMo, code": nemo_code,
    "lm-eval z-test": z_test,
    "a point": a_point,
}


def contest(
    runs: int, seed: int, tasks: Sequence[Task], loss: float = 0.0, *, everywhere: bool = False
) -> dict[str, dict[Answer, int]]:
    """By rule: how many of the suites fail, pass, and cannot be told."""
    counts = {name: dict.fromkeys(("fails", "passes", "cannot tell"), 0) for name in RULES}
    for suite in suites(runs, seed, tasks, loss, everywhere):
        for name, rule in RULES.items():
            counts[name][rule(suite)] += 1
    return counts  # type: ignore[return-value]  # the keys are answers


def simulations(runs: int, seed: int) -> dict[str, Callable[[], dict[str, dict[Answer, int]]]]:
    """All simulations by name; each has a generator of its own."""
    found: dict[str, Callable[[], dict[str, dict[Answer, int]]]] = {}
    for label, tasks in (("ten benchmarks", TEN), ("tutorial", TUTORIAL), ("few flips", FEW)):
        cases = [("equal", 0.0, False)]
        cases += [(f"{100 * loss:g} lost on one", loss, False) for loss in LOSSES]
        cases += [(f"{100 * loss:g} lost on all", loss, True) for loss in LOSSES]
        for name, loss, everywhere in cases:
            place = len(found)

            def run(
                tasks: Sequence[Task] = tasks,
                loss: float = loss,
                everywhere: bool = everywhere,
                place: int = place,
            ) -> dict[str, dict[Answer, int]]:
                return contest(runs, seed + place, tasks, loss, everywhere=everywhere)

            found[f"{label}, {name}"] = run
    return found


def main() -> None:
    """Print, by suite and rule, the shares of suites that fail, and of those that are inconclusive."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'fails (cannot tell)':32}{'suites':>8}" + "".join(f"{name:>18}" for name in RULES))
    for name, simulation in chosen.items():
        found = simulation()
        total = sum(next(iter(found.values())).values())
        cells = [f"{one['fails'] / total:.1%} ({one['cannot tell'] / total:.1%})" for one in found.values()]
        print(f"{name:32}{total:8}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
