"""Values that travel between processes are plain; anything else is named."""

from __future__ import annotations

import math
from collections import OrderedDict
from enum import IntEnum
from pathlib import Path
from typing import Any

import execnet
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.errors import WireError
from pytest_touchstone.core.requests import Generate, make_serializable, plain_scores, to_plain


class Colour(IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


ANYTHING: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**31))
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.sampled_from([np.float32(0.5), np.int64(3), np.bool_(True), Colour.RED, Text("x")]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=())), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(ANYTHING)
def test_a_plain_value_is_one_that_execnet_carries(value: Any) -> None:
    plain = to_plain(value)
    assert execnet.loads(execnet.dumps(plain)) == plain or "nan" in repr(plain)


@given(ANYTHING)
def test_making_plain_twice_changes_nothing(value: Any) -> None:
    assert repr(to_plain(to_plain(value))) == repr(to_plain(value))


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, {"a": {3}}, b"x", Path("x"), -(2**31) - 1, [[lambda: 1]], np.zeros(3)]
)
def test_what_is_not_plain_is_refused_with_its_place_and_type(value: Any) -> None:
    with pytest.raises(WireError, match=r"cannot travel|keys are text"):
        to_plain({"here": value}, "answer")


def test_a_self_containing_list_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(WireError, match="nested deeper"):
        to_plain(endless)


def test_a_field_that_came_later_is_there_only_where_it_is_set() -> None:
    old = Generate("a", max_new_tokens=1)
    assert "turns_stop" not in to_plain(old)
    assert "turns_max_new_tokens" not in to_plain(old)
    assert to_plain(Generate("a", max_new_tokens=1, turns_stop=("b",)))["turns_stop"] == ["b"]
    assert to_plain(Generate("a", max_new_tokens=1, turns_stop=()))["turns_stop"] == []


def test_a_lone_surrogate_becomes_readable_text() -> None:
    assert to_plain("a\ud800b") == "a\\ud800b"


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        (None, "returned nothing"),
        ({}, "no score"),
        (3, "returned 3"),
        ({"acc": "yes"}, "'acc' = 'yes'"),
        ({"acc": math.nan}, "finite"),
        ({"acc": math.inf}, "finite"),
        ({"acc": object()}, "cannot travel"),
        ({1: 1.0}, "named 1"),
        ({"acc": np.zeros(2)}, "cannot travel"),
    ],
)
def test_what_are_no_scores_is_refused(returned: Any, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        plain_scores(returned, "benchmark x")


def test_scores_of_any_numeric_type_become_floats() -> None:
    scores = plain_scores(
        {"a": True, "b": np.float32(0.5), "c": np.bool_(False), "d": 2, Text("e"): Colour.RED}, "x"
    )
    assert scores == {"a": 1.0, "b": 0.5, "c": 0.0, "d": 2.0, "e": 1.0}
    assert {type(value) for value in scores.values()} == {float}


def test_scrub_keeps_what_execnet_knows_and_refuses_the_rest() -> None:
    report = {"a": (1, {2}, b"x"), "path": Path("x"), "text": "\ud800", "name": Text("t")}
    assert execnet.loads(execnet.dumps(make_serializable(report))) == {
        "a": (1, {2}, b"x"),
        "path": "x",
        "text": "\\ud800",
        "name": "t",
    }
    for value in (object(), np.float32(1.0), OrderedDict(), Colour.RED, -(2**31) - 1):
        with pytest.raises(WireError, match="user_properties"):
            make_serializable({"user_properties": [("x", value)]})
        execnet.dumps(make_serializable({"user_properties": [("x", value)]}, replace=True))
