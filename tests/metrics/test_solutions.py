"""The forms of a benchmark by the likelihood of its published solutions."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.benchmark import Solution, benchmark, declaration_of, generator_function
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.requests import Generate, Loglikelihood, LoglikelihoodAnswer
from pytest_touchstone.core.tasks import TaskSelection
from pytest_touchstone.metrics.gsm8k import GSM8K_SOLUTION
from pytest_touchstone.metrics.math import MATH
from pytest_touchstone.metrics.solutions import forms_of, function_named, wrong_numbers

ROW = {"question": "2 + 3?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"}


def made(solution: Solution | None = GSM8K_SOLUTION, **more: Any) -> Any:
    """A benchmark of texts."""

    @benchmark("sums", version=1, rows=[ROW], asks=Generate, primary="right", solution=solution, **more)
    def test_sums(example: Any, fewshot: FewShot) -> Any:
        """Sums."""
        answer = yield fewshot.generate(f"Q: {example['question']}\nA:", max_new_tokens=8)
        return {"right": float(answer.text == "5")}

    return test_sums


def asked(form: Any, row: Any = ROW) -> tuple[Any, Any]:
    """The running generator of a form, and what it asks."""
    generator = generator_function(form)(example=row, fewshot=FewShot("Q: 1?\nA: 1\n\n"))
    return generator, next(generator)


def scores(generator: Any, answers: Any) -> Any:
    with pytest.raises(StopIteration) as ended:
        generator.send(answers)
    return ended.value.value


@given(st.integers(-(10**12), 10**12), st.booleans())
def test_wrong_numbers_are_four_others_written_as_the_right_one(number: int, commas: bool) -> None:
    right = f"{number:,}" if commas else str(number)
    wrong = wrong_numbers(right)
    assert len({right, *wrong}) == 5
    assert wrong == wrong_numbers(right)
    assert all(("," in one) <= ("," in right) for one in wrong)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("18", ("19", "17", "36", "180")),
        ("0", ("1", "-1", "2", "-2")),
        ("1", ("2", "0", "10", "3")),
        ("-1", ("0", "-2", "-10", "1")),
        ("1,000", ("1,001", "999", "2,000", "10,000")),
        ("3.5", ()),
        ("1,00", ()),
        ("x", ()),
        ("", ()),
    ],
)
def test_the_wrong_numbers_of_a_right_one(right: str, wrong: tuple[str, ...]) -> None:
    assert wrong_numbers(right) == wrong


def test_bits_are_those_of_the_solution_after_the_prompt_and_per_byte_of_its_text_alone() -> None:
    bits, _ = forms_of(made())
    generator, request = asked(bits)
    assert request == Loglikelihood("Q: 1?\nA: 1\n\nQ: 2 + 3?\nA:", f" {ROW['answer']}")
    found = scores(generator, LoglikelihoodAnswer(-10 * math.log(2), False, 9))
    bytes_ = len(ROW["answer"].encode())
    assert found == {"bits_per_byte": pytest.approx(10 / bytes_)}
    olmo_eval = 10 / len(request.continuation.encode())  # whose bytes are those of the whole continuation
    assert olmo_eval == pytest.approx(found["bits_per_byte"] * bytes_ / (bytes_ + 1))


def test_the_contrast_sets_the_right_number_against_four_after_the_published_steps() -> None:
    _, contrast = forms_of(made())
    generator, requests = asked(contrast)
    assert {one.context for one in requests} == {
        "Q: 1?\nA: 1\n\nQ: 2 + 3?\nA: 2 + 3 = <<2+3=5>>5\n####",
    }
    assert [one.continuation for one in requests] == [" 5", " 6", " 4", " 10", " 50"]
    answers = [LoglikelihoodAnswer(logprob, False, 1) for logprob in (-1.0, -2.0, -3.0, -4.0, -5.0)]
    found = scores(generator, answers)
    assert (found["acc"], found.right) == (1.0, 0)


def test_the_last_box_of_a_solution_is_set_against_others_from_the_space_before_it() -> None:
    final = MATH["solution"].final
    assert final({"solution": r"So $x = 3$, and $y=\boxed{12}$."}) == (
        "So $x = 3$, and",
        r"$y=\boxed{12}",
        (r"$y=\boxed{13}", r"$y=\boxed{11}", r"$y=\boxed{24}", r"$y=\boxed{120}"),
    )
    for solution in (r"It is $\boxed{\frac12}$.", "none", r"\boxed{3}", r"is \boxed 3$", ""):
        assert final({"solution": solution}) is None
    assert final({}) is None


def test_a_form_is_declared_as_its_benchmark_is_but_for_what_it_asks() -> None:
    function = made(cluster="question")
    for form, name, primary in zip(
        forms_of(function), ("bpb", "contrast"), ("bits_per_byte", "acc"), strict=True
    ):
        spec = declaration_of(form)
        assert spec is not None
        assert spec.base is declaration_of(function)
        assert (spec.name, spec.primary, spec.row_rules.cluster) == (f"sums:{name}", primary, "question")
        assert (spec.asks, spec.grader, spec.data) == ((Loglikelihood,), None, spec.base.data)
        assert list(forms_of(form)) == []
    assert list(forms_of(made(None))) == list(forms_of(len)) == []


def test_rows_without_a_whole_number_belong_to_no_contrast() -> None:
    contrast = declaration_of(list(forms_of(made(keep=lambda row: row.get("question") != "no")))[1])
    assert contrast is not None
    assert contrast.row_rules.keep is not None
    kept = [
        contrast.row_rules.keep({**ROW, **more})
        for more in ({}, {"answer": "#### a"}, {"question": "no"}, {"answer": None})
    ]
    assert kept == [True, False, False, False]


def test_a_form_is_found_by_the_name_of_its_function() -> None:
    class Module:
        test_sums = staticmethod(made())

    found: Any = Module
    assert function_named(found, "test_sums") is Module.test_sums
    assert function_named(found, "test_sums:bpb").__name__ == "test_sums:bpb"
    assert function_named(found, "test_sums:other") is None
    assert function_named(found, "test_none:bpb") is None


def test_only_a_term_with_a_colon_means_a_form() -> None:
    function = made(tags=("mathematics",))
    specs = [spec for one in (function, *forms_of(function)) if (spec := declaration_of(one)) is not None]

    def chosen(*terms: str) -> list[str]:
        tasks = TaskSelection.of(terms)
        assert [tasks.takes(one, None) for one in specs] == [tasks.chosen(one) for one in specs]
        return [one.name for one in specs if tasks.chosen(one)]

    assert chosen() == chosen("sums") == chosen("s*") == chosen("mathematics") == chosen("-other") == ["sums"]
    assert chosen("scoring") == []
    assert chosen("sums:bpb") == chosen("*:bpb") == ["sums:bpb"]
    assert chosen("sums:*", "-sums:bpb") == ["sums:contrast"]
    assert chosen("*", "*:*") == ["sums", "sums:bpb", "sums:contrast"]


def test_a_solution_is_for_a_benchmark_of_texts_that_takes_nothing_else() -> None:
    @benchmark("more", version=1, rows=[ROW], asks=Generate, primary="x", solution=GSM8K_SOLUTION)
    def test_more(example: Any, fewshot: FewShot, tmp_path: Any) -> Any:
        yield

    with pytest.raises(BenchmarkError, match="it takes example, fewshot, tmp_path"):
        list(forms_of(test_more))

    @benchmark("list", version=1, rows=[ROW], asks=Loglikelihood, primary="x", solution=GSM8K_SOLUTION)
    def test_list(example: Any, fewshot: FewShot) -> Any:
        yield [fewshot.loglikelihood("a", "b")]

    with pytest.raises(BenchmarkError, match="asks for a text first"):
        asked(next(forms_of(test_list)))
