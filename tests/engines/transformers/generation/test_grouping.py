"""Prompts that begin alike are continued together, and take from each other what they share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.transformers.prefix_tree import (
    LEAST_SHARED,
    Group,
    by_length,
    common,
    group,
    grow,
    waves,
)

PROMPTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 100)).map(
        lambda parts: (*[parts[0]] * 70, *range(20 * parts[1]), *[7] * parts[2], 9)[-parts[2] - 150 :]
    ),
    min_size=1,
    max_size=30,
)


@given(PROMPTS)
def test_every_prompt_is_in_one_group_with_what_it_begins_with(prompts: list[tuple[int, ...]]) -> None:
    groups = group(prompts)
    assert sorted(number for one in groups for number in one.members) == list(range(len(prompts)))
    for one in groups:
        first = prompts[one.members[0]]
        assert one.shared < min(len(prompts[number]) for number in one.members)
        assert all(common(first, prompts[number]) >= one.shared for number in one.members)


@given(PROMPTS, PROMPTS)
def test_a_text_takes_what_an_earlier_one_or_a_known_one_begins_with(
    prompts: list[tuple[int, ...]], known: list[tuple[int, ...]]
) -> None:
    seen = dict(enumerate(known, len(prompts)))
    computed = 0
    for wave in waves(prompts, known):
        assert wave
        for number, source in wave:
            own = prompts[number]
            computed += len(own) - (source.shared if source else 0)
            if source is not None:
                assert LEAST_SHARED <= source.shared < len(own)
                assert seen[source.text][: source.shared] == own[: source.shared]
        seen |= {number: prompts[number] for number, _ in wave}
    assert seen.keys() == set(range(len(prompts) + len(known)))
    # All that any two begin with is computed once, but for what is too short, and the last tokens of equal texts.
    distinct = grow([*prompts, *known]).tokens - (grow(known).tokens if known else 0)
    assert computed <= distinct + LEAST_SHARED * len(prompts)


def test_prompts_of_different_shots_are_grouped_by_them() -> None:
    shots = {kind: tuple(range(1000 * kind, 1000 * kind + 100)) for kind in (1, 2)}
    prompts = [(*shots[1 + number % 2], number, number) for number in range(12)]
    prompts += [(5, 6, 7), (*shots[1][:3], 8)]
    found = [(one.shared, one.members) for one in group(prompts)]
    assert found == [(100, (0, 2, 4, 6, 8, 10)), (100, (1, 3, 5, 7, 9, 11)), (0, (12, 13))]
    assert group([shots[1]])[0].shared == 99
    assert group([shots[1]] * 5)[0].shared == 99


@given(st.lists(st.integers(11, 2000), min_size=1, max_size=40))
def test_prompts_of_a_lane_have_about_one_length(lengths: list[int]) -> None:
    whole = Group(10, tuple(range(len(lengths))))
    parts = by_length(whole, lengths)
    assert sorted(number for part in parts for number in part.members) == list(whole.members)
    for part in parts:
        tails = [lengths[number] - part.shared for number in part.members]
        assert max(tails) <= 2 * min(tails) + 64
