"""Rows of a file find the rows of a benchmark by prompt, question, id or order, and never those of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.requests import Provenance
from pytest_touchstone.engines.answers.files import AnswerFile, AnswerRow
from pytest_touchstone.engines.answers.matching import AskedRow, Matching, match_rows

QUESTIONS = (
    "How many eggs does Janet sell every day at the market?",
    "How many eggs does Janet sell every day at the farm?",
    "What is 2 + 2?",
)
ASKED = [
    AskedRow(
        f"b/{number}",
        {"question": text, "task_id": f"T/{number}", "answer": "7"},
        (f"Shots.\n\nQuestion: {text}\nAnswer:",),
    )
    for number, text in enumerate(QUESTIONS)
]


def match(*rows: dict[str, Any]) -> Matching:
    answers = tuple(
        AnswerRow(
            number=number,
            ids=row.get("ids", {}),
            question=row.get("question", ""),
            texts=("x",),
            provenance=Provenance(prompt=row.get("prompt", "")),
        )
        for number, row in enumerate(rows, 1)
    )
    return match_rows(AnswerFile(path=Path("a"), kind="", sha256="", rows=answers), ASKED)


def examples(matching: Matching) -> dict[str, list[int]]:
    return {name: [row.number for row in rows] for name, rows in matching.rows.items()}


def test_the_same_prompt_is_the_same_row() -> None:
    matching = match({"prompt": ASKED[1].prompts[0]})
    assert (examples(matching), dict(matching.ways)) == ({"b/1": [1]}, {"prompt": 1})


def test_a_question_is_found_in_other_words_around_it_behind_examples_of_the_same_set() -> None:
    matching = match(
        {"prompt": f"Q:{QUESTIONS[0]} A: 7\n\nQ:{QUESTIONS[1]}\nThink!"}, {"question": QUESTIONS[2]}
    )
    assert (examples(matching), dict(matching.ways)) == ({"b/1": [1], "b/2": [2]}, {"question": 2})


def test_a_question_with_another_number_is_another() -> None:
    matching = match({"prompt": "What is 2 + 3?"}, {"prompt": QUESTIONS[0].replace("eggs", "ducks")})
    assert not matching.rows
    assert [row.number for row in matching.unmatched] == [1, 2]


def test_ids_are_names_of_one_field_or_no_numbers() -> None:
    matching = match(
        {"ids": {"task_id": "T/0"}}, {"ids": {"id": "T/1"}}, {"ids": {"id": "b/2"}}, {"ids": {"id": "T/9"}}
    )
    assert examples(matching) == {"b/0": [1], "b/1": [2], "b/2": [3]}
    assert [row.number for row in matching.unmatched] == [4]


def test_a_file_without_names_answers_in_order() -> None:
    assert examples(match({}, {}, {}, {})) == {"b/0": [1], "b/1": [2], "b/2": [3]}
    assert examples(match({"ids": {"id": "2"}}, {"ids": {"id": "1"}})) == {"b/1": [1], "b/0": [2]}
    assert examples(match({"ids": {"id": "2"}}, {"ids": {"id": "0"}})) == {"b/2": [1], "b/0": [2]}


def test_a_number_beside_another_prompt_is_no_name() -> None:
    assert not match({"ids": {"doc_id": "1"}, "prompt": "Something else altogether, of another set."}).rows


def test_rows_of_one_name_are_samples_of_one_row() -> None:
    assert examples(match({"ids": {"task_id": "T/1"}}, {"ids": {"task_id": "T/1"}})) == {"b/1": [1, 2]}


@given(
    st.lists(
        st.builds(dict, prompt=st.text(max_size=30), ids=st.dictionaries(st.text(max_size=3), st.text()))
    )
)
def test_every_row_is_matched_once_or_named(rows: list[dict[str, Any]]) -> None:
    matching = match(*rows)
    numbers = [row.number for found in matching.rows.values() for row in found]
    assert sorted(numbers + [row.number for row in matching.unmatched]) == list(range(1, len(rows) + 1))
