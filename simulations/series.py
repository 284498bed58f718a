"""The share of studies with a verdict that is wrong, and of those that find what is there.

python -m simulations.series [--runs 1000] [--seed 1] [--only NAME]

Every matrix is the product's: a study in memory, ``study.compare_series`` over its series, and Holm's correction over
all pairs. The items are 1,000, the same for all, which find them easy or hard. *equal*: all checkpoints of all series
are equally good, each with its own luck. *totals*: the same known by totals alone. *ahead*: all checkpoints of one
series are 6 points better than those of the others. *one peak*: a single one of them is.

*curves* are of 5 equal checkpoints of 300 items each, all of which are judged by ``study.curves``. Of each kind
of verdict, wrong is a study that tells any of an equal series, and plain one with an uncorrected p of at most 0.05. In
the others one series of ten is changed, and found is a study that tells it of this series. *falls*: its last checkpoint
is 15 points below the others. *rises*: each is 3 points above the one before. *jumps*: every other one is 6 points
above the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from pytest_touchstone.compare.candidate import (
    BenchmarkScores,
    CheckpointResults,
    ResultSource,
    published,
    result_from_totals,
)
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.results.store_entry import ItemScores
from pytest_touchstone.study.curves import curves_of
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.pool import MORE
from pytest_touchstone.study.reading import LoadedTables, build_study
from pytest_touchstone.study.series_comparison import SeriesComparison, compare_series
from simulations.gate import choose

ITEMS: Final = 1000
EASE: Final = 0.8
AHEAD: Final = 0.06
FALLS: Final = (0.0, 0.0, 0.0, 0.0, -0.15)
RISES: Final = (0.0, 0.03, 0.06, 0.09, 0.12)
JUMPS: Final = (0.0, 0.06, 0.0, 0.06, 0.0)


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of studies with any wrong verdict, by the rule and by plain tests, and of those that find what is there.

    A matrix finds it where it tells the better series from all others, a curve where its change is told.
    """

    runs: int
    wrong: float
    wrong_plain: float
    found: float


def matrices(
    runs: int, seed: int, lengths: Sequence[int], ahead: Sequence[float] = (), *, totals: bool = False
) -> Rates:
    """Matrices of series with so many checkpoints; ``ahead`` is by how much each checkpoint of the last series is
    better than all others."""
    generator = np.random.default_rng(seed)
    wrong = plain = found = 0
    for _ in range(runs):
        ease = generator.random(ITEMS)
        right = []
        for place, count in enumerate(lengths):
            last = place == len(lengths) - 1
            shifts = np.asarray(ahead) if ahead and last else np.zeros(count)
            chance = np.clip(0.6 + shifts[:, None] + EASE * (ease - 0.5), 0, 1)
            right.append(generator.random(chance.shape) < chance)
        one = _matrix(right, totals)
        better = f"s{len(lengths) - 1}" if ahead else ""
        names = [(duel.first.series.name, duel.second.series.name) for duel in one.duels]
        told = [duel.told != "cannot tell" for duel in one.duels]
        true = [
            duel.told == "better" and pair[1] == better for duel, pair in zip(one.duels, names, strict=True)
        ]
        wrong += any(a and not b for a, b in zip(told, true, strict=True))
        plain += any(
            (duel.as_measured.p or 1.0) <= 0.05 and better not in pair
            for duel, pair in zip(one.duels, names, strict=True)
        )
        found += sum(true) == len(lengths) - 1
    return Rates(runs, wrong / runs, plain / runs, found / runs)


def curves(
    runs: int, seed: int, series: int, changed: Sequence[float] = (), *, points: int = 5, items: int = 300
) -> dict[str, Rates]:
    """By kind of verdict, studies of so many series of equal checkpoints; ``changed`` is by how much each checkpoint of
    the last series is better than the others."""
    generator = np.random.default_rng(seed)
    counts: dict[str, list[int]] = {}
    for _ in range(runs):
        ease = generator.random(items)
        right = []
        for place in range(series):
            last = place == series - 1
            shifts = np.asarray(changed) if changed and last else np.zeros(points)
            chance = np.clip(0.6 + shifts[:, None] + EASE * (ease - 0.5), 0, 1)
            right.append(generator.random(chance.shape) < chance)
        tests = [one.tests for one in curves_of(study_of(right, totals=False))]
        for kind, last_one in tests[-1].items():
            equal = [one[kind] for one in (tests[:-1] if changed else tests)]
            found = counts.setdefault(kind, [0, 0, 0])
            found[0] += any(one.verdict == MORE for one in equal)
            found[1] += any(one.p is not None and one.p <= 0.05 for one in equal)
            found[2] += last_one.verdict == MORE
    return {kind: Rates(runs, *(count / runs for count in found)) for kind, found in counts.items()}


def _matrix(right: Sequence[np.ndarray], totals: bool) -> SeriesComparison:
    study = study_of(right, totals)
    return compare_series(study)[0]


def study_of(right: Sequence[np.ndarray], totals: bool) -> Study:
    """Return the study of series of right and wrong answers, a row for each checkpoint."""
    found = []
    for place, rows in enumerate(right):
        for number, row in enumerate(rows, start=1):
            found.append(_candidate(f"s{place}", number, row.astype(float), totals))
    return build_study(LoadedTables((("simulated", ResultTable(tuple(found))),)))


def _candidate(series: str, number: int, scores: np.ndarray, totals: bool) -> CheckpointResults:
    n, name = len(scores), f"{series}/{number}"
    saved = result_from_totals(
        "b",
        {"acc": published("acc", float(scores.mean()), n=n)},
        primary="acc",
        source=ResultSource("simulated", "0"),
        name=name,
        about={"series": series, "step": number},
    )
    about = {"series": series, "step": number, "epoch": float(number)}
    if totals:
        return CheckpointResults(name, "simulated", about, {"b": BenchmarkScores(saved)})
    names = [f"b/{item:05}" for item in range(n)]
    nothing: list[str | None] = [None] * n
    items = ItemScores(
        examples=names, rows=names, groups=nothing, clusters=nothing, scores={"acc": scores.tolist()}
    )
    return CheckpointResults(
        name, "simulated", about, {"b": BenchmarkScores(replace(saved, items_sha256="same"), items)}
    )


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], Mapping[str, Rates]]]:
    """All simulations by name; each has a generator of its own, and may have several kinds of verdicts."""

    def of_matrices(*arguments: Any, **more: Any) -> Callable[[], Mapping[str, Rates]]:
        return lambda: {"": matrices(runs, *arguments, **more)}

    return {
        "equal, 3 of 5": of_matrices(seed, (5, 5, 5)),
        "equal, 11 against 1": of_matrices(seed + 1, (11, 1)),
        "equal, 6 of 4": of_matrices(seed + 2, (4,) * 6),
        "equal, totals": of_matrices(seed + 3, (5, 5, 5), totals=True),
        "ahead, 3 of 5": of_matrices(seed + 4, (5, 5, 5), (AHEAD,) * 5),
        "one peak, 3 of 5": of_matrices(seed + 5, (5, 5, 5), (0.0, 0.0, AHEAD, 0.0, 0.0)),
        "curves, 10 equal": lambda: curves(runs, seed + 6, 10),
        "curves, 60 equal": lambda: curves(runs, seed + 7, 60),
        "curves, one of 10 falls": lambda: curves(runs, seed + 8, 10, FALLS),
        "curves, one of 10 rises": lambda: curves(runs, seed + 9, 10, RISES),
        "curves, one of 10 jumps": lambda: curves(runs, seed + 10, 10, JUMPS),
    }


def main() -> None:
    """Print the shares of studies."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':24}{'':14}{'runs':>6}{'wrong':>9}{'plain':>9}{'found':>9}")
    for name, simulation in chosen.items():
        for kind, one in simulation().items():
            shares = f"{one.wrong:9.2%}{one.wrong_plain:9.2%}{one.found:9.2%}"
            print(f"{name:24}{kind:14}{one.runs:6}{shares}", flush=True)


if __name__ == "__main__":
    main()
