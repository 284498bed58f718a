"""Printed texts are compared by the rule of CodeContests, or by that of LiveCodeBench."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.sandbox.guest.supervisor import same_lines, same_output


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("1 2\n", "1\n2"),
        ("YES", "yes"),
        ("0.5", "0.500009"),
        ("3", "3.0"),
        ("1e3", "1000"),
        ("", " \n"),
        ("inf", "Inf"),
        ("-0", "0"),
        ("a\x0bb", "a b"),
        ("nan é", "NaN é"),
    ],
)
def test_space_case_and_small_differences_of_numbers_do_not_matter(expected: str, printed: str) -> None:
    assert same_output(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("1 2", "1"),
        ("1 2", "2 1"),
        ("0.5", "0.5001"),
        ("yes", "no"),
        ("5", "٥"),
        ("10", "1_0"),
        ("12", "1 2"),
        ("a\x0cb", "a b"),
        ("é", "É"),
        ("0", "0.00001"),
        ("inf 1", "inf 1.0"),
        ("", "0"),
    ],
)
def test_other_words_other_numbers_and_other_scripts_digits_do(expected: str, printed: str) -> None:
    assert not same_output(expected, printed)


@given(st.text(), st.text())
def test_the_order_of_the_two_does_not_matter_and_nothing_raises(one: str, other: str) -> None:
    assert same_output(one, other) == same_output(other, one)
    assert same_output(one, one)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("1 2\n", "\n 1 2 \t\r\n\n"),
        ("a\n\nb", "a \n\n b"),
        ("1.5 2", "1.50   2.0"),
        ("12", "+1_2e0"),
        ("nan", "nan"),
        ("", "\n \n"),
    ],
)
def test_lines_are_the_same_stripped_and_of_numbers_where_these_are_equal(
    expected: str, printed: str
) -> None:
    assert same_lines(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("1 2", "1\n2"),
        ("a\nb", "a\n\nb"),
        ("yes", "YES"),
        ("a b", "a  b"),
        ("a 1", "a 1.0"),
        ("0.5", "0.500000001"),
        ("1 2", "1 2 3"),
        ("nan", "NaN"),
        ("nan", "sNaN"),
        ("1", ""),
        ("", "1"),
        ("50000000000000000", "50000000000000001"),
    ],
)
def test_other_lines_words_and_numbers_are_not(expected: str, printed: str) -> None:
    assert not same_lines(expected, printed)


@given(st.text(), st.text())
def test_lines_are_compared_alike_in_both_orders_and_nothing_raises(one: str, other: str) -> None:
    assert same_lines(one, other) == same_lines(other, one)
    assert same_lines(one, one)
