"""GSM8K: which number is taken, and when it is the same."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.metrics.gsm8k import find_answer_number, grade_gsm8k, normalize, strict_answer

pieces = st.lists(st.sampled_from(["#### ", "#", " ", "$", "-", ",", ".", "1", "18", "0", "%", "\n", "x"]))
texts = st.text() | pieces.map("".join)
integers = st.integers(-(10**12), 10**12)


def test_each_way_of_finding_and_comparing_is_reported() -> None:
    grade = grade_gsm8k("#### 18", "So #### 18.00 of the 20.")
    assert tuple(grade.extracted.values()) == ("18.00", "20.", "18.00")
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
    assert (grade.extracted["strict"], grade.extracted["flexible"], grade.no_answer) == (
        strict,
        flexible,
        not parsed,
    )


def test_a_strict_answer_that_is_no_number_gives_way_to_one_that_is() -> None:
    assert grade_gsm8k("#### 18", "18 in all\n#### ...").scores["exact_match_number"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            ("18", "18"),
            ("18.00", "18"),
            ("$18.50", "18.5"),
            ("25%", "25"),
            (" 25 %. ", "25"),
            (r"25\%", "25"),
        ),
        *(("18...", "18"), ("so...18", "18"), (".5", ".5"), ("5.", "5"), ("9" * 4000, "9" * 4000)),
        *(("1,000", "1000"), ("1,00,000", "100000"), ("1,234,567.8", "1234567.8"), ("1_000", "1000")),
        *((f"27{space}000 in all", "27000") for space in " \u00a0\u2007\u2009\u202f~'’"),
        *((rf"27{space}000", "27000") for space in ("{,}", r"\,", r"\;", r",\!", r"\ ")),
        *(("1 234 567", "1234567"), ("in 2019 300 men", "300"), ("5 500-dollar bills", "500")),
        *(
            ("-$5", "-5"),
            ("$-5", "-5"),
            ("\u22123", "-3"),
            ("\u20133", "-3"),
            ("－３", "-3"),
            ("5-3", "3"),
            ("x-3", "3"),
        ),
        *(("７２", "72"), ("９，５００", "9500"), ("٣", "3"), ("३", "3")),
        *(("1e3", "1000"), ("1.5E-3", "0.0015"), (r"2.5 \times 10^{3}", "2500"), ("1 × 10^3", "1000")),
        *(
            ("8/3", "8/3"),
            ("2 2/3", "8/3"),
            (r"\frac{8}{3}", "8/3"),
            (r"\dfrac83", "8/3"),
            (r"2\tfrac{2}{3}", "8/3"),
        ),
        *((r"-\frac{8}{3}", "-8/3"), (r"\frac{-8}{3}", "-8/3"), ("16 / 6", "8/3")),
        *(
            ("7 m^2", "7"),
            ("7 m^{2}", "7"),
            ("7 x_2", "7"),
            ("7 on 2024-05-01", "7"),
            ("7 by 1.2.3", "7"),
            ("7, 1/0", "7"),
        ),
    ],
)
def test_a_number_is_read_as_people_write_it(text: str, value: str) -> None:
    found = find_answer_number(text)
    assert found is not None
    assert found.value == Fraction(value)


def test_a_number_of_any_length_has_its_value() -> None:
    assert grade_gsm8k("9" * 5000, f"is {'9' * 5000}.0").scores["exact_match_number"]


@pytest.mark.parametrize("text", ["", ".", "-", "$", "1.2.3", "1/2/2024", "nan", "m^2", "1/0", "eighteen"])
def test_a_text_without_a_number_has_no_value(text: str) -> None:
    assert find_answer_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"It is $\boxed{7}$ at the end of those 4 hours.", "7"),
        (r"$\boxed{\boxed{7}}$ in 4 hours", "7"),
        (r"$\boxed{\text{\boxed{7.0} miles}}$ in 4 hours", "7"),
        (r"\fbox{7} in 4 hours", "7"),
        (r"\boxed{6}, no, \boxed{7} in 4 hours", "7"),
        (r"\boxed{$9{,}500} of 10000", "9500"),
        (r"\boxed{x_1 = 7 \text{ m}^2 \text{ in 4 hours}}", "7"),
        (r"#### 1. So many:\boxed{7}", "7"),
        (r"\boxed{} is 7", "7"),
        (r"I use \boxed here. 3 and 4 give $\boxed {7}$ in 4 hours", "7"),
        (r"\boxed{7", "7"),
        ("#### $7 in 4 hours", "7"),
        ("#### **7** in 4 hours", "7"),
        ("####7\n#### 4", "7"),
        ("#### ...\nIt is 7", "7"),
        ("<answer>7</answer> in 4 hours", "7"),
        ("\n<RESPONSE>\n<Answer>\n7\n</Answer>\n</RESPONSE>\nin 4 hours", "7"),
        ("<answer>\n7", "7"),
    ],
)
def test_what_is_marked_as_the_answer_is_read_before_what_stands_last(text: str, value: str) -> None:
    grade = grade_gsm8k(f"#### {value}", text)
    assert grade.scores["exact_match_number"]
    assert grade.extracted["number"] is not None


def test_numbers_that_are_equal_as_floats_only_differ() -> None:
    assert not grade_gsm8k("#### 0.3", "#### 0.30000000000000001").scores["exact_match_number"]


def test_two_golds_without_a_number_are_not_equal_to_an_answer_without_one() -> None:
    assert not any(grade_gsm8k("none", "none").scores.values())


@given(
    st.integers(-(10**9), 10**9).filter(lambda number: abs(number) > 999),
    st.sampled_from([",", " ", "\u202f", "{,}", r"\,", "'"]),
    st.sampled_from(
        ["{}", "${}", "{}.00", r"\boxed{{{}}} or 5", "#### {}, not 5", r"$\boxed{{\text{{{}}}}}$."]
    ),
    st.text(
        st.characters(exclude_characters="#\\<0123456789.-$€£¥₩^_{}", exclude_categories=["N", "P", "Cs"])
    ),
)
def test_the_answer_is_read_after_any_words_however_it_is_grouped(
    number: int, separator: str, form: str, before: str
) -> None:
    output = f"{before}: 3 of 4 {before}is " + form.format(f"{number:,}".replace(",", separator))
    assert grade_gsm8k(f"#### {number}", output).scores["exact_match_number"]


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
        assert grade_gsm8k(gold, output).scores["exact_match_flexible"]
        assert grade_gsm8k(gold, output).scores["exact_match_number"]


@given(integers, st.integers(1, 9))
def test_zeros_behind_the_point_change_the_text_but_not_the_value(number: int, zeros: int) -> None:
    grade = grade_gsm8k(f"#### {number}", f"#### {number}.{'0' * zeros}")
    assert (grade.scores["exact_match_strict"], grade.scores["exact_match_number"]) == (False, True)


@given(texts)
def test_case_does_not_matter(gold: str) -> None:
    assert normalize(gold) == normalize(gold).lower()


@given(pieces.map("".join))
def test_the_strict_answer_is_the_first(text: str) -> None:
    assert strict_answer(f"#### 7 {text}") == "7"
