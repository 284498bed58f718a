"""The parts of a reply that readers need, each checked, and the words of a server about its own failure.

Servers are believed in nothing: a list may be short, a number may be text, and another model may answer. What is not as
asked for is ``MalformedReplyError``.

A failure is explained in the form of OpenAI, of FastAPI, of a web page, or by any text. It may come with the status
200, beside a text or in place of it, where a proxy has begun its reply before the model failed: such a text is no
answer. No explanation is fit to be shown: the wire shortens it, and takes out what looks like a key.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pytest_touchstone.engines.http.calls import MalformedReplyError

Json = Mapping[str, Any]

_ABOVE_ZERO: Final = 1e-3
"""The most that rounding puts a log-probability above 0."""


def choices(data: Any, count: int) -> list[Json]:
    """Return the choices of a reply, in order."""
    found = data.get("choices") if isinstance(data, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise MalformedReplyError("the reply has no list of choices")
    if len(found) != count:
        raise MalformedReplyError(f"the reply has {len(found)} choices where {count} were asked for")
    places = [one.get("index", number) for number, one in enumerate(found)]
    if sorted(map(str, places)) != sorted(map(str, range(count))):
        raise MalformedReplyError(f"the choices are numbered {places}")
    return [found[place] for place in sorted(range(count), key=lambda number: int(places[number]))]


def check_model(data: Any, answers_as: Sequence[str]) -> None:
    """Raise ``MalformedReplyError`` where another model answers than the one that was probed."""
    said = data.get("model") if isinstance(data, Mapping) else None
    if answers_as and isinstance(said, str) and said not in answers_as:
        raise MalformedReplyError(f"the model {said!r} answered, and not {answers_as[0]!r}")


def check_prompt(data: Any, tokens: int) -> None:
    """Raise ``MalformedReplyError`` where the server counts another number of tokens than it was sent."""
    said = usage_count(data, "prompt_tokens")
    if said is not None and said != tokens:
        raise MalformedReplyError(f"the server counts {said} tokens in a prompt of {tokens}")


def logprob(value: Any, what: str) -> float:
    """Return a log-probability; ``what`` names its place."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise MalformedReplyError(f"{what} has the log-probability {value!r}")
    if value > _ABOVE_ZERO:
        raise MalformedReplyError(f"{what} has the log-probability {value:g}, which is above 0")
    return min(0.0, float(value))


def check_not_all_zero(values: list[float], most: int = 1) -> None:
    """Raise ``MalformedReplyError`` where more than ``most`` log-probabilities are all 0.

    A server that computes none returns zeros.
    """
    if len(values) > most and not any(values):
        raise MalformedReplyError(
            f"all {len(values)} log-probabilities are 0, so the server has not computed them"
        )


def token_number(text: Any) -> int | None:
    """Return the number in ``token_id:NUMBER``, None for any other text."""
    number = str(text).removeprefix("token_id:")
    return int(number) if isinstance(text, str) and number != text and number.isdecimal() else None


def model_rows(said: Any) -> list[Mapping[str, Any]]:
    """Return the models in a list of them, those that have an id."""
    rows = said.get("data") if isinstance(said, Mapping) else None
    found = rows if isinstance(rows, list) else []
    return [row for row in found if isinstance(row, Mapping) and isinstance(row.get("id"), str)]


def limit_of(row: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a model in the list takes, None where that is not said."""
    size = row.get("max_model_len")
    return size if isinstance(size, int) and size > 0 else None


def text_of(said: Any, name: str) -> str:
    """Return a part of a reply that is a text, an empty one where there is none."""
    found = said.get(name) if isinstance(said, Mapping) else None
    return found if isinstance(found, str) else ""


def usage_count(said: Any, name: str) -> int | None:
    """Return a number of tokens (``prompt_tokens``) that a server counts, None where it does not."""
    usage = said.get("usage") if isinstance(said, Mapping) else None
    found = usage.get(name) if isinstance(usage, Mapping) else None
    return found if type(found) is int and found >= 0 else None


def choice_count(said: Any) -> int:
    """Return the number of choices of a reply, 0 where they are none."""
    found = said.get("choices") if isinstance(said, Mapping) else None
    return len(found) if isinstance(found, list) and all(isinstance(one, Mapping) for one in found) else 0


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
