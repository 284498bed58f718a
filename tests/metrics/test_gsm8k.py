"""GSM8K: which number is taken, and when it is the same."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.metrics.gsm8k import grade_gsm8k, numeric, strict_answer, trimmed

pieces = st.lists(st.sampled_from(["#### ", "#", " ", "$", "-", ",", ".", "1", "18", "0", "%", "\n", "x"]))
texts = st.text() | pieces.map("".join)
integers = st.integers(-(10**12), 10**12)


def test_each_way_of_finding_and_comparing_is_reported() -> None:
    grade = grade_gsm8k("#### 18", "So #### 18.00 of the 20.")
    assert (grade.strict, grade.flexible, grade.number) == ("18.00", "20.", "18.00")
    assert grade.scores == {
        "exact_match_strict": 0.0,
        "exact_match_flexible": 0.0,
        "exact_match_number": 1.0,
    }


@pytest.mark.parametrize(
    ("output", "strict", "flexible", "parsed"),
    [
        ("#### 18", "18", "18", True),
        ("it is 18", None, "18", True),
        ("#### ...", "...", "...", False),
        ("it is ...", None, "...", False),
        ("it is", None, None, False),
        ("", None, None, False),
    ],
)
def test_whether_an_answer_was_found_and_is_a_number_is_told_apart(
    output: str, strict: str | None, flexible: str | None, parsed: bool
) -> None:
    grade = grade_gsm8k("#### 18", output)
    assert (grade.strict, grade.flexible, grade.no_answer) == (strict, flexible, not parsed)


def test_a_strict_answer_that_is_no_number_gives_way_to_one_that_is() -> None:
    assert grade_gsm8k("#### 18", "18 in all\n#### ...").exact_match_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", "18"),
        ("18.00", "18"),
        ("1,000", "1000"),
        ("$18.50", "18.5"),
        ("-$5", "-5"),
        ("25%", "25"),
        (" 25 %. ", "25"),
        ("18...", "18"),
        (".5", "0.5"),
        ("5.", "5"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_the_value_of_a_number_is_read_through_its_decoration(text: str, value: str) -> None:
    assert numeric(text) == Decimal(value)


@pytest.mark.parametrize(
    "text", ["", ".", "-", "$", "1.2.3", "5-3", "--5", "1e5", "nan", "٣", "1/2", "eighteen"]
)
def test_what_is_not_one_number_has_no_value(text: str) -> None:
    assert numeric(text) is None


def test_numbers_that_are_equal_as_floats_only_differ() -> None:
    assert not grade_gsm8k("#### 0.3", "#### 0.30000000000000001").exact_match_number


def test_two_golds_without_a_number_are_not_equal_to_an_answer_without_one() -> None:
    assert not any(grade_gsm8k("none", "none").scores.values())


@given(texts, texts)
def test_any_text_is_graded_with_zero_or_one(gold: str, output: str) -> None:
    assert set(grade_gsm8k(gold, output).scores.values()) <= {0.0, 1.0}


@given(integers, st.text())
def test_the_gold_number_behind_the_mark_is_right_under_all_three(number: int, before: str) -> None:
    gold = f"#### {number}"
    text = before.replace("####", "") + "\n" + gold
    assert set(grade_gsm8k(gold, text).scores.values()) == {1.0}


@given(integers)
def test_commas_dollar_signs_and_a_full_stop_change_nothing(number: int) -> None:
    gold, sign = f"#### {number}", "-" if number < 0 else ""
    for output in (f"#### {number:,}", f"#### {number}.", f"that is {sign}${abs(number):,}."):
        assert grade_gsm8k(gold, output).exact_match_flexible
        assert grade_gsm8k(gold, output).exact_match_number


@given(integers, st.integers(1, 9))
def test_zeros_behind_the_point_change_the_text_but_not_the_value(number: int, zeros: int) -> None:
    grade = grade_gsm8k(f"#### {number}", f"#### {number}.{'0' * zeros}")
    assert (grade.exact_match_strict, grade.exact_match_number) == (False, True)


@given(texts)
def test_case_does_not_matter(gold: str) -> None:
    assert trimmed(gold) == trimmed(gold).lower()


@given(pieces.map("".join))
def test_the_strict_answer_is_the_first(text: str) -> None:
    assert strict_answer(f"#### 7 {text}") == "7"
