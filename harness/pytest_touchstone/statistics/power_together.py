"""The power of several tests that are corrected together, with every step of Holm's procedure.

Of K tests Holm compares the smallest p with alpha / K, the next with alpha / (K - 1), and so on until one is too large.
So a test finds more where others find something as well. The first step alone is ``power.power_of_drop``.

Each test has its own chances of a p below every one of these levels, from ``power``. How the tests fall together is
drawn: a normal number for each, by whose place in its distribution all levels are decided (a Gaussian copula; Nelsen
2006, "An Introduction to Copulas"). Tests of separate benchmarks are independent. One that is made of others, as a
composite is, is the weighted sum of their numbers. The draws are seeded, so the same tests have the same power.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_touchstone.statistics.paired import SEED
from pytest_touchstone.statistics.power import Design, power_of_drop
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN

if TYPE_CHECKING:
    import numpy as np

DRAWS: Final = 20_000
_MOST_LEVELS: Final = 12


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """A test and what is truly lost. One ``made_of`` others has their places, with the standard error that each adds;
    those are not made of others themselves."""

    design: Design
    drop: float
    margin: float = MARGIN
    made_of: Mapping[int, float] = field(default_factory=dict)


def powers_together(tests: Sequence[PlannedTest], *, alpha: float = ALPHA, draws: int = DRAWS) -> list[float]:
    """The chance of each test to call its drop worse, among all of them."""
    import numpy as np

    count = len(tests)
    if count < 2:
        return [power_of_drop(one.design, one.drop, margin=one.margin, alpha=alpha) for one in tests]
    place = _places(tests, draws)
    rejected, worse = _chances(tests, alpha, beyond=False), _chances(tests, alpha, beyond=True)
    told = np.zeros((draws, count), dtype=bool)
    going = np.ones(draws, dtype=bool)
    for step in range(count):
        going &= (place < rejected[step]).sum(axis=1) > step
        if not going.any():
            break
        told[going] = (place < worse[step])[going]
    return [float(share) for share in told.mean(axis=0)]


def _places(tests: Sequence[PlannedTest], draws: int) -> np.ndarray:
    """The place of each test's draw in its distribution, a column each; the least one is the worst result."""
    import numpy as np
    from scipy.special import ndtr

    found = np.random.default_rng(SEED).standard_normal((draws, len(tests)))
    for number, one in enumerate(tests):
        if one.made_of:
            parts, errors = list(one.made_of), np.asarray(list(one.made_of.values()))
            found[:, number] = found[:, parts] @ errors / np.sqrt(errors @ errors)
    places: np.ndarray = ndtr(found)
    return places


def _chances(tests: Sequence[PlannedTest], alpha: float, *, beyond: bool) -> np.ndarray:
    """The chance of each test at each step, a row for a step: of a p small enough, and with ``beyond`` of a measured
    drop beyond the margin, too. Of many steps some are computed, and the others lie between them."""
    import numpy as np

    count = len(tests)
    families = np.arange(count, 0, -1)
    known = families
    if count > _MOST_LEVELS:
        known = np.unique(np.geomspace(1, count, _MOST_LEVELS).round().astype(int))[::-1]
    found = [
        [
            power_of_drop(
                one.design, one.drop, family=int(family), margin=one.margin if beyond else 0.0, alpha=alpha
            )
            for family in known
        ]
        for one in tests
    ]
    rows = [np.interp(-np.log(families), -np.log(known), own) for own in found]
    return np.stack(rows, axis=1)
