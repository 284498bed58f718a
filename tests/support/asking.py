"""Calls to ``fault_server``, read strictly, and their right values."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from pytest_touchstone.engines.http.calls import Call, CallFailure, CallReply, MalformedReplyError
from pytest_touchstone.engines.http.transport import HttpTransport
from tests.support.fault_server import MODEL, logprob, text_of


def _first(found: Any) -> Any:
    if not isinstance(found, dict) or found.get("model") != MODEL:
        raise MalformedReplyError("the reply is not of the model that was asked")
    choices = found.get("choices")
    if not isinstance(choices, list) or not choices:
        raise MalformedReplyError("the reply has no choices")
    return choices[0]


def scored(owner: int, ids: Sequence[int]) -> tuple[Call[Any], Any]:
    """A call for the log-probabilities of tokens, and the value that it must have."""
    right = tuple(logprob(ids, place) for place in range(1, len(ids)))

    def read(found: Any) -> tuple[float, ...]:
        told = _first(found)["logprobs"]
        values = told["token_logprobs"] if told else None
        if not values or len(values) != len(ids) or not all(values[1:]):
            raise MalformedReplyError("the reply has not one log-probability for each token")
        return tuple(values[1:])

    body = {"model": MODEL, "prompt": list(ids), "echo": True, "logprobs": 1, "max_tokens": 0}
    return Call("/v1/completions", body, read, owner), right


def generated(owner: int, prompt: str, *, chat: bool) -> tuple[Call[Any], Any]:
    """A call for a text, and the value that it must have."""

    def read(found: Any) -> str:
        choice = _first(found)
        text = choice["message"]["content"] if chat else choice["text"]
        if not isinstance(text, str):
            raise MalformedReplyError("the reply has no text")
        return text

    turns = [{"role": "user", "content": prompt}]
    if chat:
        return Call("/v1/chat/completions", {"model": MODEL, "messages": turns}, read, owner), text_of(turns)
    return Call("/v1/completions", {"model": MODEL, "prompt": prompt}, read, owner), text_of(prompt)


def mixed(count: int) -> tuple[list[Call[Any]], list[Any]]:
    """As many calls of all kinds, and their right values."""
    drawn = Random(5)
    pairs = [
        scored(number, [1, *(drawn.randrange(1000) for _ in range(5)), number])
        if number % 2
        else generated(number, f"question {number}", chat=number % 4 == 0)
        for number in range(count)
    ]
    return [call for call, _ in pairs], [right for _, right in pairs]


def ends_of(transport: HttpTransport, calls: Sequence[Call[Any]]) -> list[CallReply[Any] | CallFailure]:
    """Ask the calls; return their ends in order. None may be missing or come twice."""
    ends: dict[int, CallReply[Any] | CallFailure] = {}

    def done(number: int, end: CallReply[Any] | CallFailure) -> None:
        assert number not in ends, "an end came twice"
        ends[number] = end

    transport.run(calls, done)
    return [ends[number] for number in range(len(calls))]
