"""Pairs in both orders, and agreement with people."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.requests import Judge, JudgeAnswer
from pytest_touchstone.metrics.judged import ORDER, agreement, both_orders, cohen_kappa, pair_scores

WHICH = Judge("{question}\n{first}\n{second}\nWhich is better?", choices=ORDER)


def says(verdict: str | None) -> JudgeAnswer:
    return JudgeAnswer(verdict, ORDER)


def test_a_pair_is_asked_in_both_orders() -> None:
    straight, swapped = both_orders(WHICH, "mine", "other", question="?")
    assert dict(straight.texts) == {"first": "mine", "second": "other", "question": "?"}
    assert dict(swapped.texts) == {"first": "other", "second": "mine", "question": "?"}
    with pytest.raises(BenchmarkError, match="choices="):
        both_orders(Judge("{first}{second}", choices=("a", "b")), "x", "y")


@pytest.mark.parametrize(
    ("straight", "swapped", "win", "tie", "places"),
    [
        ("first", "second", 1.0, 0.0, (0.0, 0.0)),
        ("second", "first", 0.0, 0.0, (0.0, 0.0)),
        ("first", "first", 0.5, 1.0, (1.0, 0.0)),
        ("second", "second", 0.5, 1.0, (0.0, 1.0)),
        (None, "first", 0.5, 1.0, (0.0, 0.0)),
        (None, None, 0.5, 1.0, (0.0, 0.0)),
    ],
)
def test_verdicts_that_change_with_the_order_are_a_tie(
    straight: str | None, swapped: str | None, win: float, tie: float, places: tuple[float, float]
) -> None:
    found = pair_scores([says(straight), says(swapped)])
    assert (found["win"], found["tie"]) == (win, tie)
    assert (found["first_place"], found["second_place"]) == places


def test_agreement_is_with_a_label_that_the_judge_could_give() -> None:
    assert agreement(says("first"), "first") == {"agreement": 1.0}
    assert agreement(says("first"), "second") == {"agreement": 0.0}
    assert agreement(says(None), "second").chosen == 2
    with pytest.raises(BenchmarkError, match="third"):
        agreement(says("first"), "third")


pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=40)


@given(pairs)
def test_kappa_and_its_error_are_those_of_statsmodels(found: list[tuple[int, int]]) -> None:
    from statsmodels.stats.inter_rater import cohens_kappa

    estimate = cohen_kappa([(float(one == other), one, other) for one, other in found])
    if estimate.value is None:
        assert len({*map(tuple, found)}) == 1
        return
    table = [[sum(pair == (i, j) for pair in found) for j in range(4)] for i in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs: Any = cohens_kappa(table)
    assert estimate.value == pytest.approx(theirs.kappa, abs=1e-9)
    assert estimate.low is not None
    assert estimate.high is not None
    assert -1 <= estimate.low <= estimate.value + 1e-9
    assert estimate.value - 1e-9 <= estimate.high <= 1
    n = len(found)
    wanted = theirs.var_kappa * n / (n - 1)  # theirs divides by n
    assert estimate.stderr is not None
    assert estimate.stderr**2 == pytest.approx(wanted, abs=1e-9)


def test_perfect_agreement_has_an_interval_with_a_width() -> None:
    found = cohen_kappa([(1.0, number % 2, number % 2) for number in range(30)])
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low is not None
    assert 0.7 < found.low < 0.9


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize(("n", "right"), [(20, 0.8), (50, 0.9), (100, 0.95)])
def test_kappas_interval_covers_the_truth(classes: int, n: int, right: float) -> None:
    generator = np.random.default_rng(classes * n)
    true = (right - 1 / classes) / (1 - 1 / classes)
    covered = 0
    for _ in range(200):
        labels = generator.integers(classes, size=n)
        other = (labels + generator.integers(1, classes, size=n)) % classes
        given = np.where(generator.random(n) < right, labels, other)
        found = cohen_kappa(
            [(float(a == b), a, b) for a, b in zip(labels.tolist(), given.tolist(), strict=True)]
        )
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= true <= found.high
    assert covered >= 182  # of 200; at 94 % fewer are seen in 3 of 100 tries


def test_kappa_knows_that_items_share_a_text() -> None:
    items = [
        (float(a == b), a, b) for a, b in ((0, 0), (1, 1), (0, 1), (1, 1), (0, 0), (1, 0)) for _ in range(4)
    ]
    alone, shared = cohen_kappa(items), cohen_kappa(items, [str(at // 4) for at in range(len(items))])
    assert alone.value == shared.value
    assert alone.stderr is not None
    assert shared.stderr is not None
    assert shared.stderr > alone.stderr
