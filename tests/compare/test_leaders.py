"""The best of several checkpoints leads only where it can be told from every other one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.ranking import leaders_of
from pytest_touchstone.core.composite import Composite, Part
from pytest_touchstone.statistics.best_of_many import is_told_best
from pytest_touchstone.statistics.paired import compare_paired
from tests.support.entries import entry, right

N = 400


def rows(*counts: int, **more: Any) -> list[BenchmarkScores]:
    """Checkpoints with so many right items of 400."""
    return [entry(right(count, N), checkpoint=f"c{place}", **more) for place, count in enumerate(counts)]


def led(entries: Sequence[BenchmarkScores]) -> list[tuple[str, str, int]]:
    return [(one.benchmark, one.checkpoint, one.of) for one in leaders_of(entries)]


def test_a_checkpoint_far_ahead_of_all_others_leads() -> None:
    assert led(rows(200, 300, 220)) == [("b", "c1", 3)]


def test_nobody_leads_where_the_second_is_too_near_or_equal_or_alone() -> None:
    assert led(rows(200, 300, 298)) == []
    assert led(rows(300, 300)) == []
    assert led(rows(300)) == []


def test_more_checkpoints_need_a_clearer_lead() -> None:
    p = compare_paired(right(200, N), right(207, N)).p
    assert p is not None
    assert p < 0.05 < p * 20 / 2
    assert led(rows(200, 207)) == [("b", "c1", 2)]
    assert led(rows(*[200] * 19, 207)) == []


def test_of_a_metric_of_which_less_is_better_the_lowest_leads() -> None:
    draw = random.Random(0)
    losses = [-draw.expovariate(1.0) for _ in range(N)]
    how = {"perplexity": {"by": "perplexity", "of": "logprob"}}
    entries = [
        entry({"logprob": [loss - place for loss in losses]}, checkpoint=f"c{place}", aggregate=how)
        for place in range(2)
    ]
    assert led(entries) == [("b", "c0", 2)]


@pytest.mark.parametrize("flaw", [{"faults": 1}, {"skipped": 1}, {"invalid": "cut off"}])
def test_what_is_not_whole_or_not_valid_does_not_run(flaw: dict[str, Any]) -> None:
    best = entry(right(390, N), checkpoint="best", **flaw)
    assert led([best, *rows(200, 300)]) == [("b", "c1", 2)]


@pytest.mark.parametrize(
    "other",
    [
        entry(right(100, N), checkpoint="other", conditions={"shots": 5}),
        entry(right(100, 300), checkpoint="other"),
    ],
)
def test_nobody_leads_beside_one_that_was_asked_otherwise_or_other_items(other: BenchmarkScores) -> None:
    assert led([*rows(200, 300), other]) == []


def test_a_composite_has_a_leader_too() -> None:
    composite = Composite("both", (Part(0.5, "a", "acc"), Part(0.5, "b", "acc"))).plain()
    entries = [
        entry(right(count, N), checkpoint=f"c{place}", benchmark=name, composites=[composite])
        for place, count in enumerate((200, 260))
        for name in "ab"
    ]
    assert led(entries) == [("a", "c1", 2), ("b", "c1", 2), ("both", "c1", 2)]
    assert led(entries[:-1]) == [("a", "c1", 2)]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_the_best_is_told_if_the_largest_p_is_small_enough_for_their_number(
    ps: list[float], alpha: float
) -> None:
    runs = len(ps) + 1
    assert is_told_best(iter(ps), runs, alpha) == (max(ps) * runs / 2 <= alpha)
    assert not is_told_best([*ps, None], runs, alpha)


def test_of_equally_good_checkpoints_one_is_rarely_called_the_best() -> None:
    draw = random.Random(1)
    called = 0
    for _ in range(400):
        runs = [[float(draw.random() < 0.5) for _ in range(60)] for _ in range(5)]
        best, *others = sorted(runs, key=sum, reverse=True)
        called += is_told_best((compare_paired(other, best).p for other in others), 5, 0.05)
    assert called / 400 <= 0.05
