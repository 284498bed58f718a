"""Saved results are ranked like with like, the best first, a checkpoint once."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.ranking import Ranking, rank
from pytest_touchstone.core.errors import GateError
from tests.support.entries import entry, right


def ranked(by: str, *entries: BenchmarkScores) -> list[Ranking]:
    items = {id(one.saved): one.items for one in entries}
    return rank([one.saved for one in entries], by, lambda saved: items[id(saved)])


def real(first: int, checkpoint: str, began: float = 1.0, **more: Any) -> BenchmarkScores:
    columns = {"real@1": right(first, 100), "real@5": right(80, 100)}
    return entry(
        columns, checkpoint=checkpoint, benchmark="real_coref", began=began, run_id=f"r{began}", **more
    )


def lambada(count: int, checkpoint: str) -> BenchmarkScores:
    return entry({"lambada@1": right(count, 50)}, checkpoint=checkpoint, benchmark="ko_lambada")


def test_a_checkpoint_stands_once_with_its_best_and_the_best_first() -> None:
    found = ranked(
        "real@1", real(60, "a"), real(70, "b", 2.0), real(65, "a", 3.0), real(99, "broken", faults=1)
    )
    assert [(row.checkpoint, row.value, row.n) for row in found[0].rows] == [
        ("b", 0.7, 100),
        ("a", 0.65, 100),
    ]
    assert len(found) == 1


def test_results_under_other_conditions_or_on_other_items_have_a_ranking_of_their_own() -> None:
    shots = real(90, "c", conditions={"shots": 5})
    part = entry({"real@1": right(2, 2)}, checkpoint="d", benchmark="real_coref")
    found = ranked("real@1", real(60, "a"), real(70, "b"), shots, part)
    assert [[row.checkpoint for row in one.rows] for one in found] == [["b", "a"], ["c"], ["d"]]
    assert [one.conditions["shots"] for one in found] == [0, 5, 0]


def test_a_composite_is_ranked_with_an_interval_from_its_items() -> None:
    entries = [real(60, "a"), lambada(20, "a"), real(50, "b"), lambada(45, "b"), real(90, "half")]
    (found,) = ranked("score", *entries)
    assert [row.checkpoint for row in found.rows] == ["b", "a"]
    assert found.rows[0].value == pytest.approx(0.4 * 0.5 + 0.3 * 0.8 + 0.3 * 0.9)
    for row in found.rows:
        assert row.low is not None
        assert row.high is not None
        assert row.low < row.value < row.high
        assert row.n == 150


def test_an_unknown_metric_is_named_with_the_nearest() -> None:
    with pytest.raises(GateError, match=r"--by: unknown metric 'real@2'; did you mean 'real@"):
        ranked("real@2", real(60, "a"))
    assert ranked("score", real(60, "a")) == []
