"""An item that flipped is shown with its question, the answer and the right one, whatever its kind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.answers import shown_answers
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import Record
from tests.support.entries import entry
from tests.support.rows import write_jsonl


def exchange(kind: str, answer: Mapping[str, Any], **request: Any) -> dict[str, Any]:
    return {"kind": kind, "request": request, "answer": dict(answer)}


def choices(*options: tuple[str, str, float]) -> list[dict[str, Any]]:
    return [
        exchange("Loglikelihood", {"logprob": value, "tokens": 1}, context=context, continuation=continuation)
        for context, continuation, value in options
    ]


def shown(
    tmp_path: Path,
    exchanges: Sequence[dict[str, Any]],
    metric: str = "acc",
    score: float = 0.0,
    told: dict[str, Any] | None = None,
) -> tuple[str, str, str | None]:
    """Question, answer and right answer of a single item of a run."""
    one = Record(
        item="i",
        benchmark="b",
        example="b/1",
        checkpoint="old",
        status="scored",
        scores={metric: score},
        row="r",
        exchanges=list(exchanges),
        facts=told,
    )
    with Journal(tmp_path, "main") as journal:
        for record in (dataclasses.replace(one, item="other", checkpoint="new", exchanges=[]), one):
            journal.append(record)
    made = entry([score])
    found = shown_answers(
        BenchmarkScores(saved=made.saved, items=made.items, answers=tmp_path), metric, ["b/1"]
    )["b/1"]
    return found.question, found.answer, found.gold


def test_a_choice_shows_the_likeliest_one_and_the_right_one_where_it_was_right(tmp_path: Path) -> None:
    asked = choices(("Q: sky?", " blue", -1.0), ("Q: sky?", " a very long green", -2.0))
    assert shown(tmp_path, asked) == ("Q: sky?", "blue", None)
    assert shown(tmp_path, asked, score=1.0)[2] == "blue"


def test_a_choice_goes_by_the_rule_of_the_metric(tmp_path: Path) -> None:
    asked = choices(("Q", " no", -1.0), ("Q", " certainly", -2.0))
    assert shown(tmp_path, asked, "acc")[1] == "no"
    assert shown(tmp_path, asked, "acc_norm")[1] == "certainly"


def test_where_contexts_differ_what_differs_is_the_answer(tmp_path: Path) -> None:
    asked = choices(("Ann met Bea because Ann", " rang.", -3.0), ("Ann met Bea because Bea", " rang.", -2.0))
    assert shown(tmp_path, asked)[:2] == ("Ann met Bea because ", "Bea rang.")


def test_a_word_to_be_continued_with_is_the_right_answer(tmp_path: Path) -> None:
    asked = [
        exchange("Loglikelihood", {"logprob": -1, "is_greedy": False}, context="he said", continuation=" yes")
    ]
    assert shown(tmp_path, asked) == ("he said", "another continuation", "yes")


def test_a_mask_shows_the_likeliest_tokens_and_the_target(tmp_path: Path) -> None:
    answer = {"candidates": [{"text": word, "logprob": -1.0} for word in "abcdefg"]}
    asked = [exchange("FillMask", answer, text="x [MASK] y", target="b")]
    assert shown(tmp_path, asked) == ("x [MASK] y", "a, b, c, d, e", "b")


def test_a_text_shows_its_first_sample_and_what_became_of_programs(tmp_path: Path) -> None:
    text = exchange(
        "Generate",
        {"samples": [{"text": "return 1", "finish_reason": "eos", "tokens": 3}]},
        prompt="def f():",
    )
    assert shown(tmp_path, [text]) == ("def f():", "return 1", None)
    run = exchange("RunProgram", {"outcome": "wrong", "detail": "f() == 2"}, program="...")
    assert shown(tmp_path, [text, run])[1].partition(" return ") == ("[wrong: f() == 2]", " return ", "1")
    passed = exchange("RunProgram", {"outcome": "passed"}, program="...")
    assert shown(tmp_path, [text, passed, run])[1].partition("] ") == ("[1 of 2 passed", "] ", "return 1")


def test_nothing_is_shown_where_nobody_kept_the_answers() -> None:
    made = entry([1.0])
    assert shown_answers(BenchmarkScores(saved=made.saved, items=made.items), "acc", ["b/0000"]) == {}


def test_the_right_answer_is_the_one_that_the_benchmark_told(tmp_path: Path) -> None:
    asked = choices(("Q: sky?", " blue", -1.0), ("Q: sky?", " a very long green", -2.0))
    assert shown(tmp_path, asked, told={"right": [1]}) == ("Q: sky?", "blue", "a very long green")


def test_samples_of_lm_eval_show_choices_and_texts(tmp_path: Path) -> None:
    path = tmp_path / "samples_b_2026.jsonl"
    arguments = {f"gen_args_{n}": {"arg_0": "Q", "arg_1": f" {word}"} for n, word in enumerate(("no", "yes"))}
    lines = [
        {
            "doc_id": 0,
            "arguments": arguments,
            "filtered_resps": [["-2.0", "False"], ["-1.0", "True"]],
            "target": "0",
        },
        {
            "doc_id": 1,
            "arguments": [["Q2", {"until": ["."]}]],
            "resps": [["three"]],
            "filtered_resps": ["3"],
            "target": "4",
        },
    ]
    write_jsonl(path, lines)
    made = entry([1.0, 0.0])
    found = shown_answers(
        BenchmarkScores(saved=made.saved, items=made.items, answers=path), "acc", ["b/0", "b/1", "b/2"]
    )
    assert {name: (one.question, one.answer, one.gold) for name, one in found.items()} == {
        "b/0": ("Q", "yes", "no"),
        "b/1": ("Q2", "3", "4"),
    }


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["arguments", "filtered_resps", "resps", "target", "filter", "metrics", "acc"]),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=1), inner, max_size=2)
            ),
            max_leaves=6,
        ),
    )
)
def test_samples_of_another_form_are_shown_as_nothing(tmp_path: Path, data: dict[str, Any]) -> None:
    path = tmp_path / "samples_b_2026.jsonl"
    path.write_text(json.dumps({**data, "doc_id": 0}) + "\n", encoding="utf-8")
    made = entry([1.0])
    found = shown_answers(BenchmarkScores(saved=made.saved, items=made.items, answers=path), "acc", ["b/0"])[
        "b/0"
    ]
    assert isinstance(found.question, str)
    assert isinstance(found.answer, str)


@pytest.mark.parametrize(("metric", "index"), [("acc", 0), ("acc_norm", 1), ("acc_bytes", 2)])
def test_a_published_choice_goes_by_the_rule_of_the_metric_too(
    tmp_path: Path, metric: str, index: int
) -> None:
    options = ["no", "certainly", "그렇습니다"]  # 2, 9 and 5 characters; 2, 9 and 15 bytes
    data = {
        "doc_id": 0,
        "arguments": [["Q", f" {text}"] for text in options],
        "filtered_resps": [["-1.0", "False"], ["-2.0", "False"], ["-3.0", "False"]],
        "target": "0",
    }
    path = tmp_path / "samples_b_2026.jsonl"
    path.write_text(json.dumps(data) + "\n", encoding="utf-8")
    made = entry([1.0])
    found = shown_answers(BenchmarkScores(saved=made.saved, items=made.items, answers=path), metric, ["b/0"])[
        "b/0"
    ]
    assert found.answer == options[index]
