"""Aggregations: the direction of a metric and of its score, and functions that are found again by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_touchstone.core.aggregation import STANDARD, Aggregation, aggregation_of, mean, perplexity
from pytest_touchstone.core.errors import BenchmarkError
from tests.support.lines import naming


def slowest(values: Sequence[float], clusters: Sequence[str | None] | None) -> float:
    return max(values)


def test_a_perplexity_falls_as_its_score_rises() -> None:
    assert not perplexity("logprob").higher_is_better
    assert perplexity("logprob").higher_score_is_better
    assert not mean("error", higher_is_better=False).higher_score_is_better


@pytest.mark.parametrize(
    "one",
    [
        mean("acc"),
        mean("error", higher_is_better=False),
        perplexity("logprob"),
        mean("latency", unit="s", margin=0.5),
        Aggregation("F1", "acc", beside=("right", "chosen")),
    ],
)
def test_an_aggregation_survives_its_plain_form(one: Aggregation) -> None:
    plain = json.loads(json.dumps({"m": one.plain()}))
    assert aggregation_of(plain, "m") == one


def test_results_that_say_no_direction_have_a_perplexity_that_is_lower_is_better() -> None:
    aggregate = {"ppl": {"by": "perplexity", "of": "logprob"}, "m": {"by": "mean", "of": "acc"}}
    assert aggregation_of(aggregate, "ppl") == perplexity("logprob")
    assert aggregation_of(aggregate, "m") == mean("acc")
    assert aggregation_of(aggregate, "logprob").higher_is_better


def test_a_score_and_a_mean_over_groups_have_the_direction_of_their_metric() -> None:
    aggregate = {"error_rate": mean("error", higher_is_better=False).plain()}
    for name in ("error", "error_rate_macro", "error_macro"):
        assert not aggregation_of(aggregate, name).higher_is_better, name
    assert aggregation_of(aggregate, "acc").higher_is_better


def test_a_function_is_found_again_by_its_place() -> None:
    made = Aggregation("slowest", "seconds", function=slowest, higher_is_better=False, unit="s")
    again = aggregation_of(json.loads(json.dumps({"m": made.plain()})), "m")
    assert again.function is None
    assert again.resolve() is slowest


def test_a_function_of_a_file_that_is_not_loaded_is_found_too(tmp_path: Path) -> None:
    file = tmp_path / "test_mine.py"
    file.write_text("def top(values, clusters):\n    return max(values)\n")
    one = Aggregation("top", "seconds", at=("test_mine", str(file), "top"))
    function = one.resolve()
    assert function is not None
    assert function([1.0, 3.0], None) == 3.0
    with pytest.raises(BenchmarkError, match=naming("aggregation 'gone'", file, "function 'gone'")):
        Aggregation("gone", "seconds", at=("test_mine", str(file), "gone")).resolve()
    with pytest.raises(BenchmarkError, match=naming(tmp_path / "nowhere.py", "aggregation")):
        Aggregation("x", "seconds", at=("nowhere", str(tmp_path / "nowhere.py"), "x")).resolve()


@pytest.mark.parametrize("function", [lambda values, clusters: 0.0, max])
def test_a_function_that_cannot_be_found_again_is_refused(function: object) -> None:
    with pytest.raises(BenchmarkError, match=naming("aggregation 'x'", "name", "top of a file")):
        Aggregation("x", "seconds", function=function).plain()  # type: ignore[arg-type]


@pytest.mark.parametrize("told", [{}, {"unit": "bits"}, {"unit": "bits", "margin": 0.01}])
def test_bits_of_any_result_are_in_bits_with_their_margin_and_lower_is_better(
    told: dict[str, object],
) -> None:
    former = {"bits_per_byte": {"by": "mean", "of": "bits_per_byte", "higher_is_better": False, **told}}
    assert (
        aggregation_of(former, "bits_per_byte")
        == STANDARD["bits_per_byte"]
        == aggregation_of({}, "bits_per_byte")
    )


def test_a_mean_over_groups_has_the_unit_and_margin_of_its_metric() -> None:
    found = aggregation_of({}, "bits_per_byte_macro")
    assert (found.unit, found.margin, found.higher_is_better) == ("bits", 0.01, False)


def test_a_declared_unit_and_margin_win_over_the_usual_ones() -> None:
    declared = {"log_odds": mean("log_odds", unit="nats", margin=0.2).plain()}
    assert aggregation_of(declared, "log_odds").margin == 0.2
