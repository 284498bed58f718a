"""Texts for people: lists, counts and similar names in messages; texts of others without what a terminal would obey.

Models, templates, datasets and names of folders hold whatever their authors like. What has a meaning beyond a text is
taken from them where they leave the harness, not where they come in: scores and files are of the texts as they are.
(``reports.ci`` and ``reports.page`` have the same for Markdown and HTML.)
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

LISTED: Final = 12
"""The number of names in a message before "and N more"."""

CHARACTERS_PER_TOKEN: Final = 4
"""The characters of a token where no tokenizer is at hand; English texts have about so many."""


def rough_tokens(text: str) -> int:
    """Return about how many tokens a text has, for any tokenizer: words, digits, signs in pairs, line breaks."""
    return sum(1 for _ in re.finditer(r"[A-Za-z]{1,9}|\d|[^\sA-Za-z\d]{1,2}|\n+", text))


def join_names(names: Iterable[str], most: int = LISTED, *, between: str = ", ") -> str:
    """Return the first names, and the number of the others: ``A, B and 3 more``; ``none`` for no name."""
    listed = list(names)
    rest = len(listed) - most
    more = f"{between.rstrip().strip(',')} and {rest} more" if rest > 0 else ""
    return (between.join(listed[:most]) + more) or "none"


def either(words: Iterable[str]) -> str:
    """Return the choices as text: ``A, B or C``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 item``, ``2 items``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def ordinal_place(value: float, decimals: int = 3) -> str:
    """Return an epoch, a step or a factor as text: in full up to the point, and at most so many decimals."""
    return f"{round(value, decimals):.15g}"


def repeats_itself(text: str, least: int = 60, times: int = 3) -> bool:
    """Return whether a text ends with one passage again and again: so many times, over so many characters at least.

    Its last 2,000 characters are looked at.
    """
    end = text[:-2001:-1]
    # borders[n]: the longest beginning of end[: n + 1] that is also its end; what is left of it is then its period.
    borders = [0] * len(end)
    border = 0
    for index in range(1, len(end)):
        while border and end[index] != end[border]:
            border = borders[border - 1]
        border += end[index] == end[border]
        borders[index] = border
        if index + 1 >= max(least, times * (index + 1 - border)):
            return True
    return False


def similar_name(wanted: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names that are like the wanted one, the most similar first."""
    return difflib.get_close_matches(wanted, list(names), most, cutoff)


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """Return a question with the most similar name and a space; nothing where none is similar."""
    return "".join(f"did you mean {name!r}? " for name in similar_name(wanted, names))


# Texts of others


INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls, without tab and line feed
    "\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # no width, or another direction
    "\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|\r(?!\n)"  # halves of signs, and signs that nothing draws
)
"""The signs that a screen does not show, or that change how it shows others."""

_CODE: Final = "(?:0?[0-47]|2[2-9]|3[1-79]|49|9[0-7])"
_COLOUR: Final = re.compile(rf"\x1b\[(?:{_CODE}(?:;{_CODE})*)?m")
"""Colours and weights of signs: nothing that hides them, and no ground that could."""

_COMMAND: Final = re.compile(r"((?:^|[\r\n])(?:[^\S\r\n]|\x1b\[[0-9;]*m)*:)(?=:)|(##)(?=\w*\[)")
_FORMULA: Final = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_HOME: Final = re.compile(
    r"(?:(?<![\w.~/\\-])|(?<=file://))(?:/(?:home|Users)/[^/\s\"'<>|:,;]+|(?:/var)?/root|[A-Za-z]:\\Users\\[^\\\s\"'<>|:,;]+)"
    r"(?![\w.-])"
)


def visible(text: str, *, colours: bool = False) -> str:
    """Return a text with what a screen does not show in the form ``<U+001B>``; its lines and tabs are kept.

    With ``colours`` those of a terminal are kept too, but for what hides a text.
    """
    if not INVISIBLE.search(text):
        return text
    if not colours:
        return INVISIBLE.sub(_named, text)
    plain = [INVISIBLE.sub(_named, text_part) for text_part in _COLOUR.split(text)]
    return "".join(
        text_part + colour for text_part, colour in zip(plain, [*_COLOUR.findall(text), ""], strict=True)
    )


def _named(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"


def visible_json(text: str) -> str:
    """Return JSON that says the same, without such signs."""
    return INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return a text in one line, without the colours of a terminal."""
    return visible(" ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split()))


def collapse_lines(text: str) -> str:
    """Return a text in one line, its spaces as they are."""
    return visible(" ".join(filter(None, map(str.strip, text.splitlines()))))


def is_log(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether what is printed here goes to a service that takes some lines for commands."""
    services = ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")
    return any(environment.get(name, "").lower() not in ("", "false") for name in services)


def harmless(text: str) -> str:
    """Return lines of output that no such service takes for a command: white space before ``::`` does not count."""
    return _COMMAND.sub(lambda match: f"{match[0]} ", text)


def cell(value: Any) -> Any:
    """Return a cell of CSV: a text that a spreadsheet would take for a formula gets a quote in front."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def csv_text(rows: Iterable[Iterable[Any]], end: str = "\n") -> str:
    """Return rows as CSV (RFC 4180) whose lines end so; None is an empty field, and no text is a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(map(cell, row) for row in rows)
    return text.getvalue()


def text_of_cell(value: str) -> str:
    """Return the text of which ``cell`` made this."""
    return value[1:] if value.startswith("'") and _FORMULA.match(value) else value


def without_home(text: str) -> str:
    """Return a text with ``~`` in the place of anybody's home: a report is sent to others."""
    home = os.path.expanduser("~")  # noqa: PTH111 -- Path.home raises where there is none
    if len(home) > 1 and home in text:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", text)
    return _HOME.sub("~", text) if "/" in text or "\\" in text else text
