"""Comparison of printed texts by the rule of CodeContests (google-deepmind/code_contests,
execution/tester_sandboxer.cc), whose problems have no judge programs.
"""

from __future__ import annotations

import re
from typing import Final

TOLERANCE: Final = 1e-5
"""The absolute difference up to which two numbers are the same."""

_SPACE: Final = re.compile("[ \t\n\r]+")


def same_printed(expected: str, printed: str) -> bool:
    """Return whether both have the same words, split at spaces, tabs and line ends.

    Words are the same if they are equal apart from case, or both numbers that differ by ``TOLERANCE`` at most.
    """
    mine, its = _words(expected), _words(printed)
    return len(mine) == len(its) and all(map(_same_word, mine, its))


def _words(text: str) -> list[str]:
    return [word for word in _SPACE.split(text.lower()) if word]


def _same_word(expected: str, printed: str) -> bool:
    if expected == printed:
        return True
    try:
        return abs(_number(expected) - _number(printed)) <= TOLERANCE
    except ValueError:
        return False


def _number(word: str) -> float:
    """Return the word as absl's SimpleAtod reads it, which takes neither the digits of other scripts nor
    underscores."""
    if not word.isascii() or "_" in word:
        raise ValueError(word)
    return float(word)
