"""The share of studies with a verdict that is wrong, and of those that find what is there.

python -m simulations.series [--runs 1000] [--seed 1] [--only NAME]

Every matrix is the product's: a study in memory, ``compare.study.between`` over its series, and Holm's correction over
all pairs. The items are 1,000, the same for all, which find them easy or hard. *equal*: all checkpoints of all series
are equally good, each with its own luck. *totals*: the same known by totals alone. *ahead*: all checkpoints of one
series are 6 points better than those of the others. *one peak*: a single one of them is.

*curves* are of equal checkpoints too, all of which are judged by ``compare.study.curves``. Wrong is a study with any
drop, or with any change between neighbours, that is told; plain is one with an uncorrected p of at most 0.05. In the
last the final checkpoint of one series is 20 points below its others; found is a study that tells this drop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from harness.compare.candidate import Candidate, Entry, Source, published, published_entry
from harness.compare.formats.base import Table
from harness.compare.study.between import Between, between
from harness.compare.study.curves import judged_curves
from harness.compare.study.differences import MORE
from harness.compare.study.points import Study
from harness.compare.study.pool import pool_of
from harness.compare.study.reading import Read, make_study
from harness.results.store_entry import ItemScores
from simulations.gate import choose

ITEMS: Final = 1000
EASE: Final = 0.8
AHEAD: Final = 0.06


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of studies with any wrong verdict, by the rule and by plain tests, and of those that find what is there:
    a matrix that tells the better series from all others, a drop."""

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


Kind: TypeAlias = Literal["peak to last", "stability"]


def curves(
    runs: int, seed: int, series: int, kind: Kind, drop: float = 0.0, *, points: int = 5, items: int = 300
) -> Rates:
    """Studies of so many series of equal checkpoints, but for the last one of the last series, which is so much
    worse."""
    generator = np.random.default_rng(seed)
    wrong = plain = found = 0
    for _ in range(runs):
        ease = generator.random(items)
        right = []
        for place in range(series):
            shifts = np.zeros(points)
            shifts[-1] = -drop if place == series - 1 else 0.0
            chance = np.clip(0.6 + shifts[:, None] + EASE * (ease - 0.5), 0, 1)
            right.append(generator.random(chance.shape) < chance)
        tests = [one.tests[kind] for one in judged_curves(study_of(right, totals=False))]
        *others, last = tests
        equal = others if drop else tests
        wrong += any(one.verdict == MORE for one in equal)
        plain += any(one.p is not None and one.p <= 0.05 for one in equal)
        found += last.verdict == MORE
    return Rates(runs, wrong / runs, plain / runs, found / runs)


def _matrix(right: Sequence[np.ndarray], totals: bool) -> Between:
    study = study_of(right, totals)
    return between(study, {measure.key: pool_of(study, measure) for measure in study.measures})[0]


def study_of(right: Sequence[np.ndarray], totals: bool) -> Study:
    """The study of series of right and wrong answers, a row for each checkpoint."""
    found = []
    for place, rows in enumerate(right):
        for number, row in enumerate(rows, start=1):
            found.append(_candidate(f"s{place}", number, row.astype(float), totals))
    return make_study(Read((("simulated", Table(tuple(found))),)))


def _candidate(series: str, number: int, scores: np.ndarray, totals: bool) -> Candidate:
    n, name = len(scores), f"{series}/{number}"
    saved = published_entry(
        "b",
        {"acc": published("acc", float(scores.mean()), n=n)},
        primary="acc",
        source=Source("simulated", "0"),
        name=name,
        about={"series": series, "step": number},
    )
    about = {"series": series, "step": number, "epoch": float(number)}
    if totals:
        return Candidate(name, "simulated", about, {"b": Entry(saved)})
    names = [f"b/{item:05}" for item in range(n)]
    nothing: list[str | None] = [None] * n
    items = ItemScores(
        examples=names, rows=names, groups=nothing, clusters=nothing, scores={"acc": scores.tolist()}
    )
    return Candidate(name, "simulated", about, {"b": Entry(replace(saved, items_sha256="same"), items)})


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], Rates]]:
    """All simulations by name; each has a generator of its own."""
    return {
        "equal, 3 of 5": lambda: matrices(runs, seed, (5, 5, 5)),
        "equal, 11 against 1": lambda: matrices(runs, seed + 1, (11, 1)),
        "equal, 6 of 4": lambda: matrices(runs, seed + 2, (4,) * 6),
        "equal, totals": lambda: matrices(runs, seed + 3, (5, 5, 5), totals=True),
        "ahead, 3 of 5": lambda: matrices(runs, seed + 4, (5, 5, 5), (AHEAD,) * 5),
        "one peak, 3 of 5": lambda: matrices(runs, seed + 5, (5, 5, 5), (0.0, 0.0, AHEAD, 0.0, 0.0)),
        "curves, 10 drops": lambda: curves(runs, seed + 6, 10, "peak to last"),
        "curves, 200 drops": lambda: curves(runs, seed + 7, 200, "peak to last"),
        "curves, 10 changes": lambda: curves(runs, seed + 8, 10, "stability"),
        "curves, 200 changes": lambda: curves(runs, seed + 9, 200, "stability"),
        "curves, one of 200": lambda: curves(runs, seed + 10, 200, "peak to last", 0.2),
    }


def main() -> None:
    """Prints the shares of studies."""
    chosen = choose(__doc__ or "", simulations)
    print(f"{'':22}{'runs':>6}{'wrong':>9}{'plain':>9}{'found':>9}")
    for name, simulation in chosen.items():
        one = simulation()
        print(f"{name:22}{one.runs:6}{one.wrong:9.2%}{one.wrong_plain:9.2%}{one.found:9.2%}", flush=True)


if __name__ == "__main__":
    main()
