"""Objects with a checksum: what was written comes back, and no bit of it changes unseen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.checksum import is_summed, read_summed, summed, summed_pieces
from pytest_touchstone.core.json_pieces import json_pieces

OBJECTS = st.dictionaries(
    st.text(), st.none() | st.integers() | st.floats(allow_nan=False) | st.text(), min_size=1
)


@given(value=OBJECTS, indent=st.sampled_from([None, 2]))
def test_what_was_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, value: Any, indent: int | None
) -> None:
    pieces = json_pieces(value) if indent is None else [json.dumps(value, indent=indent)]
    path = tmp_path_factory.mktemp("one") / "value.json"
    path.write_text("".join(summed_pieces(pieces)), encoding="utf-8")
    assert is_summed(path.read_bytes())
    assert read_summed(path) == value


@given(value=OBJECTS, where=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_wherever_it_is(value: Any, where: int, bit: int) -> None:
    data = bytearray(summed(json.dumps(value)[:-1].encode()))
    data[where % len(data)] ^= 1 << bit
    with pytest.raises(ValueError, match="damaged"):
        is_summed(bytes(data))


@pytest.mark.parametrize("text", ['{"a":1}\n', '{"a": 1, "crc32": "00000000"}', "", "[]"])
def test_what_somebody_else_wrote_has_none(text: str) -> None:
    assert not is_summed(text.encode())
