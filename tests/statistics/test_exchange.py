"""The change of one measure that goes with a change of another."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.statistics.exchange import PairedChange, slope


def drawn(
    rate: float, *, pairs: int, seed: int, spread: float = 0.02, error: float = 0.005
) -> list[PairedChange]:
    """Changes whose true ones lie on a line, each measured with an error of the same size."""
    draw = random.Random(seed)
    true = [draw.gauss(0, spread) for _ in range(pairs)]
    return [
        PairedChange(x + draw.gauss(0, error), rate * x + draw.gauss(0, error), error**2, error**2, 0.0)
        for x in true
    ]


@given(st.floats(0.05, 20), st.integers(3, 12))
def test_changes_on_a_line_have_its_slope(rate: float, pairs: int) -> None:
    changes = [
        PairedChange(place + 1.0, rate * (place + 1.0), 0.01, 0.01 * rate**2, 0.0) for place in range(pairs)
    ]
    found = slope(changes)
    assert found is not None
    assert found.value == pytest.approx(rate, rel=0.05)
    assert found.low is not None
    assert found.low < rate
    assert found.high is None or found.high > rate


def test_the_interval_holds_the_slope_about_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(200):
        found = slope(drawn(0.6, pairs=10, seed=seed))
        assert found is not None
        inside += (found.low or -math.inf) <= 0.6 <= (math.inf if found.high is None else found.high)
    assert 0.9 <= inside / 200 <= 1.0


def test_errors_of_x_do_not_flatten_the_slope() -> None:
    """Least squares would find 0.6 / (1 + error^2 / spread^2), which is 0.3."""
    found = slope(drawn(0.6, pairs=2000, seed=1, spread=0.01, error=0.01))
    assert found is not None
    assert found.value == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize("pairs", [0, 1, 2])
def test_few_pairs_say_nothing(pairs: int) -> None:
    assert slope(drawn(1.0, pairs=pairs, seed=1)) is None


def test_changes_within_their_errors_say_nothing() -> None:
    assert slope([PairedChange(0.001, -0.001, 1.0, 1.0, 0.0)] * 5) is None
