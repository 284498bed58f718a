"""Tests of engines on simulated builds: ``expect_like`` beside the thresholds of engines' own tests.

python -m simulations.engines [--runs 400] [--seed 1] [--only NAME]

Each build scores an engine on the items of a benchmark, after reference runs of the same model. Eight benchmarks have
accuracies from 0.2 to 0.95. Of an item the chance to be right has a beta distribution, by which the named share of
items flips between two runs of one engine (*A/A*; at accuracy 0.95 at most 9 %).

- *kernel*: an equal engine with another kernel, by which 3 % of the items change for good, for the better as likely
  as not.
- *a loss of d points*: 1.5 d of the items are broken for good, and 0.5 d mended, each at random.

The rules:

- *expect_like*: ``compare.expectation.judge_candidate`` as ``expect_like`` calls it, with 1, 2 or 4 reference runs, a
  largest loss of one point, and a second scoring of what is worse.
- *a point*: fails where the score is more than a point below the reference's.
- *vLLM, 8 points* (its GSM8K tests): fails below the reference less 0.08.
- *vLLM, 8 %* (its lm-eval tests): fails below 0.92 of the reference.
- *SGLang* (scheduled accuracy tests): fails below 0.95 of the mean of 4 reference runs.
- *TensorRT-LLM* (its accuracy tests): fails below the reference less 1.645 * 50 * sqrt(2 / n) points.
- *llm-compressor* (its lm-eval tests): fails where round(score / reference, 2) < 0.95.

*A month* is 60 equal builds at A/A 5 % and five with losses of 1, 3, 3, 5 and 10 points, all against the same
references of 1,319 items. *Planned*: builds with a loss of 3 points, with as many items as ``baseline plan`` names for
a chance of 90 %. *Servers*: how often the check by known questions (``engines.http.engine.describe_drift``) takes an
equal server for another, of whose texts a share differs each time; and how often it finds another model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.expectation import judge_candidate
from pytest_touchstone.core.requests import GenerateAnswer, Generated
from pytest_touchstone.engines.http.engine import ASKED, describe_drift
from pytest_touchstone.statistics.power import items_for_drop, reference_design
from simulations.gate import choose
from simulations.gates import Bench

ACCURACIES: Final = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MOST_VARIED: Final = 0.95
"""The largest share of the flips that an accuracy allows."""

KERNEL: Final = 0.03
BROKEN, MENDED = 1.5, 0.5
MONTH: Final = (*([0.0] * 60), 0.01, 0.03, 0.03, 0.05, 0.1)
GSM8K: Final = 1319
FLIPS: Final = (0.0, 0.01, 0.05, 0.1)
LOSSES: Final = (0.01, 0.03, 0.05, 0.1)


@dataclass(frozen=True, slots=True)
class Build:
    """A build: the runs of the reference engine, and the chances of the items to be right by the built one."""

    bench: Bench
    references: np.ndarray
    chances: np.ndarray
    generator: np.random.Generator

    def answers(self) -> np.ndarray:
        """Return right or wrong for each item, drawn anew at each call."""
        return self.generator.random(self.bench.n) < self.chances

    def reference(self, runs: int) -> BenchmarkScores:
        """Return the mean of the first reference runs."""
        mean = self.bench.result(self.references[:runs].mean(axis=0), "reference")
        return replace(mean, saved=replace(mean.saved, reference_runs=runs))


def item_chances(accuracy: float, flips: float, n: int, generator: np.random.Generator) -> np.ndarray:
    """Draw the items' chances to be right, of which a share flips between two runs.

    Of a beta distribution with mean a and a + b = s, the share is 2 a (1 - a) s / (s + 1).
    """
    varied = min(MOST_VARIED, flips / (2 * accuracy * (1 - accuracy)))
    if not varied:
        return (generator.random(n) < accuracy).astype(float)
    size = varied / (1 - varied)
    return generator.beta(accuracy * size, (1 - accuracy) * size, n)


def changed_for_good(chances: np.ndarray, share: float, generator: np.random.Generator) -> np.ndarray:
    """Return the chances by another kernel, which changes a random share of the items, as many for the better.

    An item that was mostly right gets the chance of one that was mostly wrong, or the other way.
    """
    high, low = np.flatnonzero(chances >= 0.5), np.flatnonzero(chances < 0.5)
    total = generator.binomial(len(chances), share)
    better = generator.binomial(total, 0.5)
    changed = chances.copy()
    for places, others, count in ((low, high, better), (high, low, total - better)):
        chosen = generator.choice(places, min(count, len(places)), replace=False)
        changed[chosen] = chances[generator.choice(others, len(chosen))]
    return changed


def damaged(chances: np.ndarray, loss: float, generator: np.random.Generator) -> np.ndarray:
    """Return the chances by an engine that breaks items and mends fewer; the mean falls by the loss."""
    n, wrong = len(chances), 1 - chances
    broken = generator.random(n) < BROKEN * loss * n * chances / max(1e-9, float(np.sum(chances**2)))
    mended = generator.random(n) < MENDED * loss * n * wrong / max(1e-9, float(np.sum(wrong**2)))
    return np.where(broken, 0.0, np.where(mended, 1.0, chances))


def builds(
    runs: int, seed: int, n: int, flips: float, losses: Sequence[float] = (0.0,), *, kernel: bool = False
) -> Iterator[tuple[float, Build]]:
    """Yield at least ``runs`` builds, each with its loss.

    References are drawn anew for each build, or for a whole month: their luck decides as much as a build's.
    """
    generator = np.random.default_rng(seed)
    for number in range(math.ceil(runs / len(losses))):
        accuracy = ACCURACIES[number % len(ACCURACIES)]
        chances = item_chances(accuracy, flips, n, generator)
        references = generator.random((4, n)) < chances
        for loss in losses:
            changed = changed_for_good(chances, KERNEL, generator) if kernel else chances
            changed = damaged(changed, loss, generator) if loss else changed
            yield loss, Build(Bench("bench", n), references, changed, generator)


# The rules


def expect_like(build: Build, runs: int = 4) -> bool:
    """Return whether ``expect_like`` fails."""

    def score(names: Collection[str]) -> dict[str, BenchmarkScores]:
        return {name: build.bench.result(build.answers(), "engine", began=1.0) for name in names}

    (verdict,) = judge_candidate(score, {"bench": build.reference(runs)}, 0.01).values()
    return verdict.kind == "worse"


def below(floor: Callable[[float, int], float], runs: int = 1) -> Callable[[Build], bool]:
    """Return a rule that fails below a floor, by the score of the references and the number of items."""

    def fails(build: Build) -> bool:
        reference = float(build.references[:runs].mean())
        return float(build.answers().mean()) < floor(reference, build.bench.n) - 1e-9

    return fails


def recovers_too_little(build: Build) -> bool:
    """Return whether llm-compressor's test fails."""
    reference = float(build.references[0].mean())
    return bool(reference) and round(float(build.answers().mean()) / reference, 2) < 0.95


RULES: Final[Mapping[str, Callable[[Build], bool]]] = {
    "expect_like": expect_like,
    "a point": below(lambda reference, _: reference - 0.01),
    "vLLM, 8 points": below(lambda reference, _: reference - 0.08),
    "vLLM, 8 %": below(lambda reference, _: 0.92 * reference),
    "SGLang": below(lambda reference, _: 0.95 * reference, runs=4),
    "TensorRT-LLM": below(lambda reference, n: reference - 0.01 * 1.645 * 50 * math.sqrt(2 / n)),
    "llm-compressor": recovers_too_little,
}

REFERENCE_RUNS: Final[Mapping[str, Callable[[Build], bool]]] = {
    f"{runs} runs": partial(expect_like, runs=runs) for runs in (1, 2, 4)
}
"""``expect_like`` by the number of reference runs."""


def failing(
    runs: int,
    seed: int,
    n: int,
    flips: float,
    *,
    loss: float = 0.0,
    kernel: bool = False,
    rules: Mapping[str, Callable[[Build], bool]] = RULES,
) -> dict[str, float]:
    """Return the share of builds that fail, by rule."""
    counts, total = dict.fromkeys(rules, 0), 0
    for _, build in builds(runs, seed, n, flips, (loss,), kernel=kernel):
        total += 1
        for name, rule in rules.items():
            counts[name] += rule(build)
    return {name: count / total for name, count in counts.items()}


def planned(runs: int, seed: int, flips: float) -> dict[str, float]:
    """Return the share of losses of 3 points found, by reference runs, on as many items as a plan names."""
    found = {}
    for name, rule in REFERENCE_RUNS.items():
        number = int(name.split()[0])
        items = items_for_drop(reference_design(1000, flips, number), 0.03, power=0.9)
        assert items is not None
        found[f"{name}, {items}"] = failing(runs, seed, items, flips, loss=0.03, rules={name: rule})[name]
    return found


def months(runs: int, seed: int) -> dict[str, tuple[float, float]]:
    """Return the false alarms and the losses found in a month, by rule."""
    alarms, found = dict.fromkeys(RULES, 0), dict.fromkeys(RULES, 0)
    for loss, build in builds(runs * len(MONTH), seed, GSM8K, 0.05, MONTH):
        for name, rule in RULES.items():
            (found if loss else alarms)[name] += rule(build)
    return {name: (alarms[name] / runs, found[name] / runs) for name in RULES}


def servers(runs: int, seed: int, share: float) -> dict[str, float]:
    """Return how often a noisy server is taken for another, and how often another model is found."""
    generator = np.random.default_rng(seed)

    def asked(model: str) -> list[list[GenerateAnswer]]:
        noisy = generator.random((ASKED, 4)) < share
        marks = generator.integers(1, 10, (ASKED, 4)) * noisy
        return [
            [
                GenerateAnswer((Generated(f"{model}{place}{mark}", "length", 8),), 4)
                for place, mark in enumerate(row)
            ]
            for row in marks
        ]

    equal = sum(describe_drift(asked("a"), asked("a")) is not None for _ in range(runs))
    other = sum(describe_drift(asked("a"), asked("b")) is not None for _ in range(runs))
    return {"equal": equal / runs, "another model": other / runs}


def simulations(runs: int, seed: int) -> dict[str, Callable[[], Mapping[str, float | tuple[float, float]]]]:
    """Return all simulations by name; each has a generator of its own."""
    cases: dict[str, Callable[[], Mapping[str, float | tuple[float, float]]]] = {}
    for n in (200, GSM8K):
        for flips in FLIPS:
            cases[f"equal, {n}, A/A {flips:.0%}"] = partial(failing, runs, seed, n, flips)
        for flips in (0.0, 0.05):
            cases[f"kernel, {n}, A/A {flips:.0%}"] = partial(failing, runs, seed + 1, n, flips, kernel=True)
    for n in (400, GSM8K):
        for loss in LOSSES:
            name = f"{100 * loss:g} lost, {n}, A/A 5%"
            cases[name] = partial(failing, runs, seed + 3, n, 0.05, loss=loss)
    for flips in FLIPS:
        name = f"runs, equal, {GSM8K}, A/A {flips:.0%}"
        cases[name] = partial(failing, runs, seed + 4, GSM8K, flips, rules=REFERENCE_RUNS)
        cases[f"planned, A/A {flips:.0%}"] = partial(planned, runs, seed + 5, flips)
    cases["a month"] = partial(months, max(1, runs // 20), seed + 6)
    for share in (0.05, 0.2):
        cases[f"servers, {share:.0%}"] = partial(servers, 25 * runs, seed + 7, share)
    return cases


def main() -> None:
    """Print the shares of builds that fail, by rule; of a month false alarms and losses found."""
    for name, simulation in choose(__doc__ or "", simulations).items():
        cells = [
            f"{rule} {share:.2%}" if isinstance(share, float) else f"{rule} {share[0]:.2f} / {share[1]:.2f}"
            for rule, share in simulation().items()
        ]
        print(f"{name:28}{'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
