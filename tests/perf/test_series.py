"""The program of series: what a measure says of an item, and what is found in comparisons of made-up checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf.series_parts import study
from perf.series_parts.items import Answers, answers_of, read
from perf.series_parts.study import ACCURACY, Comparison, Measure
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import Record

BITS = Measure("bits_per_byte")


def record(number: int, logprobs: Sequence[float], checkpoint: str = "checkpoint-0") -> Record:
    exchanges = [
        {"request": {"context": "Question", "continuation": " four"}, "answer": {"logprob": one}}
        for one in logprobs
    ]
    right = float(logprobs[0] == max(logprobs))
    return Record(
        item=f"arc_easy[{number}]",
        benchmark="arc_easy",
        example=f"arc_easy/{number}",
        checkpoint=checkpoint,
        status="scored",
        scores={"acc": right, "acc_norm": right, "bits_per_byte": 2.0},
        facts={"right": [0]},
        exchanges=exchanges,
    )


def answers(right: Sequence[float], wrong: Sequence[float], bits: Sequence[float] = ()) -> Answers:
    """Answers to items of two choices."""
    first, other = np.array(right), np.array(wrong)
    names = tuple(f"arc_easy/{number}" for number in range(len(first)))
    own = np.array(bits) if bits else first
    return Answers(names, (first > other).astype(float), own, first, other[:, None])


def compared(old: Answers, new: Answers) -> Comparison:
    return Comparison("arc_easy", "noise", None, 5, old, new)


LOGPROBS = st.lists(st.floats(-50, 0), min_size=2, max_size=5)


@given(LOGPROBS)
def test_the_probability_of_the_right_choice_is_that_of_a_softmax(logprobs: list[float]) -> None:
    found = answers_of([record(0, logprobs)], "acc").measure("p_right", 2.0)
    shares = [math.exp(one / 2) for one in logprobs]
    assert found[0] == pytest.approx(shares[0] / sum(shares), abs=1e-12)


@given(LOGPROBS)
def test_the_probability_becomes_accuracy_as_the_temperature_goes_to_zero(logprobs: list[float]) -> None:
    if sorted(logprobs)[-1] - sorted(logprobs)[-2] > 1e-3:
        found = answers_of([record(0, logprobs)], "acc")
        assert found.measure("p_right", 1e-5)[0] == pytest.approx(found.accuracy[0])


def test_choices_are_divided_by_their_characters_where_the_primary_metric_divides() -> None:
    assert answers_of([record(0, [-2.0, -4.0])], "acc_norm").measure("logprob_margin")[0] == 0.5


def test_items_have_the_order_of_their_numbers_and_choices_may_be_fewer() -> None:
    found = answers_of([record(10, [-1, -2, -3]), record(2, [-1, -5])], "acc")
    assert found.names == ("arc_easy/2", "arc_easy/10")
    assert found.measure("logprob_margin").tolist() == [4, 1]


def test_runs_of_a_series_are_read_together_and_answers_taken_from_elsewhere_left_out(tmp_path: Path) -> None:
    for name, numbers in (("noise.arc_easy.1", [0]), ("noise.arc_easy.2", [0, 1])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({}))
        with Journal(folder, "main") as journal:
            for number in numbers:
                made = record(number, [-1, -2], "checkpoint-20")
                if number < numbers[-1]:
                    made.exchanges.clear()
                journal.append(made)
    found = read(tmp_path)
    assert found["arc_easy"]["noise"][20].names == ("arc_easy/0", "arc_easy/1")


def test_a_measure_that_rises_where_accuracy_falls_is_told_first() -> None:
    draw = np.random.default_rng(0)
    right, wrong = draw.normal(0, 1, 400), draw.normal(0, 1, 400)
    old = answers(right.tolist(), wrong.tolist())
    new = answers((right + 0.5).tolist(), (wrong + 1.5).tolist())
    rows = study.summary_of({"arc_easy": [BITS, Measure("logprob_margin")]}, [compared(old, new)])
    assert [row["measure"] for row in study.partings(rows)] == ["bits_per_byte"]


def test_items_for_eighty_per_cent_power_are_those_of_the_normal_approximation() -> None:
    changes = np.array([1.0, 1.0, 0.0, 0.0])
    assert study.items_needed(changes) == pytest.approx(2.8**2 * (1 / 3) / 0.25)
    assert study.items_needed(np.array([1.0, -1.0])) == math.inf


@given(st.floats(0.2, 2))
def test_the_slope_of_a_line_with_equal_errors_is_found(slope: float) -> None:
    x = np.array([-0.1, -0.05, 0.02])
    errors = np.array([[1e-4, 0, 1e-4]] * 3)
    assert study.slope(x, slope * x, errors) == pytest.approx(slope, abs=0.006)


def test_the_slope_is_not_biased_by_errors_that_both_share() -> None:
    draw = np.random.default_rng(1)
    true = draw.normal(0, 0.05, 2000)
    shared, own = draw.normal(0, 0.03, (2, 2000))
    x, y = true + shared + own, 0.5 * true + shared
    errors = np.array([[0.0018, 0.0009, 0.0009]] * 2000)
    assert study.slope(x, y, errors) == pytest.approx(0.5, abs=0.05)


def test_the_temperature_is_the_largest_at_which_the_change_is_not_less_than_accuracy_s() -> None:
    found = [
        study.Slope(0.01, 1.0, (1.0, 1.0), {}, 1.0),
        study.Slope(0.1, 1.02, (1.1, 0.95), {}, 1.5),
        study.Slope(1.0, 0.8, (1.05, 0.6), {}, 2.0),
    ]
    chosen = study.temperature(found)
    assert (chosen.value, chosen.largest) == (0.1, 1.0)
    assert [chosen.low, chosen.high] == pytest.approx([0.03475, 0.97525])


def test_checkpoints_are_compared_with_the_start_and_the_one_before_and_unfinished_ones_with_none() -> None:
    draw = np.random.default_rng(3)
    whole = [answers(draw.normal(1, 1, 40).tolist(), draw.normal(0, 1, 40).tolist()) for _ in range(4)]
    scored = {
        "arc_easy": {
            "start": {0: whole[0]},
            "rounded": {8: whole[1], 4: whole[2], 3: whole[3].only({"arc_easy/1"})},
        }
    }
    assert [(one.before, one.number) for one in study.comparisons(scored)] == [(None, 8), (None, 4), (8, 4)]
    assert study.rank_correlation(scored, "arc_easy", ACCURACY).keys() == set()


def test_a_measure_that_orders_as_accuracy_does_has_a_rank_correlation_of_one() -> None:
    levels = [answers([float(n < kept) for n in range(8)], [0.5] * 8) for kept in (7, 5, 4, 2)]
    scored = {"arc_easy": {"start": {0: levels[0]}, "noise": dict(enumerate(levels[1:]))}}
    found = study.rank_correlation(scored, "arc_easy", Measure("logprob_margin"))
    assert found == {"all": pytest.approx(1), "noise": pytest.approx(1)}


def test_a_third_of_the_items_decides_by_a_measure_with_less_noise() -> None:
    draw = np.random.default_rng(2)
    right, wrong = draw.normal(1, 1, 900), draw.normal(0, 1, 900)
    old = answers(right.tolist(), wrong.tolist())
    new = answers((right - 0.15 + draw.normal(0, 0.3, 900)).tolist(), wrong.tolist())
    found = [compared(old, new)]
    soft = study.reach(found, Measure("p_right", 1.0))
    assert soft["told"] > study.reach(found, ACCURACY)["told"] > 0.5
    assert soft["share"] < 1 / 3
    assert soft["wrong"] == 0
    alarms = study.false_alarms(found, Measure("p_right", 1.0))
    assert all(0 < share < 0.05 for share in alarms.values())
    for size, row in study.decision_accuracy(found, Measure("p_right", 1.0)).items():
        assert row["sign"] >= row["accuracy_sign"], size
