"""How far the best of a training's checkpoints is from the truth.

python -m simulations.best [--runs 2000] [--seed 1] [--only NAME]

Every cost and choice is the product's: a study in memory, ``study.choice.selection_estimates``. The items are the
same for all checkpoints, which find them easy or hard. *plain* and *cover* are the shares of 95 % intervals, the
best's own one and the one after allowing for the choice, that hold the true value of the checkpoint that was chosen.
*high* and *after* are the mean excess of the best value over its truth, as measured and as expected, in points.
*below* is by how many points the chosen checkpoint lies below the truly best.

*equal*: the checkpoints are equally good. *ahead*: one is 6 points better. *rises*: by 10 points in all. *peak*: up to
15 points are gained until 60 % of the training, and lost again as fast. *walk*: each differs from the one before by 1
point, at random. *jumps*: each lies 2 points around the same value, at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from pytest_touchstone.study.selection_bias import selection_estimates
from simulations.gate import choose
from simulations.series import EASE, study_of

CHECKPOINTS: Final = 11
ALONG: Final = np.linspace(0, 1, CHECKPOINTS)
GRID: Final = (np.arange(1000) + 0.5) / 1000
Truth: TypeAlias = Callable[[np.random.Generator], np.ndarray]


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of intervals that hold the truth, excess and regret in points, as the module says."""

    runs: int
    plain: float
    cover: float
    high: float
    after: float
    below: float


def bests(runs: int, seed: int, truth: Truth, items: int) -> Rates:
    """Return the best of trainings, whose checkpoints have the accuracies that ``truth`` draws."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(runs):
        levels = truth(generator)[:, None]
        chances = np.clip(levels + EASE * (generator.random(items) - 0.5), 0, 1)
        right = generator.random(chances.shape) < chances
        true = np.clip(levels + EASE * (GRID - 0.5), 0, 1).mean(axis=1)
        study = study_of([right], totals=False)
        one = selection_estimates(study)[0]
        point = next(point for point in study.points if point.name == one.standing.checkpoint)
        value = study.value(point, one.measure)
        assert value is not None
        assert value.low is not None
        assert value.high is not None
        best = int(right.mean(axis=1).argmax())
        found.append(
            (
                value.low <= true[best] <= value.high,
                one.low <= true[best] <= one.high,
                100 * (one.measured - true[best]),
                100 * (one.expected - true[best]),
                100 * (true.max() - true[best]),
            )
        )
    return Rates(runs, *np.mean(found, axis=0).tolist())


def simulations(runs: int, seed: int) -> Mapping[str, Callable[[], Rates]]:
    """All simulations by name; each has a generator of its own."""
    truths: dict[str, Truth] = {
        "equal": lambda _: np.full(CHECKPOINTS, 0.6),
        "ahead": lambda _: 0.6 + 0.06 * (ALONG == 1),
        "rises": lambda _: 0.5 + 0.1 * ALONG,
        "peak": lambda _: 0.6 - 0.15 * ((ALONG - 0.6) / 0.6) ** 2,
        "walk": lambda generator: 0.6 + 0.01 * generator.standard_normal(CHECKPOINTS).cumsum(),
        "jumps": lambda generator: 0.6 + 0.02 * generator.standard_normal(CHECKPOINTS),
    }

    def of(place: int, truth: Truth, items: int) -> Callable[[], Rates]:
        return lambda: bests(runs, seed + place, truth, items)

    rows = [(name, truth, items) for items in (200, 1000) for name, truth in truths.items()]
    return {
        f"{name}, {items:,} items": of(place, truth, items) for place, (name, truth, items) in enumerate(rows)
    }


def main() -> None:
    """Print a row for each kind of training."""
    chosen = choose(__doc__ or "", simulations)
    heads = ("plain", "cover", "high", "after", "below")
    print(f"{'':20}{'runs':>6}" + "".join(f"{head:>9}" for head in heads))
    for name, simulation in chosen.items():
        one = simulation()
        shares = f"{one.plain:9.2%}{one.cover:9.2%}"
        points = "".join(f"{getattr(one, head):9.2f}" for head in heads[2:])
        print(f"{name:20}{one.runs:6}{shares}{points}", flush=True)


if __name__ == "__main__":
    main()
