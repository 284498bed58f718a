"""Two totals are compared only as far as their errors and numbers of items are known.

Published samples and a run are compared item by item where both asked by the same prompt.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.candidate import BenchmarkScores, CheckpointResults, published
from pytest_touchstone.compare.metric import compare_totals
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.reports import comparison
from pytest_touchstone.results.journal import Journal, shorten_request
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import Metric
from pytest_touchstone.statistics.comparison import Comparison
from pytest_touchstone.statistics.unpaired import SummaryStatistics, compare_means, compare_rates
from tests.support.compared import ran
from tests.support.entries import right
from tests.support.known import known
from tests.support.lines import missing
from tests.support.rows import write_jsonl


def compared(a: Metric, b: Metric) -> Comparison:
    return compare_totals(a, b, benchmark="b", level=0.95)


def of(value: float, stderr: float | None = None, n: int = 0) -> Metric:
    return published("acc", value, stderr=stderr, n=n)


def test_shares_with_sizes_are_compared_by_the_score_test() -> None:
    assert compared(of(0.6604, n=2400), of(0.6778, n=3200)) == compare_rates(0.6604, 2400, 0.6778, 3200)


def test_errors_as_those_of_right_and_wrong_items_make_a_share_also_where_they_are_rounded() -> None:
    error = math.sqrt(0.3 * 0.7 / 99)
    for stderr in (error, round(error, 4), math.sqrt(0.3 * 0.7 / 100)):
        assert "two shares" in compared(of(0.3, stderr, 100), of(0.4, n=100)).method


def test_other_errors_make_means() -> None:
    found = compared(of(0.3, 0.08, 100), of(0.4, 0.02, 120))
    assert found == compare_means(SummaryStatistics(0.3, 0.08, 100), SummaryStatistics(0.4, 0.02, 120))


def test_errors_without_sizes_make_a_normal_approximation() -> None:
    found = compared(of(0.30, 0.01), of(0.34, 0.01))
    assert found.p == pytest.approx(0.00468, abs=1e-4)
    assert (found.low, found.high) == pytest.approx((0.0123, 0.0677), abs=1e-4)
    assert "normal approximation" in (found.why or "")


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_an_error_of_0_tells_nothing(value: float) -> None:
    assert "two shares" in compared(of(0.6, n=60), of(value, 0.0, 4)).method
    unsized = compared(of(0.6, 0.02), of(value, 0.0, 4))
    assert (unsized.p, unsized.low) == (None, None)
    assert "--items b=N" in (unsized.why or "")
    assert compared(of(0.6, 0.3, 60), of(value, 0.0, 4)).why == "standard errors are not known"


def test_a_value_alone_gives_the_difference_alone_and_says_what_is_missing() -> None:
    found = compared(of(0.3), of(0.4, 0.01, 100))
    assert found.difference == pytest.approx(0.1)
    assert (found.low, found.high, found.p, found.stderr) == (None, None, None, None)
    assert "--items b=N" in (found.why or "")


def test_means_beyond_shares_without_errors_cannot_be_told_by_their_sizes() -> None:
    found = compared(of(-3.5, n=100), of(-3.2, n=100))
    assert (found.p, found.why) == (None, "standard errors are not known")


def test_no_value_is_undefined_with_its_reason() -> None:
    nothing = Metric(
        name="acc", value=None, low=None, high=None, stderr=None, n=0, method="none", why="no items"
    )
    found = compared(nothing, of(0.5, n=10))
    assert (found.difference, found.why) == (None, "no items")


ANY = st.builds(
    of,
    st.floats(-2, 2),
    st.none() | st.floats(0, 0.5),
    st.sampled_from([0, 1, 2, 20, 400]),
)


@given(ANY, ANY)
def test_exchanging_the_totals_mirrors_what_is_said(a: Metric, b: Metric) -> None:
    one, other = compared(a, b), compared(b, a)
    assert one.p == pytest.approx(other.p) if one.p is not None else other.p is None
    if one.difference is not None and other.difference is not None:
        assert one.difference == -other.difference
    if one.low is not None:
        assert (one.low, one.high) == pytest.approx((-known(other.high), -known(other.low)), abs=1e-9)


LONG = "shots " * 1000


def run_of(tmp_path: Path, prompts: list[str], chat: int = 0) -> CheckpointResults:
    """A run whose journal has the prompts."""
    folder = tmp_path / "run"
    folder.mkdir()
    made = ran("new", {"b": right(4, len(prompts))})
    with Journal(folder, "main") as journal:
        for example, prompt in zip(made.entries["b"].items.examples, prompts, strict=True):
            request: dict[str, Any] = shorten_request({"context": prompt, "continuation": " yes"})
            exchange = {"kind": "Loglikelihood", "request": request, "answer": {}}
            fields: dict[str, Any] = {
                "item": example,
                "benchmark": "b",
                "example": example,
                "checkpoint": "new",
                "row": "r",
            }
            journal.append(Record(**fields, status="scored", exchanges=[exchange], chat=chat))
    return with_answers(made, folder)


def samples_of(tmp_path: Path, prompts: list[str]) -> CheckpointResults:
    """Somebody's samples with the hashes of the prompts."""
    made = ran("old", {"b": right(2, len(prompts))}, rows=[f"their {n}" for n in range(len(prompts))])
    ids = [example.partition("/")[2] for example in made.entries["b"].items.examples]
    hashes = [hashlib.sha256(prompt.encode()).hexdigest() for prompt in prompts]
    lines = [{"doc_id": one, "prompt_hash": known} for one, known in zip(ids, hashes, strict=True)]
    path = tmp_path / "samples_b.jsonl"
    write_jsonl(path, lines)
    saved = replace(made.entries["b"].saved, fingerprint="old-imported")
    return with_answers(made, path, saved)


def with_answers(made: CheckpointResults, place: Path, saved: Any = None) -> CheckpointResults:
    known = made.entries["b"]
    return replace(made, entries={"b": BenchmarkScores(saved or known.saved, known.items, place)})


def test_the_same_prompts_are_the_same_items(tmp_path: Path) -> None:
    prompts = [f"{LONG if n % 2 else ''}{n}" for n in range(8)]
    theirs, ours = samples_of(tmp_path, prompts), run_of(tmp_path, prompts)
    for pair in (compare_pair(theirs, ours), compare_pair(ours, theirs)):
        assert pair.lines[0].counts.each == (8, 8, 8)
        assert pair.lines[0].counts.paired
    side = "A was published elsewhere, and asked the same items by the same prompts: b"
    assert side in comparison.notes(compare_pair(theirs, ours))


def test_items_with_another_prompt_are_left_out(tmp_path: Path) -> None:
    theirs = samples_of(tmp_path, [*"abcdefgh"])
    pair = compare_pair(theirs, run_of(tmp_path, [*"abcdef", "other", LONG]))
    assert not missing(" ".join(comparison.notes(pair)), "b: 6 of 8 items", "8 of B")


def test_other_prompts_and_chats_are_runs_on_different_items(tmp_path: Path) -> None:
    theirs = samples_of(tmp_path, [*"abcd"])
    (tmp_path / "chat").mkdir()
    for ours in (run_of(tmp_path, [*"efgh"]), run_of(tmp_path / "chat", [*"abcd"], chat=1)):
        pair = compare_pair(theirs, ours)
        assert not pair.lines[0].counts.paired
        assert "asked the same items alike" in " ".join(comparison.notes(pair))
