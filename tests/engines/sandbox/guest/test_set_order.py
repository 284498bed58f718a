"""Containers are iterated and written alike on both sides, sets too."""

from __future__ import annotations

import builtins
import json
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.engines.sandbox.guest import set_order, values

LEAVES = st.one_of(
    st.integers(-40, 40).map(repr),
    st.integers().map(repr),
    st.text("abcdefgh", max_size=3).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["None", "True", "...", "NotImplemented", "b'x'", "1j", "int", "range(3)", "()"]),
)


def listed(parts: st.SearchStrategy[str], begin: str, end: str, least: int = 0) -> st.SearchStrategy[str]:
    return st.lists(parts, min_size=least, max_size=12).map(lambda them: begin + ", ".join(them) + end)


HASHABLE = LEAVES | listed(LEAVES, "(", ",)", 1) | listed(LEAVES, "frozenset({", "})", 1)
PAIRS = st.tuples(HASHABLE, LEAVES).map(": ".join)
LITERALS = st.recursive(
    HASHABLE
    | listed(HASHABLE, "{", "}", 1)
    | listed(HASHABLE, "set([", "])")
    | listed(HASHABLE, "{1, 2} | {", "}", 1)
    | listed(HASHABLE, "{each for each in [", "]}")
    | listed(PAIRS, "{", "}")
    | listed(PAIRS, "{", "}.keys()")
    | listed(PAIRS, "{", "}.items()")
    | listed(PAIRS, "{", "}.values()"),
    lambda inner: listed(inner, "[", "]") | listed(inner, "(", ",)", 1) | listed(inner, "{1: [", "]}"),
    max_leaves=5,
)
"""Python's literals, and what is nearly one, as texts."""


def own(value: Any) -> Any:
    if isinstance(value, type):
        return ["T", value.__name__]
    assert value[0] == "T", f"{value!r} is no plain data"
    return getattr(builtins, value[1])


def travelled(value: Any) -> Any:
    return values.decode(json.loads(json.dumps(values.encode(value, own))), own)


def is_alike(literal: str) -> None:
    value = eval(literal)
    arrived = travelled(value)
    assert type(arrived) is type(value)
    assert (repr(arrived), str(arrived)) == (repr(value), str(value))
    if hasattr(value, "__iter__"):
        assert [*map(repr, arrived)] == [*map(repr, value)]


@given(LITERALS)
def test_a_literal_is_iterated_and_written_alike_on_both_sides(literal: str) -> None:
    is_alike(literal)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(LITERALS)
def test_so_are_ten_thousand_literals(literal: str) -> None:
    is_alike(literal)


def test_sets_from_which_members_have_been_removed_keep_their_order_too() -> None:
    drawn = random.Random(0)
    for number in range(200):
        words = [
            "".join(drawn.choices("abcd", k=drawn.randrange(1, 6))) for _ in range(drawn.randrange(2, 60))
        ]
        value: set[Any] = set(words if number % 2 else map(hash, words))
        for member in drawn.sample(sorted(value), len(value) // drawn.choice([2, 5])):
            value.discard(member)
        arrived = travelled(value)
        assert list(arrived) == list(value)


@pytest.mark.parametrize("members", [[math.nan, 1.0], [object(), object()]])
def test_a_set_whose_order_cannot_be_kept_says_so(members: list[Any]) -> None:
    said: list[Any] = []

    def handle(value: Any) -> Any:
        said.append(value)
        return ["h", 7] if type(value) is object else object()

    message = json.loads(json.dumps(values.encode(set(members), handle)))
    assert len(values.decode(message, handle)) == 2
    assert [values.UNORDERED] in said


@pytest.mark.parametrize("table", [3, 2**21, -8])
def test_a_table_that_is_none_is_refused(table: int) -> None:
    with pytest.raises(values.UntravelledError):
        values.decode(["s", table, [], [*range(12)]], own)
    with pytest.raises(ValueError, match="table"):
        set_order.built(set, set_order.Recipe(table, [], [*range(12)]))


def test_a_view_of_memory_keeps_its_format_its_shape_and_whether_it_can_be_written_to() -> None:
    for value in (
        memoryview(b"abc"),
        memoryview(bytearray(8)).cast("i"),
        memoryview(bytes(8)).cast("B", [2, 4]),
    ):
        arrived = travelled(value)
        assert arrived == value
        assert (arrived.format, arrived.shape, arrived.readonly) == (
            value.format,
            value.shape,
            value.readonly,
        )
