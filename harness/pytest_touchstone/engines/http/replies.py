"""Parse the parts of a reply, each checked, and a server's explanation of its own failure.

Nothing in a reply is trusted: a list may be short, a number may be text, another model may answer. Anything unexpected
raises ``MalformedReplyError``.

An explanation has the form of OpenAI, of FastAPI, of a web page, or is any text. It may come with the status 200,
beside or in place of a text, if a proxy had begun its reply before the model failed; such a text is not an answer. An
explanation must not be shown as it is: ``HttpClient`` shortens it and removes what looks like a key.
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

_MAX_ROUNDING: Final = 1e-3
"""The most that rounding puts a log-probability above 0."""


def parse_choices(reply: Any, count: int) -> list[Json]:
    """Return the choices of a reply, in the order of their indices."""
    rows = reply.get("choices") if isinstance(reply, Mapping) else None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise MalformedReplyError("the reply has no list of choices")
    if len(rows) != count:
        raise MalformedReplyError(f"the reply has {len(rows)} choices where {count} were asked for")
    indices = [row.get("index", position) for position, row in enumerate(rows)]
    if sorted(map(str, indices)) != sorted(map(str, range(count))):
        raise MalformedReplyError(f"the choices are numbered {indices}")
    return [rows[position] for position in sorted(range(count), key=lambda number: int(indices[number]))]


def check_model(reply: Any, answers_as: Sequence[str]) -> None:
    """Raise ``MalformedReplyError`` if another model answers than the one that was probed."""
    model = reply.get("model") if isinstance(reply, Mapping) else None
    if answers_as and isinstance(model, str) and model not in answers_as:
        raise MalformedReplyError(f"the model {model!r} answered, and not {answers_as[0]!r}")


def check_prompt(reply: Any, tokens: int) -> None:
    """Raise ``MalformedReplyError`` if the server does not count exactly ``tokens`` in the prompt."""
    counted = usage_count(reply, "prompt_tokens")
    if counted is not None and counted != tokens:
        raise MalformedReplyError(f"the server counts {counted} tokens in a prompt of {tokens}")


def parse_logprob(value: Any, label: str) -> float:
    """Return a log-probability; ``label`` names the token in an error."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise MalformedReplyError(f"{label} has the log-probability {value!r}")
    if value > _MAX_ROUNDING:
        raise MalformedReplyError(f"{label} has the log-probability {value:g}, which is above 0")
    return min(0.0, float(value))


def check_not_all_zero(logprobs: list[float], most: int = 1) -> None:
    """Raise ``MalformedReplyError`` if more than ``most`` log-probabilities are all 0.

    A server that computes none returns zeros.
    """
    if len(logprobs) > most and not any(logprobs):
        raise MalformedReplyError(
            f"all {len(logprobs)} log-probabilities are 0, so the server has not computed them"
        )


def parse_token_id(text: Any) -> int | None:
    """Return the number in ``token_id:NUMBER``, or None for any other text."""
    number = str(text).removeprefix("token_id:")
    return int(number) if isinstance(text, str) and number != text and number.isdecimal() else None


def model_rows(reply: Any) -> list[Mapping[str, Any]]:
    """Return the models of a ``/models`` reply that have an id."""
    rows = reply.get("data") if isinstance(reply, Mapping) else None
    if not isinstance(rows, list):
        return []
    return [row for row in rows if isinstance(row, Mapping) and isinstance(row.get("id"), str)]


def max_model_len(row: Mapping[str, Any]) -> int | None:
    """Return the maximum number of tokens of a listed model, or None if the server does not say."""
    size = row.get("max_model_len")
    return size if isinstance(size, int) and size > 0 else None


def text_of(reply: Any, name: str) -> str:
    """Return a text field of a reply, or an empty text."""
    text = reply.get(name) if isinstance(reply, Mapping) else None
    return text if isinstance(text, str) else ""


def usage_count(reply: Any, name: str) -> int | None:
    """Return a count of tokens (such as ``prompt_tokens``) from the reply's usage, or None."""
    usage = reply.get("usage") if isinstance(reply, Mapping) else None
    tokens = usage.get(name) if isinstance(usage, Mapping) else None
    return tokens if type(tokens) is int and tokens >= 0 else None


def choice_count(reply: Any) -> int:
    """Return the number of choices of a reply; 0 if it has no list of them."""
    rows = reply.get("choices") if isinstance(reply, Mapping) else None
    return len(rows) if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows) else 0


MAX_EXPLANATION: Final = 1200
"""The characters of an explanation that are read; fewer are shown."""

BOM: Final = b"\xef\xbb\xbf"
"""A byte order mark, which some servers write before their JSON."""

_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)

_MESSAGE_KEYS: Final = ("message", "detail", "msg", "error", "raw")
"""The fields of an error that may hold its message, the best one first."""


class Explanation(NamedTuple):
    """A server's message, and its code for the failure (empty if it has none)."""

    message: str
    code: str = ""


def explain_refusal(parse: Callable[[bytes], Any], body: bytes) -> Explanation:
    """Return the explanation in the body of a reply with an error status."""
    try:
        reply = parse(body.removeprefix(BOM))
    except ValueError:
        return Explanation(describe_web_page(body) or body[:MAX_EXPLANATION].decode("utf-8", "replace"))
    return find_error(reply) or Explanation(_error_message(reply), _error_code(reply))


def find_error(reply: Any) -> Explanation | None:
    """Return the explanation of an error inside a reply of any status, or None."""
    if not isinstance(reply, Mapping):
        return None
    rows = reply.get("choices")
    for holder in (reply, *(rows if isinstance(rows, list) else ())):
        if isinstance(holder, Mapping) and (error := holder.get("error")):
            return Explanation(_error_message(error), _error_code(error) or _error_code(reply))
    return Explanation(_error_message(reply), _error_code(reply)) if reply.get("object") == "error" else None


def explain_missing_choices(reply: Any) -> str:
    """Return the message of a reply that has neither choices nor an error; may be empty."""
    if not isinstance(reply, Mapping) or "choices" in reply:
        return ""
    return next((_error_message(reply[name]) for name in _MESSAGE_KEYS if reply.get(name)), "")


def describe_non_json(body: bytes, error: ValueError) -> str:
    """Describe a reply that should have been JSON."""
    if shown := describe_web_page(body):
        return f"the reply is {shown} and no JSON: a proxy or a sign-in may stand before the server"
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the reply is UTF-16, and JSON is UTF-8"
    if body.lstrip().startswith((b"data:", b"event:")):
        return "the reply is a stream of events, which was not asked for"
    return f"the reply is no JSON ({error})" if body.strip() else "the reply is empty"


def describe_web_page(body: bytes) -> str:
    """Describe a web page by its title; return an empty text for anything else."""
    text = body.removeprefix(BOM)[: 4 * MAX_EXPLANATION].decode("utf-8", "replace").lstrip()
    if not re.match(r"<(!doctype\s+html|html|head|body|!--)", text, re.IGNORECASE):
        return ""
    title = _TITLE.search(text)
    return f"a web page titled {html.unescape(title[1]).strip()!r}" if title else "a web page"


def _error_message(error: Any) -> str:
    """Return the message of an error, followed by that of another server that it passes on."""
    if not isinstance(error, Mapping):
        return error[:MAX_EXPLANATION] if isinstance(error, str) else json.dumps(error)[:MAX_EXPLANATION]
    message = next((error[name] for name in _MESSAGE_KEYS if error.get(name)), None)
    if message is None:
        return json.dumps(error)[:MAX_EXPLANATION]
    inner = error.get("metadata")
    raw = inner.get("raw") if isinstance(inner, Mapping) else None
    return _error_message(message) + (f" ({raw[:MAX_EXPLANATION]})" if isinstance(raw, str) and raw else "")


def _error_code(error: Any) -> str:
    return str(error.get("code") or error.get("type") or "") if isinstance(error, Mapping) else ""
