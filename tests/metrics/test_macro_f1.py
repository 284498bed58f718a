"""Macro F1 and its interval; its values are held against scikit-learn's in the conformance kit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.metrics.macro_f1 import MACRO_F1, macro_f1

pairs = st.lists(st.tuples(st.just(1.0), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


def repeated(cells: dict[tuple[int, int], int]) -> list[tuple[float, int, int]]:
    return [(float(a == b), a, b) for (a, b), count in cells.items() for _ in range(count)]


@given(pairs)
def test_the_limits_enclose_the_value_and_stay_between_0_and_1(items: list[tuple[float, int, int]]) -> None:
    found = macro_f1(items)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_the_standard_error_is_that_of_the_delta_method() -> None:
    """The gradient by hand: of two classes, 30 and 20 right, 10 and 5 confused."""
    cells = {(0, 0): 30, (0, 1): 10, (1, 0): 5, (1, 1): 20}
    found, n = macro_f1(repeated(cells)), 65

    def value(p: dict[tuple[int, int], float]) -> float:
        wrong = p[0, 1] + p[1, 0]
        return sum(2 * p[c, c] / (2 * p[c, c] + wrong) for c in (0, 1)) / 2

    share = {cell: count / n for cell, count in cells.items()}
    slope = {
        cell: (value(share | {cell: share[cell] + 1e-6}) - value(share | {cell: share[cell] - 1e-6})) / 2e-6
        for cell in cells
    }
    middle = sum(share[cell] * slope[cell] for cell in cells)
    variance = sum(share[cell] * (slope[cell] - middle) ** 2 for cell in cells)
    assert found.value == pytest.approx(value(share))
    assert found.stderr == pytest.approx(math.sqrt(variance / (n - 1)), rel=1e-6)


def test_all_right_has_an_interval_with_a_width() -> None:
    found = macro_f1(repeated({(0, 0): 12, (1, 1): 12}))
    assert (found.value, found.stderr) == (1.0, 0.0)
    assert found.low is not None
    assert 0.8 < found.low < 0.9


def test_the_limits_are_those_of_the_classes_which_are_wide_for_a_small_one() -> None:
    items = repeated({(0, 0): 90, (1, 1): 3, (1, 0): 2, (0, 1): 5})
    down, up, moves = [], [], []
    for one, (both, union) in enumerate([(90, 97), (3, 10)]):
        limits = stats.binomtest(both, union).proportion_ci(method="wilson")
        f1, low, high = (2 * share / (1 + share) for share in (both / union, limits.low, limits.high))
        down.append(f1 - low)
        up.append(high - f1)
        moves.append([2 * (a == b == one) - f1 * ((a == one) + (b == one)) for _, a, b in items])
    together = np.asarray(np.corrcoef(moves))
    found = macro_f1(items)
    assert found.value is not None
    assert found.value - (found.low or 0) == pytest.approx(math.sqrt(np.dot(down, together @ down)) / 2)
    assert (found.high or 0) - found.value == pytest.approx(math.sqrt(np.dot(up, together @ up)) / 2)


@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_the_items_does_not_matter(items: list[tuple[float, int, int]], shuffler: Any) -> None:
    moved = list(items)
    shuffler.shuffle(moved)
    assert macro_f1(moved) == macro_f1(items)


def test_items_of_a_cluster_widen_the_interval() -> None:
    items = repeated({(0, 0): 20, (0, 1): 20, (1, 0): 10, (1, 1): 30})
    alone, shared = macro_f1(items), macro_f1(items, [str(number // 10) for number in range(80)])
    assert alone.low is not None
    assert shared.low is not None
    assert shared.low < alone.low
    assert macro_f1([]).why == "no items were scored"


def test_the_metric_survives_its_plain_form() -> None:
    again = aggregation_of({"f1": MACRO_F1.plain()}, "f1")
    assert (again.beside, again.resolve()) == (("right", "chosen"), macro_f1)
