"""Benchmarks whose rows are on the Hub alone: what they ask of made-up rows, byte for byte, and how they score."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from pytest_touchstone.core.benchmark import Benchmark, declaration_of, generator_function
from pytest_touchstone.core.dataset import load_dataset
from pytest_touchstone.core.errors import MissingDataError
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.files import load_module
from pytest_touchstone.core.requests import Loglikelihood, LoglikelihoodAnswer
from tests.support.places import ROOT

GPQA = {
    "Question": "Which?",
    "Correct Answer": " right  one\n",
    "Incorrect Answer 1": "a [title]",
    "Incorrect Answer 2": "b",
    "Incorrect Answer 3": "c",
}
TRUTHFUL = {
    "question": "Is it?",
    "mc1_targets": {"choices": ["yes", "no"], "labels": [1, 0]},
    "mc2_targets": {"choices": ["yes", "indeed", "no"], "labels": [1, 1, 0]},
}
KMMLU = {"question": " 무엇? ", "answer": 2, "A": "가", "B": 7, "C": "다", "D": "라", "file": "Law"}
CLICK = {
    "id": "KIIP_law_1",
    "paragraph": "",
    "question": "무엇?",
    "choices": ["가", "나", "다", "라"],
    "answer": "다",
}
HAERAE = {"query": "무엇인가?\n(A) 가\n(B) 나\n정답:", "answer": "(B)"}


def functions(name: str) -> dict[str, tuple[Benchmark, Callable[..., Any]]]:
    module = load_module(ROOT / "evals" / f"{name}.py", f"adapters_{name}")
    found = ((declaration_of(value), value) for value in vars(module).values())
    return {spec.name: (spec, generator_function(function)) for spec, function in found if spec is not None}


FILES = ("test_gpqa", "test_truthfulqa", "test_haerae", "test_kmmlu", "test_click")
KNOWN = {name: known for file in FILES for name, known in functions(file).items()}


def asked(name: str, row: dict[str, Any]) -> tuple[Any, list[Loglikelihood]]:
    spec, function = KNOWN[name]
    made = TypeAdapter(spec.row).validate_python(
        spec.row_rules.prepare(dict(row)) if spec.row_rules.prepare else row
    )
    given = (made, FewShot()) if function.__code__.co_argcount == 2 else (made,)
    generator = function(*given)
    return generator, next(generator)


def scored(generator: Any, logprobs: list[float]) -> dict[str, float]:
    with pytest.raises(StopIteration) as end:
        generator.send([LoglikelihoodAnswer(one, False, 1) for one in logprobs])
    found = end.value.value
    assert isinstance(found, dict)
    return {**found}


@pytest.mark.parametrize("name", KNOWN)
def test_no_rows_are_shipped_and_the_message_says_why(name: str) -> None:
    with pytest.raises(MissingDataError, match="shipped"):
        load_dataset(KNOWN[name][0], None)


def test_gpqa_lists_its_answers_in_an_order_that_is_the_same_in_every_run() -> None:
    generator, requests = asked("gpqa", GPQA)
    assert [one.continuation for one in requests] == [" (A)", " (B)", " (C)", " (D)"]
    lines = requests[0].context.split("\n")
    assert lines[:2] == ["What is the correct answer to this question:Which?", "Choices:"]
    assert lines[-1] == "Answer:"
    assert sorted(line[4:] for line in lines[2:6]) == ["a. ", "b", "c", "right one"]
    assert asked("gpqa", GPQA)[1] == requests
    place = next(number for number, line in enumerate(lines[2:6]) if line.endswith("right one"))
    assert scored(generator, [0.0 if number == place else -1.0 for number in range(4)]) == {"acc": 1.0}
    others = {
        tuple(asked("gpqa", {**GPQA, "Question": f"{n}?"})[1][0].context.split("\n")[2:6]) for n in range(9)
    }
    assert len(others) > 3


def test_an_answer_of_gpqa_that_is_missing_is_a_space_as_in_the_reference() -> None:
    _, requests = asked("gpqa", {**GPQA, "Incorrect Answer 2": None})
    assert sorted(line[4:] for line in requests[0].context.split("\n")[2:6]) == [" ", "a. ", "c", "right one"]


def test_kmmlu_asks_for_one_of_four_letters_and_counts_for_its_group() -> None:
    generator, requests = asked("kmmlu", KMMLU)
    assert {one.context for one in requests} == {"무엇?\nA. 가\nB. 7\nC. 다\nD. 라\n정답："}
    assert [one.continuation for one in requests] == [" A", " B", " C", " D"]
    assert scored(generator, [-3.0, -1.0, -2.0, -2.0]) == {"acc": 1.0, "acc_humss": 1.0}
    other, _ = asked("kmmlu", {**KMMLU, "file": "mine"})
    assert scored(other, [-1.0, -2.0, -2.0, -2.0]) == {"acc": 0.0}


def test_click_asks_for_a_letter_more_of_the_csat() -> None:
    generator, requests = asked("click", CLICK)
    assert requests[0].context.endswith("\n\n질문: 무엇?\n보기:\nA:가, B: 나, C: 다, D: 라\n정답:")
    assert [one.continuation for one in requests] == [" A", " B", " C", " D"]
    assert scored(generator, [-3.0, -2.0, -1.0, -2.0]) == {"acc": 1.0}
    csat = {**CLICK, "id": "CSAT_korean_22_3", "choices": ["가", "나", "다", "라", "마"], "paragraph": "글"}
    _, five = asked("click", csat)
    assert [one.continuation for one in five] == [" A", " B", " C", " D", " E"]
    assert "\n\n맥락: 글\n질문: " in five[0].context


def test_a_row_of_click_has_one_category_and_none_is_left_out_in_silence() -> None:
    keep, prepare = KNOWN["click"][0].row_rules.keep, KNOWN["click"][0].row_rules.prepare
    assert keep is not None
    assert prepare is not None
    assert prepare({**CLICK, "id": "Kedu_16_history_2"})["category"] == "history"
    assert prepare({**CLICK, "id": "TK_35_x"})["category"] == "grammar"
    assert not keep({**CLICK, "id": "CSAT_korean_21_12"})
    assert keep({"question": "no id"})  # the check of its fields names what is wrong
    with pytest.raises(ValueError, match="is not in list"):
        prepare({**CLICK, "answer": "바"})


def test_truthfulqa_stands_behind_the_authors_prompt() -> None:
    generator, requests = asked("truthfulqa_mc1", TRUTHFUL)
    context = requests[0].context
    assert context.startswith(
        "Q: What is human life expectancy in the United States?\nA: Human life expectancy"
    )
    assert context.endswith("held in Barcelona, Spain.\n\nQ: Is it?\nA:")
    assert [one.continuation for one in requests] == [" yes", " no"]
    assert scored(generator, [-1.0, -2.0]) == {"acc": 1.0}
    assert scored(asked("truthfulqa_mc1", TRUTHFUL)[0], [-3.0, -2.0]) == {"acc": 0.0}


def test_truthfulqa_mc2_is_the_share_of_the_true_answers() -> None:
    generator, _ = asked("truthfulqa_mc2", TRUTHFUL)
    found = scored(generator, [math.log(0.2), math.log(0.1), math.log(0.1)])
    assert found["acc"] == pytest.approx(0.75)
    tiny = scored(asked("truthfulqa_mc2", TRUTHFUL)[0], [-2000.0, -2000.0, -2000.0])
    assert tiny["acc"] == pytest.approx(2 / 3)  # no underflow


@pytest.mark.parametrize("name", [name for name in KNOWN if name.startswith("haerae")])
def test_haerae_asks_for_one_of_five_letters(name: str) -> None:
    generator, requests = asked(name, HAERAE)
    assert {one.context for one in requests} == {HAERAE["query"]}
    assert [one.continuation for one in requests] == [" (A)", " (B)", " (C)", " (D)", " (E)"]
    assert scored(generator, [-3.0, -1.0, -2.0, -2.0, -2.0]) == {"acc": 1.0}
