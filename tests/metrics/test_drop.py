"""DROP: words of a span, pairing of spans, gold answers of a row."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.metrics.drop import (
    answer_spans,
    bag_f1,
    compare,
    gold_answers,
    grade_drop,
    listed_spans,
    normalize_span,
)

pieces = [
    "the ",
    "a",
    "-",
    " ",
    "12",
    "12.0",
    "$",
    "%",
    ".",
    ",",
    "\n",
    "Brady",
    "tom ",
    "1e5",
    "nan",
    "_",
    "½",
    "٣",
]
spans = st.text() | st.lists(st.sampled_from(pieces), max_size=5).map("".join)
answers = st.lists(spans, min_size=1, max_size=4)
words = st.sampled_from(["brady", "tom", "moss", "12.0", "7.0"])


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ("The Swedish.", "swedish"),
        ("50", "50.0"),
        ("1,000", "1000.0"),
        ("$3", "3.0"),
        ("3.5", "3.5"),
        ("3.5%", "35.0"),
        ("-3", "3.0"),
        ("12\npain", "12 pain"),
        ("12-yard", "12.0 yard"),
        ("A-Team", "team"),
        ("don't", "dont"),
        ("1e3", "1000.0"),
        ("the", ""),
        ("", ""),
        ("\ud800", "\ud800"),
    ],
)
def test_a_span_becomes_its_words(span: str, words: str) -> None:
    assert normalize_span(span) == words


@pytest.mark.parametrize(
    ("predicted", "gold", "f1"),
    [
        ({"12.0"}, {"12.0", "yards"}, 2 / 3),
        ({"yards"}, {"12.0", "yards"}, 0.0),
        ({"12.0", "7.0"}, {"12.0"}, 2 / 3),
        (set(), {"x"}, 0.0),
        ({"x"}, set(), 0.0),
        (set(), set(), 1.0),
    ],
)
def test_a_gold_number_must_be_shared(predicted: set[str], gold: set[str], f1: float) -> None:
    assert bag_f1(predicted, gold) == pytest.approx(f1)


def test_half_a_hundredth_is_rounded_to_even() -> None:
    assert compare(["a1"], ["a1 b c d e f g h i j k l m n o"]).f1 == 0.12


def test_the_best_f1_and_the_best_exact_match_are_taken_each_for_itself() -> None:
    grade = grade_drop([["Tom Brady"], ["Brady"]], "brady tom")
    assert (grade.scores, grade.gold) == ({"f1": 1.0, "em": 0.0}, "Tom Brady")


def test_one_string_can_pair_with_one_span_only_and_a_list_with_all() -> None:
    golds = [["Tom Brady", "Randy Moss"]]
    text = "Randy Moss and Tom Brady"
    assert grade_drop(golds, text).scores["f1"] < 0.5
    assert grade_drop(golds, listed_spans(text)).scores == {"f1": 1.0, "em": 1.0}


@pytest.mark.parametrize(
    ("output", "spans"),
    [
        ("Brady, Moss and Smith.", ("Brady", "Moss", "Smith")),
        ("Brady, Moss, and Smith", ("Brady", "Moss", "Smith")),
        ("1,000; 2,000", ("1,000", "2,000")),
        ("Brady\nMoss\n", ("Brady", "Moss")),
        ("Anderson", ("Anderson",)),
        ("3.5", ("3.5",)),
        ("", ()),
        (" , ", ()),
    ],
)
def test_a_list_is_read_out_of_a_text(output: str, spans: tuple[str, ...]) -> None:
    assert listed_spans(output) == spans


def test_an_empty_list_scores_zero_and_is_not_parsed() -> None:
    grade = grade_drop([["x"]], ())
    assert (grade.scores, grade.no_answer) == ({"f1": 0.0, "em": 0.0}, True)


@pytest.mark.parametrize(
    ("answer", "spans"),
    [
        ({"number": "4", "spans": ["four"], "date": {}}, ("4",)),
        ({"number": 4, "spans": [], "date": {}}, ("4",)),
        ({"number": "", "spans": ["a", "b"], "date": {}}, ("a", "b")),
        ({"number": "", "spans": [], "date": {"day": "2", "month": "May", "year": "1990"}}, ("2 May 1990",)),
        ({"number": "", "spans": [], "date": {"day": "", "month": "", "year": "1990"}}, ("1990",)),
        ({"number": "", "spans": [], "date": {"day": "", "month": "", "year": ""}}, ("",)),
        ({}, ("",)),
    ],
)
def test_an_answer_is_its_number_or_its_spans_or_its_date(
    answer: dict[str, object], spans: tuple[str, ...]
) -> None:
    assert answer_spans(answer) == spans


def test_validated_answers_come_as_rows_or_as_columns_and_lose_their_doubles() -> None:
    one: dict[str, Any] = {"number": "4", "spans": [], "date": {}}
    two: dict[str, Any] = {"number": "", "spans": ["x"], "date": {}}
    columns: dict[str, list[Any]] = {"number": ["4", ""], "spans": [[], ["x"]], "date": [{}, {}]}
    assert gold_answers(one, [one, two]) == gold_answers(one, columns) == (("4",), ("x",))
    assert gold_answers(one, {}) == gold_answers(one) == (("4",),)


def test_blank_gold_answers_do_not_count() -> None:
    assert grade_drop([[" "], [""], []], "").scores == {"f1": 0.0, "em": 0.0}


@given(st.lists(answers, max_size=3), spans | st.lists(spans, max_size=4))
def test_any_text_is_scored_between_zero_and_one(golds: list[list[str]], prediction: str | list[str]) -> None:
    grade = grade_drop(golds, prediction)
    assert 0.0 <= grade.scores["f1"] <= 1.0
    assert grade.scores["em"] in (0.0, 1.0)


@given(answers, answers, st.randoms(use_true_random=False))
def test_the_order_of_spans_does_not_matter(gold: list[str], predicted: list[str], random: object) -> None:
    expected = compare(predicted, gold)
    assert compare(predicted[::-1], gold) == expected
    assert compare(predicted, gold[::-1]) == expected


@given(answers.filter(lambda gold: gold[0].strip() != "" and all(normalize_span(span) for span in gold)))
def test_gold_is_right_in_any_case(gold: list[str]) -> None:
    assert grade_drop([gold], gold).scores == {"f1": 1.0, "em": 1.0}


@given(answers)
def test_commas_and_articles_do_not_matter(gold: list[str]) -> None:
    assert compare([f"the {span} ,a" for span in gold], gold) == compare(gold, gold)


@given(
    st.lists(st.sets(words, min_size=1), min_size=1, max_size=4).map(lambda bags: [" ".join(b) for b in bags])
)
def test_the_pairing_is_the_best_there_is(gold: list[str]) -> None:
    predicted = ["tom brady", "12 moss", "7"]
    longer, shorter = sorted((predicted, gold), key=len, reverse=True)
    best = max(
        sum(
            bag_f1(set(normalize_span(p).split()), set(normalize_span(g).split()))
            for p, g in (
                zip(order, shorter, strict=False)
                if longer is predicted
                else zip(shorter, order, strict=False)
            )
        )
        for order in permutations(longer)
    )
    assert compare(predicted, gold).f1 == pytest.approx(best / len(longer), abs=0.0051)
