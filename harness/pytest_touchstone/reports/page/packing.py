"""The packing of a page's data: JSON by gzip, in base85 with signs that HTML keeps.

A browser unpacks gzip by itself; ten lines of ours put the signs back into bytes (``script/core.js``). Base64 would
need none, and make every page a fifteenth larger.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

LEVEL: Final = 6
"""The level of compression; 9 takes three times as long for a hundredth of the size."""

ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

_THEIRS: Final = b"<>&"
_OURS: Final = b".,:"

BETWEEN: Final = "\x00"
"""Stands between the items of a chunk: JSON never holds it as it is."""

SHARED: Final = 200
"""The characters that questions have in common before they are kept once: few-shot examples and instructions."""


def packed(value: object) -> str:
    """Return data as the page holds it."""
    return packed_text(ENCODER.encode(value))


def packed_text(text: str) -> str:
    """Return a text as the page holds it; the same text always gives the same signs."""
    raw = gzip.compress(text.encode("utf-8", "backslashreplace"), LEVEL, mtime=0)
    return base64.b85encode(raw).translate(bytes.maketrans(_THEIRS, _OURS)).decode("ascii")


def unpacked(text: str) -> Any:
    """Return the data that ``packed`` was given."""
    return json.loads(unpacked_text(text))


def unpacked_text(signs: str) -> str:
    """Return the text that ``packed_text`` was given."""
    raw = base64.b85decode(signs.encode("ascii").translate(bytes.maketrans(_OURS, _THEIRS)))
    return gzip.decompress(raw).decode("utf-8")


def chunk_text(items: Sequence[Mapping[str, Any]]) -> str:
    """Return a chunk's items as texts of JSON with ``BETWEEN`` them, after the beginnings of questions.

    Of its first question an item has only what follows the beginning. So a page unpacks a third of the characters,
    searches each beginning once, and reads the JSON of few items.
    """
    questions = [_first(item).get("question", "") for item in items]
    leads: list[list[Any]] = []
    rest, lead = [], ""
    for place, (item, text) in enumerate(zip(items, questions, strict=True)):
        if not lead or not text.startswith(lead):
            lead = _shared(text, *questions[place + 1 : place + 2])
        if not leads or leads[-1][0] != lead:
            leads.append([lead, 0])
        leads[-1][1] += 1
        rest.append(_with_question(item, text[len(lead) :]) if lead else item)
    return BETWEEN.join(map(ENCODER.encode, [leads, *rest]))


def chunk_items(text: str) -> list[Mapping[str, Any]]:
    """Return the items that ``chunk_text`` was given."""
    leads, *items = map(json.loads, text.split(BETWEEN))
    each = [lead for lead, many in leads for _ in range(many)]
    return [
        _with_question(item, lead + _first(item)["question"]) if lead else item
        for item, lead in zip(items, each, strict=True)
    ]


def _shared(text: str, following: str = "") -> str:
    """Return the whole lines that both begin with, nothing where they are few."""
    pairs = enumerate(zip(text, following, strict=False))
    same = next((place for place, (one, other) in pairs if one != other), min(len(text), len(following)))
    length = text.rfind("\n", 0, same) + 1
    return text[:length] if length >= SHARED else ""


def _with_question(item: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    return {**item, "asked": [{**_first(item), "question": text}, *item["asked"][1:]]}


def _first(item: Mapping[str, Any]) -> Mapping[str, Any]:
    asked = item.get("asked")
    return asked[0] if asked else {}
