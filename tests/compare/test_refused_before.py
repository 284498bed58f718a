"""A gate refuses before anything is asked what it would refuse at the end, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.baselines import BaselineSource, expected_refusal, find_baselines
from pytest_touchstone.compare.candidate import BenchmarkScores
from tests.support.entries import entry, right, source

WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7},
    {"version": 2},
    {"data": "e" * 64},
    {"limit": 5},
)


def expected(new: BenchmarkScores) -> BenchmarkScores:
    """The result as it is known before it was asked."""
    return BenchmarkScores(replace(new.saved, metrics={}, items_sha256=""), new.items)


@given(
    st.sampled_from(WAYS),
    st.lists(st.tuples(st.sampled_from(WAYS), st.integers(3, 8)), max_size=3),
    st.booleans(),
    st.sets(st.sampled_from(["temperature", "version", "data", "items"]), max_size=2),
)
def test_what_is_refused_before_is_refused_at_the_end(
    way: Mapping[str, Any], earlier: list[tuple[Mapping[str, Any], int]], named: bool, allow: set[str]
) -> None:
    def rows(conditions: Mapping[str, Any], count: int) -> list[str]:
        return [f"{conditions.get('data', '')}{place}" for place in range(count)]

    new = entry(right(3, 6), run_id="now", began=9.0, conditions=way, rows=rows(way, 6), checkpoint="now")
    saved = [
        entry(right(2, n), checkpoint=f"old{place}", conditions=its, rows=rows(its, n))
        for place, (its, n) in enumerate(earlier)
    ]
    where: BaselineSource = source(*saved, kind="run" if named else "best") if saved else source()
    before = expected_refusal(expected(new).saved, new.items.examples, where, allow)
    at_the_end = find_baselines(new, where, metric="acc", allow=allow)
    assert not before or (at_the_end.state, at_the_end.reason) == ("refused", before)


@pytest.mark.parametrize("kind", ["best", "run"])
@pytest.mark.parametrize("way", WAYS[1:4], ids=str)
def test_other_conditions_are_refused_before(kind: str, way: Mapping[str, Any]) -> None:
    new = entry(right(3, 6), run_id="now", began=9.0, conditions=way, checkpoint="now")
    where = source(entry(right(2, 6)), kind=kind)
    reason = expected_refusal(expected(new).saved, new.items.examples, where, ())
    assert "is not comparable: " in reason
    assert (
        expected_refusal(expected(new).saved, new.items.examples, where, ("temperature", "version", "data"))
        == ""
    )
