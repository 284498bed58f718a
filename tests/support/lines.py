"""What a line for people names, whatever its words: values, options and numbers."""

from __future__ import annotations

import re


def naming(*names: object) -> re.Pattern[str]:
    """Return a pattern for a text of one line that has every name as a whole word, in any order."""
    ahead = "".join(rf"(?=.*(?<!\w){re.escape(str(name))}(?!\w))" for name in names)
    return re.compile(rf"\A{ahead}.*\n?\Z")


def numbers(text: str) -> list[float]:
    """Return the numbers of a text in their order, without the commas of thousands."""
    return [float(number.replace(",", "")) for number in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text)]
