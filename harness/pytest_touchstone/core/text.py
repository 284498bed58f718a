"""Lists, counts and similar names in messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

LOOKED_AT: Final = 2000
"""The characters at a text's end in which a repetition is looked for."""

LISTED: Final = 12
"""The number of names in a message before "and N more"."""


CHARACTERS_PER_TOKEN: Final = 4
"""The characters of a token where no tokenizer is at hand; English texts have about so many."""


def listed(names: Iterable[str], most: int = LISTED, *, between: str = ", ") -> str:
    """Return the first names, and the number of the others: ``A, B and 3 more``; ``none`` for no name."""
    known = list(names)
    rest = len(known) - most
    more = f"{between.rstrip().strip(',')} and {rest} more" if rest > 0 else ""
    return (between.join(known[:most]) + more) or "none"


def either(words: Iterable[str]) -> str:
    """Return the choices as text: ``A, B or C``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 item``, ``2 items``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def place_text(place: float, decimals: int = 3) -> str:
    """Return an epoch, a step or a factor as text: in full up to the point, and at most so many decimals."""
    return f"{round(place, decimals):.15g}"


def repeats_itself(text: str, least: int = 60, times: int = 3) -> bool:
    """Return whether a text ends with one passage again and again: so many times, over so many characters at least."""
    end = text[: -LOOKED_AT - 1 : -1]
    # borders[n]: the longest beginning of end[: n + 1] that is also its end; what is left of it is then its period.
    borders = [0] * len(end)
    border = 0
    for place in range(1, len(end)):
        while border and end[place] != end[border]:
            border = borders[border - 1]
        border += end[place] == end[border]
        borders[place] = border
        if place + 1 >= max(least, times * (place + 1 - border)):
            return True
    return False


def alike(wanted: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names that are like the wanted one, the most similar first."""
    return difflib.get_close_matches(wanted, list(names), most, cutoff)


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """Return a question with the most similar name and a space; nothing where none is similar."""
    return "".join(f"did you mean {name!r}? " for name in alike(wanted, names))
