"""Comparison of printed texts by the rule of CodeContests (google-deepmind/code_contests,
execution/tester_sandboxer.cc, OutputsMatch), whose problems have no judge programs.
"""

from __future__ import annotations

import re
from typing import Final

PRECISION: Final = 1e-5
"""The absolute difference from which on two numbers are not the same."""

_SPACE: Final = re.compile("[ \n\t\r\v]+")
_LOWER: Final = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def same_printed(expected: str, printed: str) -> bool:
    """Return whether both have the same words, split at spaces, tabs and line ends.

    The case of ASCII letters does not matter. Where any words differ, all that are numbers count as such: two are the
    same if they differ by less than ``PRECISION``, and infinite ones are the same as none.
    """
    mine, its = _words(expected), _words(printed)
    return mine == its or (len(mine) == len(its) and all(map(_same_word, mine, its)))


def _words(text: str) -> list[str]:
    return [word for word in _SPACE.split(text.translate(_LOWER)) if word]


def _same_word(expected: str, printed: str) -> bool:
    try:
        return abs(_number(expected) - _number(printed)) < PRECISION
    except ValueError:
        return expected == printed


def _number(word: str) -> float:
    """Return the word as absl's SimpleAtod reads it, which takes neither the digits of other scripts nor
    underscores."""
    if not word.isascii() or "_" in word:
        raise ValueError(word)
    return float(word)
