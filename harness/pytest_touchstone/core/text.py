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
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

LISTED: Final = 12
"""The number of names in a message before "and N more"."""

CHARACTERS_PER_TOKEN: Final = 4
"""The characters of a token where no tokenizer is at hand; English texts have about so many."""


def estimate_tokens(text: str) -> int:
    """Estimate the number of a text's tokens, for any tokenizer.

    Words, digits, pairs of signs and line breaks are counted.
    """
    return sum(1 for _ in re.finditer(r"[A-Za-z]{1,9}|\d|[^\sA-Za-z\d]{1,2}|\n+", text))


def join_names(names: Iterable[str], most: int = LISTED, *, between: str = ", ") -> str:
    """Join the first names, and count the others: ``A, B and 3 more``; ``none`` for no name."""
    listed = list(names)
    rest = len(listed) - most
    more = f"{between.rstrip().strip(',')} and {rest} more" if rest > 0 else ""
    return (between.join(listed[:most]) + more) or "none"


def join_choices(words: Iterable[str]) -> str:
    """Join choices: ``A, B or C``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Join a number and its noun: ``1 item``, ``2 items``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def format_step(value: float, decimals: int = 3) -> str:
    """Format an epoch, a step or a factor, with at most ``decimals`` decimals."""
    return f"{round(value, decimals):.15g}"


def repeats_itself(text: str, least: int = 60, times: int = 3) -> bool:
    """Return whether a text ends with one passage repeated.

    It must be repeated ``times`` times, over ``least`` characters at least.

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


def similar_names(wanted: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names that resemble the wanted one, the most similar first."""
    return difflib.get_close_matches(wanted, list(names), most, cutoff)


def shortest_endings(paths: Iterable[str]) -> dict[str, str]:
    """Return the shortest ending of each path, in whole folders, that no other path has."""
    folders = {
        path: [folder for folder in path.split("/") if folder not in ("", ".")] or ["checkpoints"]
        for path in paths
    }
    endings = Counter("/".join(parts[start:]) for parts in folders.values() for start in range(len(parts)))
    return {
        path: next(
            (ending for depth in range(1, len(parts)) if endings[ending := "/".join(parts[-depth:])] == 1),
            "/".join(parts),
        )
        for path, parts in folders.items()
    }


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """Return a question with the most similar name and a space; empty where none is similar."""
    return "".join(f"did you mean {name!r}? " for name in similar_names(wanted, names))


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


def escape_invisible(text: str, *, colours: bool = False) -> str:
    """Write characters that a screen does not show as ``<U+001B>``; keep lines and tabs.

    With ``colours`` those of a terminal are kept too, but for what hides a text.
    """
    if not INVISIBLE.search(text):
        return text
    if not colours:
        return INVISIBLE.sub(_code_point, text)
    plain = [INVISIBLE.sub(_code_point, text_part) for text_part in _COLOUR.split(text)]
    return "".join(
        text_part + colour for text_part, colour in zip(plain, [*_COLOUR.findall(text), ""], strict=True)
    )


def _code_point(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"


def escape_invisible_json(text: str) -> str:
    """Escape characters that a screen does not show in JSON."""
    return INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """Join a text to one line, without the colours of a terminal."""
    return escape_invisible(" ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split()))


def collapse_lines(text: str) -> str:
    """Join a text to one line; keep its spaces."""
    return escape_invisible(" ".join(filter(None, map(str.strip, text.splitlines()))))


def is_ci_log(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether output goes to a CI service that obeys commands in lines."""
    services = ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")
    return any(environment.get(name, "").lower() not in ("", "false") for name in services)


def escape_ci_commands(text: str) -> str:
    """Break the commands to a CI service in lines of output.

    White space before ``::`` does not count.
    """
    return _COMMAND.sub(lambda match: f"{match[0]} ", text)


def csv_cell(value: Any) -> Any:
    """Return a CSV cell; a text that a spreadsheet takes for a formula gets a quote."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def csv_text(rows: Iterable[Iterable[Any]], end: str = "\n") -> str:
    """Format rows as CSV (RFC 4180); None is an empty field, and no text is a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(map(csv_cell, row) for row in rows)
    return text.getvalue()


def parse_csv_cell(value: str) -> str:
    """Return the text of a CSV cell that ``csv_cell`` made."""
    return value[1:] if value.startswith("'") and _FORMULA.match(value) else value


def redact_home(text: str) -> str:
    """Replace anybody's home folder by ``~``: a report is sent to others."""
    home = os.path.expanduser("~")  # noqa: PTH111 -- Path.home raises where there is none
    if len(home) > 1 and home in text:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", text)
    return _HOME.sub("~", text) if "/" in text or "\\" in text else text
