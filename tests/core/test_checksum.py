"""Objects with a checksum: what was written comes back, and no bit of it changes unseen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.files import (
    DamagedError,
    has_checksum,
    json_pieces,
    pieces_with_checksum,
    read_checked,
    with_checksum,
)

OBJECTS = st.dictionaries(
    st.text(), st.none() | st.integers() | st.floats(allow_nan=False) | st.text(), min_size=1
)


@given(value=OBJECTS, indent=st.sampled_from([None, 2]))
def test_what_was_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, value: Any, indent: int | None
) -> None:
    pieces = json_pieces(value) if indent is None else [json.dumps(value, indent=indent)]
    path = tmp_path_factory.mktemp("one") / "value.json"
    path.write_text("".join(pieces_with_checksum(pieces)), encoding="utf-8")
    assert has_checksum(path.read_bytes())
    assert read_checked(path) == value


@given(value=OBJECTS, where=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_wherever_it_is(value: Any, where: int, bit: int) -> None:
    data = bytearray(with_checksum(json.dumps(value)[:-1].encode()))
    data[where % len(data)] ^= 1 << bit
    with pytest.raises(DamagedError):
        has_checksum(bytes(data))


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_checksum_of_a_file_that_was_written_anew_says_nothing_of_it(
    tmp_path: Path, indent: int | None, end: str
) -> None:
    path = tmp_path / "value.json"
    path.write_text(json.dumps({"a": 1, "crc32": "00000000"}, indent=indent) + end, encoding="utf-8")
    assert read_checked(path) == {"a": 1}


@pytest.mark.parametrize("text", ['{"a":1}\n', "", "[]"])
def test_what_somebody_else_wrote_has_none(text: str) -> None:
    assert not has_checksum(text.encode())
