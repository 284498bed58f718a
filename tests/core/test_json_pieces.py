"""JSON with long lists, in pieces, is the JSON of the whole."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core import files as module
from pytest_touchstone.core.files import ReadingList, json_pieces

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=3), PLAIN, max_size=4))
def test_json_in_pieces_is_the_json_of_the_whole(value: dict[str, object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", 2)
        assert "".join(json_pieces(value)) == json.dumps(value)
        short: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":")}
        assert "".join(json_pieces(value, **short)) == json.dumps(value, **short)


@given(st.lists(st.lists(st.text() | st.none(), min_size=1, max_size=4), max_size=8), st.integers(24, 60))
def test_a_long_list_is_read_entry_by_entry_and_the_rest_without_it(rows: list[object], size: int) -> None:
    plain = {"schema": 1, "items": rows, "more": {"items": [1, 2]}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_READ", size)
        reading = ReadingList(io.StringIO(json.dumps(plain, ensure_ascii=False)), "items")
        assert list(reading) == rows
        assert reading.rest() == plain | {"items": []}


def test_a_list_that_ends_early_is_no_json() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        list(ReadingList(io.StringIO('{"items": [["a"], ["b"'), "items"))
