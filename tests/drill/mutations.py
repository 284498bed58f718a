"""Damage to files: of bytes, and of JSON by its structure. The same seed gives the same damage."""

from __future__ import annotations

import copy
import json
import math
import random
import struct
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

BYTES: Final = (
    b"\0",
    b"\xff",
    b'"',
    b"[",
    b"{",
    b"\n",
    b"\x1b[31m",
    b"9" * 400,
    b"\xed\xa0\x80",
    b"\r\n",
    b"\\u0000",
)
"""What is put in between others."""

VALUES: Final[tuple[Any, ...]] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1 << 62,
        1 << 63,
        -(1 << 70),
        10**400,
        0.5,
        1e308,
        -0.0,
        math.nan,
        math.inf,
        -math.inf,
    ),
    *(
        "",
        "x",
        "0",
        "NaN",
        "a\0b",
        "\ud800",
        "\x1b[2J\x1b]0;x\x07",
        "two\nlines\r\n",
        "\u202ereversed",
        "../../etc/passwd",
    ),
    *(
        "::error::x",
        "x" * 5000,
        "9" * 5000,
        "http://127.0.0.1:1/",
        [],
        {},
        [[]],
        [None],
        {"": None},
        [1, "a", None],
    ),
)
"""What stands in place of another value."""

DEEP: Final = 3000
"""The lists within each other."""


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content of a file with some damage."""
    if draw.random() < 0.6:
        changed = _of_structure(content, draw)
        if changed is not None:
            return changed
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        draw.choice(WAYS)(found, draw)
    return bytes(found)


def _of_structure(content: bytes, draw: random.Random) -> bytes | None:
    """JSON, or one of several lines of JSON, with values in place of others; None for what is no JSON."""
    if content[8:9] == b"{" and len(content) > 8:  # of safetensors
        size = int.from_bytes(content[:8], "little")
        header = _of_structure(content[8 : 8 + size], draw)
        return (
            None
            if header is None
            else struct.pack("<Q", len(header)) + content[8 + size :].join((header, b""))
        )
    lines = content.splitlines(keepends=True) if content.count(b"}\n{") else [content]
    at = draw.randrange(len(lines)) if lines else 0
    try:
        value = json.loads(lines[at])
    except (ValueError, IndexError):
        return None
    for _ in range(draw.choice((1, 1, 1, 3))):
        value = _changed(value, draw)
    text = json.dumps(value, ensure_ascii=draw.random() < 0.5)
    if draw.random() < 0.1 and text.startswith("{") and len(text) > 2:
        key = json.dumps(next(iter(value)))
        text = f"{{{key}: {json.dumps(draw.choice(VALUES))}, {text[1:]}"  # the same key twice
    if draw.random() < 0.05:
        text = text.replace("null", "[" * DEEP + "]" * DEEP, 1)
    lines[at] = text.encode("utf-8", "surrogatepass") + (b"\n" if content.endswith(b"\n") else b"")
    return b"".join(lines)


def _changed(value: Any, draw: random.Random) -> Any:
    """The value with one within it changed."""
    if not isinstance(value, (dict, list)) or not value or draw.random() < 0.03:
        return _in_place_of(value, draw)
    value = copy.copy(value)
    key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
    how = draw.random()
    if how < 0.15:
        del value[key]
    elif how < 0.25 and isinstance(value, dict):
        value[draw.choice(("", "\x1b[1m", "a\nb", "x" * 300, *value))] = value[key]
    elif how < 0.25:
        value = value + value[:3]
    else:
        value[key] = _changed(value[key], draw)
    return value


def _in_place_of(value: Any, draw: random.Random) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and draw.random() < 0.4:
        return draw.choice((-value, value + 1, value * 10**9, str(value), [value], 1 - value))
    if isinstance(value, str) and value and draw.random() < 0.4:
        at = draw.randrange(len(value) + 1)
        return draw.choice(
            (value * 2, value[:at] + "\n" + value[at:], value[::-1], value + "\x1b[5m", [value], {value: 1})
        )
    return copy.deepcopy(draw.choice(VALUES))


def _flip(found: bytearray, draw: random.Random) -> None:
    if found:
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)


def _byte(found: bytearray, draw: random.Random) -> None:
    if found:
        found[draw.randrange(len(found))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))


def _cut(found: bytearray, draw: random.Random) -> None:
    del found[draw.randrange(len(found) + 1) :]


def _removed(found: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(found) + 1)
    del found[at : at + draw.choice((1, 4, 40, 400))]


def _put_in(found: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(found) + 1)
    found[at:at] = draw.choice(BYTES)


def _splice(found: bytearray, draw: random.Random) -> None:
    at, other = draw.randrange(len(found) + 1), draw.randrange(len(found) + 1)
    found[at:at] = found[other : other + draw.choice((4, 40, 400))]


def _number(found: bytearray, draw: random.Random) -> None:
    size = draw.choice((4, 8))
    if len(found) > size:
        # Lengths and offsets are rather at the beginning.
        at = draw.randrange(draw.choice((min(len(found) - size, 200), len(found) - size)))
        found[at : at + size] = draw.choice((0, 1, -1, 1 << 31, (1 << 62) + 1)).to_bytes(
            9, "little", signed=True
        )[:size]


WAYS: Final[tuple[Callable[[bytearray, random.Random], None], ...]] = (
    *(_flip, _byte, _cut, _removed),
    *(_put_in, _splice, _number),
)


# By hypothesis, which makes a case that fails as small as it can


PLAIN_JSON: Final = st.recursive(
    st.sampled_from(VALUES) | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def made_of(draw: st.DrawFn, whole: bytes) -> bytes:
    """Files that begin as a right one: with other JSON in some of its places, or other bytes; or bytes alone."""
    how = draw(st.sampled_from(("structure", "bytes", "alone")))
    if how == "alone":
        return draw(st.binary(max_size=300))
    if how == "structure" and (parts := _json_in(whole)) is not None:
        before, text, after = parts
        value = json.loads(text)
        for _ in range(draw(st.integers(1, 3))):
            value = draw(_replaced(value))
        return _framed(before, json.dumps(value).encode(), after)
    found = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(found)))
        found[at : at + draw(st.integers(0, 16))] = draw(st.sampled_from(BYTES) | st.binary(max_size=9))
    return bytes(found)


@st.composite
def _replaced(draw: st.DrawFn, value: Any) -> Any:
    """The value with another one somewhere within it."""
    if not isinstance(value, (dict, list)) or not value or draw(st.integers(0, 9)) == 0:
        return draw(PLAIN_JSON)
    copied = copy.copy(value)
    key = (
        draw(st.sampled_from(list(value)))
        if isinstance(value, dict)
        else draw(st.integers(0, len(value) - 1))
    )
    if draw(st.integers(0, 9)) == 0:
        del copied[key]
    else:
        copied[key] = draw(_replaced(value[key]))
    return copied


def _json_in(content: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The first JSON of a file, a line of it or the header of safetensors, with what is before it and after."""
    if content[8:9] == b"{":
        end = 8 + int.from_bytes(content[:8], "little")
        return content[:8], content[8:end], content[end:]
    line = content.find(b"}\n{") + 1 or len(content)
    try:
        json.loads(content[:line])
    except ValueError:
        return None
    return b"", content[:line], content[line:]


def _framed(before: bytes, text: bytes, after: bytes) -> bytes:
    return (struct.pack("<Q", len(text)) if before else b"") + text + after
