"""Values between a program and its tests."""

from __future__ import annotations

import collections
import datetime
import enum
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.sandbox.guest import values

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**80), max_value=10**80)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.datetimes()
    | st.times()
    | st.timedeltas()
)
HASHABLE = LEAVES | st.tuples(LEAVES, LEAVES) | st.frozensets(LEAVES)
NESTED = st.recursive(
    HASHABLE
    | st.builds(bytearray, st.binary())
    | st.builds(range, st.integers(-99, 99), st.integers(-99, 99)),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(HASHABLE, inner) | st.sets(HASHABLE)
    ),
    max_leaves=20,
)


def own(value: Any) -> Any:
    assert value == [values.UNORDERED], f"{value!r} is plain data"


def travelled(value: Any) -> Any:
    return values.decode(json.loads(json.dumps(values.encode(value, own))), own)


@given(NESTED)
def test_plain_values_arrive_as_they_were_and_of_the_same_types(value: Any) -> None:
    arrived = travelled(value)
    assert arrived == value
    assert shape(arrived) == shape(value)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value), [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [shape(part) for part in value]
    return type(value)


def test_numbers_that_json_does_not_have_arrive() -> None:
    assert math.isnan(travelled(math.nan))
    assert travelled([math.inf, -math.inf]) == [math.inf, -math.inf]
    assert math.copysign(1, travelled(-0.0)) == -1
    assert travelled(2**5000) == 2**5000


@pytest.mark.parametrize("value", [(0,) * 9, [(1, 2)] * 5])
def test_of_a_large_list_a_digest_is_sent_that_is_the_same_for_the_same_alone(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = values.text(value, own)
    assert travelled(value) == values.decode(json.loads(whole), own)
    monkeypatch.setattr(values, "MAX_ITEMS", 8)
    digest = values.text(value, own)
    assert digest == values.text(type(value)(value), own) != whole
    others = [[*value], (*value,), [*value[:-1], value[-1], 1]]
    assert digest not in [values.text(other, own) for other in others if other != value]
    with pytest.raises(values.UnsendableError, match="more than 8 parts"):
        values.decode(json.loads(digest), own)


class Colour(enum.IntEnum):
    RED = 3


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        (Pair(1, 2), (1, 2)),
        (Colour.RED, 3),
        (Liar(7), 7),
        (Decimal("1.10"), Decimal("1.10")),
        (Fraction(1, 3), Fraction(1, 3)),
        (datetime.date(2024, 2, 29), datetime.date(2024, 2, 29)),
        (slice(1, None, 2), slice(1, None, 2)),
    ],
    ids=str,
)
def test_instances_of_subclasses_arrive_as_the_builtin_type(value: Any, plain: Any) -> None:
    arrived = travelled(value)
    assert type(arrived) is type(plain)
    assert arrived == plain


def test_what_contains_itself_does_not_travel() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(values.UnsendableError, match="deeper than"):
        values.encode(loop, own)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)
MARKS = st.sampled_from(
    ["l", "t", "d", "s", "z", "r", "x", "u", "i", "f", "c", "b", "a", "D", "F", "p", "wd", "wa", "wt"]
)


@given(st.one_of(JSON, st.builds(lambda mark, rest: [mark, *rest], MARKS, st.lists(JSON, max_size=3))))
def test_any_message_is_a_value_of_builtin_types_or_is_refused(message: Any) -> None:
    try:
        value = values.decode(message, lambda unknown: "own")
    except values.UnsendableError:
        return
    assert type(value).__module__ in ("builtins", "decimal", "fractions", "datetime")


@pytest.mark.parametrize(
    "value",
    [{"b": 1, "a": 2}.keys(), {1: (2,)}.values(), {1: 2}.items(), {12, 13, 14, 15, 16}, ...],
    ids=repr,
)
def test_a_container_is_iterated_and_written_alike_on_both_sides(value: Any) -> None:
    arrived = travelled(value)
    assert type(arrived) is type(value)
    assert repr(arrived) == repr(value)


def test_a_set_arrives_as_an_equal_one_and_another_order_is_said_on_both_sides() -> None:
    value = {*range(100)} - {*range(90)}
    for member in range(90):
        value.add(member)
        value.discard(member)
    said: list[Any] = []
    message = json.loads(json.dumps(values.encode(value, said.append)))
    arrived = values.decode(message, said.append)
    assert arrived == value
    assert said == ([] if list(arrived) == list(value) else [[values.UNORDERED]] * 2)


@pytest.mark.parametrize("members", [[math.nan, 1.0], [(1, math.nan)], [frozenset({2}), "a"]])
def test_sets_of_what_has_no_hash_of_its_own_arrive_too(members: list[Any]) -> None:
    assert len(values.decode(values.encode(set(members), own), lambda _: None)) == len(members)


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
