"""Texts in pieces that have the same tokens together as apart, so that what texts share is tokenized once.

A byte-level tokenizer first cuts a text into words, by a pattern that matches from left to right and looks back at
nothing. Where no alternative of the pattern has a space after another character, and one matches every space, a word
begins at each space that follows a character other than white space. Pair merges do not reach beyond words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

_PIECE: Final = re.compile(r"(?s).{64,}?\S(?= )|.+")
"""Pieces begin at the same places in texts that begin alike; shorter ones take longer to put together."""

_FIRST: Final = r"(?: \?|\[\^\\r\\n\\p\{L\}\\p\{N\}\]\?|\\s\*)?"
_CLASS: Final = (
    r"(?:\\p\{[LMN][a-z]?\}|\[(?:\^\\s)?(?:\\p\{[LMN][a-z]?\}|\\r|\\n|/)+\]|'\w+|\(\?i:[^()\s\\]+\))"
)
_ALTERNATIVE: Final = re.compile(rf"\\s\+(?:\(\?!\\S\))?|{_FIRST}(?:{_CLASS}(?:[*+?]|\{{1,3\}})?)+")
"""The alternatives that the patterns of known tokenizers consist of: a space stands at most first."""


def splitter_of(tokenizer: Any) -> Callable[[str], list[str]]:
    """Return the function that cuts a text in pieces whose tokens, one after the other, are those of the text; for
    tokenizers that may not keep to that it returns the text alone."""
    return _PIECE.findall if _is_local(tokenizer) else lambda text: [text]


class TextCut(NamedTuple):
    """A text in pieces: how many of its first ones are those of the text before it, and the others."""

    same: int
    others: list[str]


def cut(texts: Iterable[str], pieces_of: Callable[[str], list[str]]) -> Iterator[TextCut]:
    """Yield texts in the pieces that ``splitter_of``'s function cuts them in, without another look at those that a text
    has in common with the one before it."""
    before, pieces = "", list[str]()
    for text in texts:
        # A piece ends where the next one begins with a space; the last one, where its text does.
        del pieces[-1:]
        length = sum(map(len, pieces))
        while pieces and not text.startswith(before[: length + 1]):
            length -= len(pieces.pop())
        same, others = len(pieces), pieces_of(text[length:])
        yield TextCut(same, others)
        before, pieces = text, pieces + others


def _is_local(tokenizer: Any) -> bool:
    try:
        backend = tokenizer.backend_tokenizer
        words, changes = (_settings(one) for one in (backend.pre_tokenizer, backend.normalizer))
        model, added = backend.model, tokenizer.added_tokens_decoder.values()
    except (AttributeError, TypeError, ValueError):  # not of the package tokenizers, or a part made in Python
        return False
    return (
        type(model).__name__ == "BPE"
        and not model.dropout
        # A space never composes with what stands before it.
        and (not changes or changes["type"] == "NFC")
        and not any(" " in one.content or one.lstrip or one.rstrip or one.single_word for one in added)
        and _begins_words_at_spaces(words)
    )


def _settings(part: Any) -> dict[str, Any]:
    found: dict[str, Any] = {} if part is None else json.loads(part.__getstate__())
    return found


def _begins_words_at_spaces(words: dict[str, Any]) -> bool:
    stages = words.get("pretokenizers", [words])
    patterns = []
    for stage in stages:
        match stage:
            case {"type": "ByteLevel", "add_prefix_space": False}:
                patterns += [r"\s+"] if stage.get("use_regex", True) else []  # GPT-2's pattern
            case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": pattern}}:
                patterns.append(pattern)
            case {"type": "Digits"}:
                pass
            case _:
                return False
    alternatives = [re.split(r"\|(?![^()]*\))", pattern) for pattern in patterns]
    return any(r"\s+" in some for some in alternatives) and all(
        _ALTERNATIVE.fullmatch(one) for some in alternatives for one in some
    )
