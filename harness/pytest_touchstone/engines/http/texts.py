"""Replies -> texts, each of which is an answer of the model to the whole prompt; else it is ``Malformed``.

A server may reply with 200 and a text that says nothing about the model. All of it went into a reasoning, it begins
with the prompt, or the prompt was cut. None of these is scored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_touchstone.core.requests import FinishReason, Generated, earliest_stop
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.http.calls import Malformed
from pytest_touchstone.engines.http.replies import Json, choices
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer

ENDS: Final[Mapping[str, FinishReason | None]] = {
    "stop": None,
    "complete": None,  # Cohere
    "stop_sequence": "stop",  # Text Generation Inference, Anthropic
    **dict.fromkeys(
        ("eos", "eos_token", "end_turn"), "eos"
    ),  # Together, Text Generation Inference, Anthropic
    **dict.fromkeys(("length", "max_tokens", "max_length", "model_length"), "length"),  # and Gemini, Mistral
}
"""The names of ends, of OpenAI's API and of others that are served in its form; None where a server does not say
whether the model ended the text or a stop sequence did."""

_BROKEN: Final = ("error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource")
"""The names of ends that may be other ones the next time."""

_WITHHELD: Final = (
    *("content_filter", "content_filtered", "guardrail_intervened", "refusal", "sensitive"),
    *("safety", "recitation", "blocklist", "prohibited_content", "spii"),
)

_TOOLS: Final = ("tool_calls", "function_call", "tool_use")

_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
"""The parts of a message that hold a reasoning, beside an answer that may be missing."""

_SPECIAL: Final = re.compile(r"\s*(<[^<>\s]{1,40}>\s*)*")
"""The tokens that servers which decode whole sequences put before the prompt."""

_SHORT: Final = 16
"""The characters of a prompt that a text may begin with by chance."""

_LONG_WORD: Final = 5
"""The characters outside ASCII of a token: Chinese and Thai have long runs without spaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A wish for texts: ``count`` of them, of at most ``limit`` tokens, each to be cut before the earliest of the
    ``stops``.

    ``prompt`` is the text that they follow, the last turn of a ``chat``. ``least`` is the number of tokens that a
    server must count in the whole prompt if it cuts nothing. ``ends`` are the names of ends that its probe has met.
    """

    count: int = 1
    limit: int = 1
    stops: Sequence[str] = ()
    prompt: str = ""
    chat: bool = False
    least: int = 0
    ends: Sequence[str] = ()


def fewest_tokens(text: str) -> int:
    """Return a number of tokens that no tokenizer in use stays below: three for four words.

    Most have a token for each word at least; those that join words have 1.2 words in a token.
    """
    words = (1 + sum(sign > "\x7f" for sign in word) // _LONG_WORD for word in text.split())
    return 3 * sum(words) // 4


def read_texts(data: Any, wanted: Wanted, tokenizer: TextTokenizer | None = None) -> list[Generated]:
    """Return the texts of a reply; raise ``Malformed`` where one is no answer to the whole prompt."""
    check_uncut(data, wanted.least)
    tokens = _counted(data, "completion_tokens") if wanted.count == 1 else None
    return [_generated(one, data, wanted, tokenizer, tokens) for one in choices(data, wanted.count)]


def check_uncut(data: Any, least: int) -> None:
    """Raise ``Malformed`` where a server counts fewer tokens in a prompt than it must have."""
    said = _counted(data, "prompt_tokens")
    if said and said < least:
        told = count(said, "token")
        raise Malformed(
            f"the server counts {told} in a prompt that has {least} at the least, so it has cut the prompt; let it "
            "take longer ones",
            final=True,
        )


def check_end(choice: Json, data: Any) -> str | None:
    """Return the name of an end that no API is known to have; None for the others.

    Raises ``Malformed`` where the number of tokens does not tell either whether such a text was cut off.
    """
    said = choice.get("finish_reason")
    if str(said).lower() in (*ENDS, *_BROKEN, *_WITHHELD, *_TOOLS):
        return None
    if not _counted(data, "completion_tokens"):
        raise Malformed(
            f"the server ends a text with finish_reason {said!r} and counts no tokens, so nobody knows whether it was "
            "cut off",
            final=True,
        )
    return str(said)


def check_new(text: str, wanted: Wanted, tokens: int | None) -> None:
    """Raise ``Malformed`` where a text begins with its prompt, unless the server counts the tokens of a repetition."""
    prompt, start = wanted.prompt.strip(), _SPECIAL.sub("", text, count=1)
    if len(prompt) < _SHORT or not start.startswith(prompt):
        return
    least = len(prompt.split())
    # Who chats may say the question again.
    repeated = wanted.chat if tokens is None else least <= tokens <= wanted.limit
    if not repeated:
        raise Malformed(
            "the reply's text begins with the prompt, which is no part of the answer; let the server return new text "
            "alone",
            final=True,
        )


def _generated(
    choice: Json, data: Any, wanted: Wanted, tokenizer: TextTokenizer | None, tokens: int | None
) -> Generated:
    end = _end(choice, wanted, tokens)
    text, ids = _text_of(choice, data, end), choice.get("token_ids")
    check_new(text, wanted, tokens)
    reason: FinishReason = end or _why_stopped(choice, wanted.stops)
    if isinstance(ids, list) and all(isinstance(one, int) for one in ids):
        tokens = len(ids)
        if tokenizer is not None:
            # As in this process: a server may begin the text with the space that its prompt ended before.
            text = tokenizer.readable(ids[:-1] if reason == "eos" else ids)
    at = earliest_stop(text, wanted.stops)
    if at is not None:
        text, reason = text[:at], "stop"
    if tokens is None:
        tokens = max(1, len(text.split())) if text else 0
    return Generated(text, reason, tokens)


def _end(choice: Json, wanted: Wanted, tokens: int | None) -> FinishReason | None:
    """Return how a text ended, None where it ended before the limit, and the server does not say by what."""
    said = choice.get("finish_reason")
    name = str(said).lower()
    if name in _WITHHELD:
        raise Malformed(f"the server's filter withheld the answer (finish_reason {said})", final=True)
    if name in _TOOLS or _part(choice, "tool_calls"):
        raise Malformed("the server calls a tool in place of an answer", final=True)
    if name in ENDS:
        return ENDS[name]
    if str(said) in wanted.ends and tokens:
        return "length" if tokens >= wanted.limit else None
    raise Malformed(f"the reply's finish_reason is {said!r}", final=name not in _BROKEN)


def _text_of(choice: Json, data: Any, end: FinishReason | None) -> str:
    """Return the text of a choice; one that is missing at the limit of tokens is empty."""
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    if text is not None and not isinstance(text, str):
        raise Malformed(f"the reply's text is {text!r}", final=True)
    if refusal := _part(choice, "refusal"):
        raise Malformed(f"the server withheld the answer: {refusal}", final=True)
    if end == "length":
        if text is None and "text" not in choice and not isinstance(message, Mapping):
            raise Malformed("the reply has no text")
        return text or ""
    thought = next((name for name in _REASONING if _part(choice, name)), None)
    if not (text or "").strip() and (thought or _thought_tokens(data)):
        raise Malformed(
            f"the reply's text is empty, and all of it in its {thought or 'hidden reasoning'}: let the server return "
            "the reasoning within the text, or switch reasoning off",
            final=True,
        )
    if text is None:
        raise Malformed(f"the reply's text is None, with finish_reason {choice.get('finish_reason')!r}")
    return text


def _part(choice: Json, name: str) -> Any:
    """Return a part of a choice's message, or of the choice itself."""
    message = choice.get("message")
    return (message.get(name) if isinstance(message, Mapping) else None) or choice.get(name)


def _why_stopped(choice: Json, stops: Sequence[str]) -> FinishReason:
    """Return why a text ended before the limit: the model's own end, unless the server names a stop sequence.

    A server that names no reason may mean either.
    """
    if "stop_reason" in choice:
        return "stop" if isinstance(choice["stop_reason"], str) else "eos"
    return "stop" if stops else "eos"


def _counted(data: Any, name: str) -> int | None:
    """Return a number of tokens that the server says."""
    usage = data.get("usage") if isinstance(data, Mapping) else None
    said = usage.get(name) if isinstance(usage, Mapping) else None
    return said if type(said) is int and said >= 0 else None


def _thought_tokens(data: Any) -> bool:
    """Return whether the server counts tokens of a reasoning."""
    usage = data.get("usage") if isinstance(data, Mapping) else None
    told = usage.get("completion_tokens_details") if isinstance(usage, Mapping) else None
    said = told.get("reasoning_tokens") if isinstance(told, Mapping) else None
    return isinstance(said, int) and said > 0
