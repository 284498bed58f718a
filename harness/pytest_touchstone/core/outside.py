"""Texts of others at the borders: terminals, logs of jobs, tables and messages.

Models, templates, datasets and names of folders hold whatever their authors like. What has a meaning beyond a text is
taken from them where they leave the harness, not where they come in: scores and files are of the texts as they are.
(``reports.markdown`` and ``reports.page`` have the same for Markdown and HTML.)
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls, without tab and line feed
    "\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # no width, or another direction
    "\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|\r(?!\n)"  # halves of signs, and signs that nothing draws
)
"""The signs that a screen does not show, or that change how it shows others."""

_CODE: Final = "(?:0?[0-47]|2[2-9]|3[1-79]|49|9[0-7])"
_COLOUR: Final = re.compile(rf"\x1b\[(?:{_CODE}(?:;{_CODE})*)?m")
"""Colours and weights of signs: nothing that hides them, and no ground that could."""

_ANY_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND: Final = re.compile(r"((?:^|[\r\n])(?:[^\S\r\n]|\x1b\[[0-9;]*m)*:)(?=:)|(##)(?=\w*\[)")
_FORMULA: Final = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_HOME: Final = re.compile(
    r"(?:(?<![\w.~/\\-])|(?<=file://))(?:/(?:home|Users)/[^/\s\"'<>|:,;]+|(?:/var)?/root|[A-Za-z]:\\Users\\[^\\\s\"'<>|:,;]+)"
    r"(?![\w.-])"
)
_LOGS: Final = ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")
"""The variables of the services that take lines of a job's log for commands."""


def visible(text: str, *, colours: bool = False) -> str:
    """Return a text with what a screen does not show in the form ``<U+001B>``; its lines and tabs are kept.

    With ``colours`` those of a terminal are kept too, but for what hides a text.
    """
    if not INVISIBLE.search(text):
        return text
    if not colours:
        return INVISIBLE.sub(_named, text)
    plain = [INVISIBLE.sub(_named, part) for part in _COLOUR.split(text)]
    return "".join(part + colour for part, colour in zip(plain, [*_COLOUR.findall(text), ""], strict=True))


def _named(found: re.Match[str]) -> str:
    return f"<U+{ord(found[0]):04X}>"


def visible_json(text: str) -> str:
    """Return JSON that says the same, without such signs."""
    return INVISIBLE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return a text in one line, without the colours of a terminal."""
    return visible(" ".join(_ANY_COLOUR.sub("", text).split()))


def unbroken(text: str) -> str:
    """Return a text in one line, its spaces as they are."""
    return visible(" ".join(filter(None, map(str.strip, text.splitlines()))))


def is_log(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether what is printed here goes to a service that takes some lines for commands."""
    return any(environment.get(name, "").lower() not in ("", "false") for name in _LOGS)


def harmless(text: str) -> str:
    """Return lines of output that no such service takes for a command: white space before ``::`` does not count."""
    return _COMMAND.sub(lambda found: f"{found[0]} ", text)


def cell(value: Any) -> Any:
    """Return a cell of CSV: a text that a spreadsheet would take for a formula gets a quote in front."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def text_of_cell(value: str) -> str:
    """Return the text of which ``cell`` made this."""
    return value[1:] if value.startswith("'") and _FORMULA.match(value) else value


def without_home(text: str) -> str:
    """Return a text with ``~`` in the place of anybody's home: a report is sent to others."""
    home = os.path.expanduser("~")  # noqa: PTH111 -- Path.home raises where there is none
    if len(home) > 1 and home in text:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", text)
    return _HOME.sub("~", text) if "/" in text or "\\" in text else text
