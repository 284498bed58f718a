"""The packing of a page's data: JSON, in texts short codes for frequent words, then gzip, in signs that HTML keeps.

A browser unpacks gzip by itself. Twenty lines of ours put the signs back into bytes (``script/core.js``) and the codes
back into words (``script/texts.js``).
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pytest_touchstone.core.files import json_pieces

LEVEL: Final = 6
"""The level of compression; 9 takes three times as long for a hundredth of the size."""

ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

_THEIRS: Final = b"<>&"
_OURS: Final = b".,:"
_WORD: Final = re.compile(r"( ?\w{2,})")
_CODE: Final = re.compile(r"[\x01-\x07]|[\x08-\x1f][ -~]")
_CODES: Final = (
    *(chr(one) for one in range(1, 8)),
    *(chr(first) + chr(second) for first in range(8, 32) for second in range(32, 127)),
)
"""Signs that JSON never holds as they are: a control character, or one and a printable sign."""

ENOUGH: Final = 50_000
"""Characters of text in which frequent words are looked for; of less they would take more room than they save."""

OFTEN: Final = 2
"""The times that a word must be there to get a code."""

BETWEEN: Final = "\x00"
"""Stands between the items of a chunk: JSON never holds it as it is, and it is no code."""

SHARED: Final = 200
"""The characters that questions have in common before they are kept once: few-shot examples and instructions."""

WORTH: Final = 0.9
"""The share of its size that a text with codes may have at most: else they are not worth their time."""


def packed(value: object) -> str:
    """Return data as the page holds it."""
    return _signs(ENCODER.encode(value))


def unpacked(text: str) -> Any:
    """Return the data that ``packed`` was given."""
    return json.loads(_text(text))


def pieces_of(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON of an object with long columns piece by piece."""
    return json_pieces(value, ensure_ascii=False, separators=(",", ":"))


def packed_pieces(pieces: Iterable[str]) -> str:
    """Return JSON that comes in pieces as the page holds it."""
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, zlib.MAX_WBITS + 16)  # as gzip, without a time
    raw = [packer.compress(one.encode("utf-8", "backslashreplace")) for one in pieces]
    return _as_signs(b"".join([*raw, packer.flush()]))


def _signs(text: str) -> str:
    # The time is left out, so that the same items always make the same page.
    return _as_signs(gzip.compress(text.encode("utf-8", "backslashreplace"), LEVEL, mtime=0))


def _as_signs(raw: bytes) -> str:
    return base64.b85encode(raw).translate(bytes.maketrans(_THEIRS, _OURS)).decode("ascii")


def _text(signs: str) -> str:
    raw = base64.b85decode(signs.encode("ascii").translate(bytes.maketrans(_OURS, _THEIRS)))
    return gzip.decompress(raw).decode("utf-8")


def chunk_text(items: Sequence[Mapping[str, Any]]) -> str:
    """Return a chunk's items as texts of JSON with ``BETWEEN`` them, after the beginnings of questions.

    Of its first question an item has only what follows the beginning. So a page unpacks a third of the characters,
    searches each beginning once, and reads the JSON of few items.
    """
    questions = [_first(item).get("question", "") for item in items]
    leads: list[list[Any]] = []
    found, lead = [], ""
    for place, (item, text) in enumerate(zip(items, questions, strict=True)):
        if not lead or not text.startswith(lead):
            lead = _shared(text, *questions[place + 1 : place + 2])
        if not leads or leads[-1][0] != lead:
            leads.append([lead, 0])
        leads[-1][1] += 1
        found.append(_with_question(item, text[len(lead) :]) if lead else item)
    return BETWEEN.join(map(ENCODER.encode, [leads, *found]))


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


class Words:
    """The frequent words of a benchmark's texts, by which these take a sixth less room than by gzip alone.

    They are those of the first text that is long enough; all later texts use their codes, if they are worth it.
    """

    def __init__(self) -> None:
        self._codes: dict[str, str] = {}
        self._known = False

    @property
    def words(self) -> list[str]:
        """The words, each in the place of its code."""
        return list(self._codes)

    def packed(self, text: str) -> str:
        """Return JSON as the page holds it."""
        if not self._known and len(text) >= ENOUGH:
            self._known = True
            self._codes = dict(zip(_frequent(text), _CODES, strict=False))
            plain, coded = _signs(text), _signs(self._coded(text))
            if len(coded) <= WORTH * len(plain):
                return coded
            self._codes = {}
        return _signs(self._coded(text) if self._codes else text)

    def _coded(self, text: str) -> str:
        pieces = _WORD.split(text)
        return "".join(map(self._codes.get, pieces, pieces))

    def unpacked(self, text: str) -> str:
        """Return the JSON that ``packed`` was given."""
        words = {code: word for word, code in self._codes.items()}
        return _CODE.sub(lambda found: words[found[0]], _text(text))


def _frequent(text: str) -> list[str]:
    """Return the words that are worth a code, the most frequent first: they get the shortest."""
    counts = Counter(_WORD.findall(text))
    known = [word for word, many in counts.items() if many >= OFTEN and len(word) > 2]
    known.sort(key=lambda word: counts[word] * (len(word) - 1), reverse=True)
    return sorted(known[: len(_CODES)], key=lambda word: counts[word], reverse=True)
