"""Proposals looked up in a text itself, and how many of them a pass verifies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.transformers.generation.speculative import (
    FREE,
    PromptLookup,
    agreeing,
    best_width,
    may_pay,
)
from pytest_touchstone.engines.transformers.split_attention import FEW

TOKENS = st.lists(st.integers(0, 3), max_size=40)


def test_what_followed_the_same_tokens_is_proposed_to_follow_again() -> None:
    assert PromptLookup([1, 2, 3, 4, 5, 9, 1, 2, 3]).proposals([], 2) == [4, 5]
    assert PromptLookup([1, 2, 3, 4]).proposals([9, 1, 2, 3], 3) == [4, 9, 1]


def test_more_tokens_decide_before_fewer_and_later_places_before_earlier_ones() -> None:
    assert PromptLookup([1, 2, 3, 4, 8, 2, 3, 5, 8, 1, 2, 3]).proposals([], 1) == [4]
    assert PromptLookup([1, 2, 4, 1, 2, 5, 1, 2]).proposals([], 1) == [5]


def test_a_loop_goes_on() -> None:
    assert PromptLookup([]).proposals([7, 1, 2, 3, 1, 2, 3, 1], 8) == [2, 3, 1, 2, 3, 1, 2, 3]
    assert PromptLookup([5, 5, 5]).proposals([], 4) == [5, 5, 5, 5]


@pytest.mark.parametrize("text", [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 1]])
def test_nothing_is_proposed_after_tokens_that_did_not_stand_together_before(text: list[int]) -> None:
    assert PromptLookup(text).proposals([], 5) == []


@given(TOKENS, st.lists(TOKENS, max_size=5), st.integers(0, 6))
def test_proposals_do_not_depend_on_when_they_are_asked_for(
    prompt: list[int], parts: list[list[int]], count: int
) -> None:
    whole = [token for part in parts for token in part]
    lookup = PromptLookup(prompt)
    for end in range(len(parts)):
        lookup.proposals([token for part in parts[:end] for token in part], count)
    found = lookup.proposals(whole, count)
    assert found == PromptLookup(prompt).proposals(whole, count)
    assert len(found) in (0, count)


@given(TOKENS, TOKENS)
def test_proposals_agree_up_to_the_first_that_is_wrong(proposed: list[int], chosen: list[int]) -> None:
    right = agreeing(proposed, chosen)
    assert proposed[:right] == chosen[:right]
    assert right == min(len(proposed), len(chosen)) or proposed[right] != chosen[right]


def test_the_rate_follows_what_was_right() -> None:
    lookup = PromptLookup([])
    for _ in range(20):
        lookup.judge([1, 2, 3], [1, 2, 3, 4])
    assert lookup.rate > 0.95
    for _ in range(20):
        lookup.judge([1, 2, 3], [4])
    assert lookup.rate < 0.05
    before = lookup.rate
    lookup.judge([], [4])
    assert lookup.rate == before


def test_a_text_in_a_loop_gives_many_tokens_in_a_pass_and_one_without_proposals_one() -> None:
    assert best_width([(1.0, FEW - 1)], FREE[4]) == FEW
    assert best_width([(1.0, 0)], FREE[4]) == 1
    assert best_width([(0.0, FEW - 1)], FREE[4]) == 1
    assert best_width([(1.0, FEW - 1)] + [(0.5, 0)] * 15, FREE[4]) == 1


RATES = st.tuples(st.floats(0, 1), st.integers(0, FEW - 1))


def test_where_numbers_are_computed_faster_a_pass_takes_more_of_them() -> None:
    rows = [(0.6, FEW - 1)] * 20
    assert best_width(rows, FREE[2]) > best_width(rows, FREE[4])


@given(st.lists(RATES, min_size=1, max_size=64), st.sampled_from(sorted(FREE.values())))
def test_the_width_is_bounded_and_does_not_depend_on_the_order_of_the_rows(
    rows: list[tuple[float, int]], free: int
) -> None:
    width = best_width(rows, free)
    assert width == 1 or (width * len(rows) <= 4 * free and may_pay(len(rows), free))
    assert best_width(sorted(rows), free) == width
