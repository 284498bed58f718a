"""The words of a server about its own failure, in the form of OpenAI, of FastAPI, of a web page, or any text.

An error may come with the status 200, beside a text or in place of it, where a proxy has begun its reply before the
model failed. Such a text is no answer.

Nothing here is fit to be shown: the wire shortens it, and takes out what looks like a key.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

LONGEST: Final = 1200
"""The characters that are looked at; fewer are shown."""

BOM: Final = b"\xef\xbb\xbf"
"""A byte order mark, which some servers write before their JSON."""

_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)

_WORDS: Final = ("message", "detail", "msg", "error", "raw")
"""The parts of an error that hold its words."""


class Explanation(NamedTuple):
    """A server's words, and its code for the failure, empty where it has none."""

    said: str
    code: str = ""


def of_refusal(parse: Callable[[bytes], Any], body: bytes) -> Explanation:
    """Return the explanation in the body of a reply whose status is no success."""
    try:
        found = parse(body.removeprefix(BOM))
    except ValueError:
        return Explanation(page(body) or body[:LONGEST].decode("utf-8", "replace"))
    return within(found) or Explanation(_words(found), _code(found))


def within(found: Any) -> Explanation | None:
    """Return the explanation of a reply that holds an error, whatever its status; None where it holds none."""
    if not isinstance(found, Mapping):
        return None
    rows = found.get("choices")
    for part in (found, *(rows if isinstance(rows, list) else ())):
        if isinstance(part, Mapping) and (error := part.get("error")):
            return Explanation(_words(error), _code(error) or _code(found))
    return Explanation(_words(found), _code(found)) if found.get("object") == "error" else None


def in_place_of(found: Any) -> str:
    """Return the words of a reply that has neither choices nor an error, as far as it has any."""
    if not isinstance(found, Mapping) or "choices" in found:
        return ""
    return next((_words(found[name]) for name in _WORDS if found.get(name)), "")


def not_json(body: bytes, error: ValueError) -> str:
    """Return in words what a reply is that should have been JSON."""
    if shown := page(body):
        return f"the reply is {shown} and no JSON: a proxy or a sign-in may stand before the server"
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the reply is UTF-16, and JSON is UTF-8"
    if body.lstrip().startswith((b"data:", b"event:")):
        return "the reply is a stream of events, which was not asked for"
    return f"the reply is no JSON ({error})" if body.strip() else "the reply is empty"


def page(body: bytes) -> str:
    """Return in words that a reply is a web page, with its title; nothing where it is none."""
    text = body.removeprefix(BOM)[: 4 * LONGEST].decode("utf-8", "replace").lstrip()
    if not re.match(r"<(!doctype\s+html|html|head|body|!--)", text, re.IGNORECASE):
        return ""
    title = _TITLE.search(text)
    return f"a web page titled {html.unescape(title[1]).strip()!r}" if title else "a web page"


def _words(found: Any) -> str:
    """Return the words of an error; those of another server that it passes on come after its own."""
    if not isinstance(found, Mapping):
        return found[:LONGEST] if isinstance(found, str) else json.dumps(found)[:LONGEST]
    told = next((found[name] for name in _WORDS if found.get(name)), None)
    if told is None:
        return json.dumps(found)[:LONGEST]
    inner = found.get("metadata")
    raw = inner.get("raw") if isinstance(inner, Mapping) else None
    return _words(told) + (f" ({raw[:LONGEST]})" if isinstance(raw, str) and raw else "")


def _code(found: Any) -> str:
    return str(found.get("code") or found.get("type") or "") if isinstance(found, Mapping) else ""
