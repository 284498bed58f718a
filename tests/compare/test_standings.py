"""Which of several checkpoints is the best: told only where a test on the same items tells it from every other one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.standings import (
    ALL,
    Standing,
    best_checkpoint,
    choose_references,
    clear_leaders,
    leads_of,
    standings_of,
)
from pytest_touchstone.core.composite import Composite, WeightedMetric
from pytest_touchstone.statistics.best_of_many import is_told_best
from pytest_touchstone.statistics.paired import compare_paired
from tests.support.entries import entry, right

N = 400


def rows(*counts: int, **more: Any) -> list[BenchmarkScores]:
    """Checkpoints with so many right items of 400."""
    return [entry(right(count, N), checkpoint=f"c{place}", **more) for place, count in enumerate(counts)]


def led(entries: Sequence[BenchmarkScores]) -> list[tuple[str, str, int]]:
    told = [one for one in standings_of(entries) if one.told and one.benchmark != ALL]
    return [(one.benchmark, one.checkpoint, one.of) for one in told]


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
    composite = Composite("both", (WeightedMetric(0.5, "a", "acc"), WeightedMetric(0.5, "b", "acc"))).plain()
    entries = [
        entry(right(count, N), checkpoint=f"c{place}", benchmark=name, composites=[composite])
        for place, count in enumerate((200, 260))
        for name in "ab"
    ]
    assert led(entries) == [("a", "c1", 2), ("b", "c1", 2), ("both", "c1", 2)]
    assert led(entries[:-1]) == [("a", "c1", 2)]


def on(benchmark: str, *counts: int, **more: Any) -> list[BenchmarkScores]:
    return [
        entry(right(count, N), checkpoint=f"c{place}", benchmark=benchmark, **more)
        for place, count in enumerate(counts)
    ]


def test_the_best_that_is_not_told_names_the_nearest_that_it_is_not_told_from() -> None:
    (found,) = standings_of(rows(200, 300, 298))
    assert (found.checkpoint, found.rival, found.told, found.tied) == ("c1", "c2", False, False)
    assert found.p is not None
    assert found.p > 0.05


def test_of_a_best_that_is_told_the_hardest_to_tell_from_is_named() -> None:
    (found,) = standings_of(rows(200, 300, 220))
    assert (found.rival, found.told) == ("c2", True)
    paired = compare_paired(right(220, N), right(300, N)).p
    assert paired is not None
    assert found.p == pytest.approx(paired * 3 / 2)


def test_equals_are_tied() -> None:
    (found,) = standings_of(rows(300, 300))
    assert found.tied
    assert not found.told


def test_over_all_items_a_small_lead_on_each_of_several_benchmarks_is_told() -> None:
    entries = [*on("a", 200, 206), *on("b", 200, 203), *on("c", 200, 204)]
    *each, whole = standings_of(entries)
    assert not [one for one in each if one.told and one.benchmark == "b"]
    assert (whole.benchmark, whole.checkpoint, whole.told) == (ALL, "c1", True)
    assert best_checkpoint([*each, whole]) == whole
    assert leads_of([*each, whole]) == {"c1": 3}


def test_a_checkpoint_that_lacks_a_benchmark_has_no_part_in_the_comparison_over_all_items() -> None:
    entries = [*on("a", 200, 210, 390), *on("b", 200, 210)]
    found = {one.benchmark: one for one in standings_of(entries)}
    assert found["a"].checkpoint == "c2"
    assert (found[ALL].checkpoint, found[ALL].of) == ("c1", 2)


def test_what_leads_on_most_benchmarks_need_not_be_best_over_all_items() -> None:
    entries = [*on("a", 300, 299), *on("b", 300, 299), *on("c", 100, 300)]
    standings = standings_of(entries)
    best = best_checkpoint(standings)
    assert best is not None
    assert (best.checkpoint, leads_of(standings)["c0"]) == ("c1", 2)


def test_all_that_the_best_over_all_items_cannot_be_told_from_are_named() -> None:
    best = best_checkpoint(standings_of([*on("a", 300, 100, 298, 299), *on("b", 200, 100, 199, 198)]))
    assert best is not None
    assert (best.checkpoint, best.told, set(best.rivals)) == ("c0", False, {"c2", "c3"})


def test_only_those_that_are_told_lead() -> None:
    found = [one._asdict() for one in standings_of(rows(200, 300, 298))]
    assert clear_leaders(found) == set()
    assert clear_leaders([*found, {**found[0], "checkpoint": "c1", "told": True}]) == {
        (found[0]["benchmark"], "c1")
    }
    assert best_checkpoint([]) is None
    composite = Standing("s", "composite", "c", 2, True, "d", 0.01)
    assert best_checkpoint([composite]) == composite
    pooled = Standing(ALL, "pooled", "e", 2, True, "d", 0.01)
    assert best_checkpoint([composite, pooled]) == pooled


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


def test_a_single_benchmark_is_compared_with_the_best_on_the_items_that_all_have() -> None:
    more, fewer = entry(right(10, 20), checkpoint="more"), entry(right(6, 10), checkpoint="fewer")
    (reference,) = choose_references({"b": [fewer, more]}, {"b": "acc"}).values()
    assert isinstance(reference.chosen, int)
    assert reference.results[reference.chosen].saved.checkpoint == "more"  # 10 of 10, and 6 of 10
