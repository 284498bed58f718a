"""The rule of ``expect_like``, with answers in place of an engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.expectation import CandidateVerdict, broken_items, judge_candidate
from tests.support.entries import entry, right


def references(means: Sequence[float], runs: int = 4) -> BenchmarkScores:
    """References with these mean scores."""
    result = entry(means, checkpoint="reference")
    return replace(result, saved=replace(result.saved, reference_runs=runs))


def verdict(
    means: Sequence[float],
    *scorings: Sequence[float],
    runs: int = 4,
    again: bool = True,
    max_loss: float = 0.01,
) -> CandidateVerdict:
    """The verdict on an engine with these answers, scored as often as there are any."""
    left = [entry(scores, checkpoint="engine", began=2.0) for scores in scorings]

    def score(names: Collection[str]) -> dict[str, BenchmarkScores]:
        return {name: left.pop(0) for name in names} if left else {}

    return judge_candidate(score, {"b": references(means, runs)}, max_loss, again=again)["b"]


def test_equal_answers_pass_whatever_the_engine_is_called() -> None:
    for runs in (1, 4):
        assert verdict(right(20, 30), right(20, 30), runs=runs).kind == "not worse"


def test_a_loss_is_worse_where_a_second_scoring_confirms_it() -> None:
    lost = right(340, 400)
    found = verdict(right(400, 400), lost, lost)
    assert (found.kind, found.scorings) == ("worse", 2)
    assert found.line is not None
    assert found.line.comparison.difference == pytest.approx(-0.15)


def test_a_loss_that_a_second_scoring_does_not_show_is_none() -> None:
    assert verdict(right(400, 400), right(392, 400), right(400, 400)).kind == "inconclusive"
    assert verdict(right(400, 400), right(392, 400), again=False).kind == "worse"


@pytest.mark.parametrize("second", [[], [[]]], ids=["no time", "time for no item"])
def test_a_loss_that_nobody_could_score_again_is_not_told(second: list[list[float]]) -> None:
    found = verdict(right(400, 400), right(340, 400), *second)
    assert (found.kind, found.settled) == ("inconclusive", False)


def test_an_engine_without_answers_is_not_told() -> None:
    assert verdict(right(400, 400)).kind == "inconclusive"


def test_a_loss_within_what_is_allowed_is_no_fault() -> None:
    lost = right(980, 1000)
    assert verdict(right(1000, 1000), lost, lost, max_loss=0.03).kind == "not worse"
    assert verdict(right(1000, 1000), lost, lost, max_loss=0.01).kind == "worse"


@pytest.mark.parametrize("runs", [1, 2])
def test_reference_runs_are_compared_by_the_observed_variance(runs: int) -> None:
    """t of 12 lost of 400, and of two items more."""
    found = verdict(right(400, 400), right(388, 400), runs=runs, again=False)
    assert found.line is not None
    n, mean = 402, -12 / 402
    variance = (14 - n * mean**2) / (n - 1)
    assert found.line.comparison.stderr == pytest.approx((variance / n) ** 0.5 * n / 400)


def test_more_items_find_smaller_losses() -> None:
    few, many = (verdict(right(n, n), right(n, n)) for n in (400, 4000))
    assert few.finds is not None
    assert many.finds is not None
    assert 0.045 < few.finds < 0.06
    assert many.finds < 0.01 < few.finds
    assert many.items is not None
    assert many.items < 4000


def test_the_items_that_lost_most_are_named_first() -> None:
    found = verdict([1, 1, 0.5, 0, 1, 1, 1, 1], [0, 1, 0, 1, 0, 0, 0, 0], again=False)
    broken = broken_items(found, references([1, 1, 0.5, 0, 1, 1, 1, 1]))
    assert list(broken) == ["b/0000", "b/0004", "b/0005", "b/0006", "b/0007"]
    assert broken["b/0000"] == (1, 0)
