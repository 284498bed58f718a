"""What a line for people names, whatever its words: values, options and numbers."""

from __future__ import annotations

import re


def _whole(name: object) -> str:
    """Return a pattern for a name that is not within another word or number."""
    return rf"(?<!\w)(?<!\d\.){re.escape(str(name))}(?!\w|\.\d)"


def naming(*names: object) -> re.Pattern[str]:
    """Return a pattern for a text of one line that has every name as a whole word, in any order."""
    ahead = "".join(f"(?=.*{_whole(name)})" for name in names)
    return re.compile(rf"\A{ahead}.*\n?\Z")


def missing(text: str, *names: object) -> list[str]:
    """Return the names that a text lacks as whole words, however its lines are wrapped."""
    flat = " ".join(text.split())
    return [str(name) for name in names if not re.search(_whole(name), flat)]


def numbers(text: str) -> list[float]:
    """Return the numbers of a text in their order, without the commas of thousands."""
    return [float(number.replace(",", "")) for number in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text)]
