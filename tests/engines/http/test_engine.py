"""The engine of served models, and the questions by which it knows its server again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.core.requests import (
    Generate,
    GenerateAnswer,
    Generated,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
)
from pytest_touchstone.engines.http.calls import Call, CallFailure, CallReply
from pytest_touchstone.engines.http.engine import (
    MOST_PER_TOKEN,
    HttpEngine,
    canary_requests,
    describe_drift,
    planner_of,
)
from pytest_touchstone.engines.http.transport import HttpTransport
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.recorded import TEXTS, RecordedServer, probed


def score(logprob: float, tokens: int = 10) -> LoglikelihoodAnswer:
    return LoglikelihoodAnswer(logprob, False, tokens)


def text(words: str) -> GenerateAnswer:
    return GenerateAnswer((Generated(words, "length", 8),), 4)


def test_scores_are_asked_where_a_server_gives_them_and_texts_elsewhere() -> None:
    assert {type(one) for one in canary_requests((Loglikelihood, Generate))} == {Loglikelihood}
    assert {type(one) for one in canary_requests((Generate,))} == {Generate}


def test_rounding_is_no_drift_and_another_model_is() -> None:
    near = 10 * MOST_PER_TOKEN * 0.9
    assert describe_drift([[score(-20.0)]], [[score(-20.0 - near)]]) is None
    found = describe_drift([[score(-20.0), score(-5.0)]], [[score(-20.0), score(-9.0)]])
    assert found is not None
    assert re.search(r"-5\.00 .*-9\.00 ", found)
    assert describe_drift([[score(-20.0)]], [[score(-20.0, tokens=11)]]) is not None


def test_most_of_the_texts_must_differ() -> None:
    before = [text("a"), text("b"), text("c"), text("d")]
    assert describe_drift([before], [[text("a"), text("b"), text("x"), text("y")]]) is None
    found = describe_drift([before], [[text("a"), text("x"), text("x"), text("y")]])
    assert found is not None
    assert "3 of 4 known prompts" in found


def test_a_noisy_server_is_not_taken_for_another_model() -> None:
    """A text that differs from itself tells nothing, and a log-probability is that of any time."""
    noisy = [[text("a"), text("b"), text("c")], [text("x"), text("y"), text("c")]]
    assert describe_drift(noisy, [[text("k"), text("l"), text("c")]] * 2) is None
    assert describe_drift([[text("a"), text("b")]] * 2, noisy_end()) is None
    assert describe_drift([[text("a")]] * 2, [[text("x")]] * 2) is not None
    assert describe_drift([[score(-20.0)], [score(-29.0)]], [[score(-29.0)], [score(-20.1)]]) is None
    assert describe_drift([[score(-20.0)], [score(-29.0)]], [[score(-40.0)], [score(-41.0)]]) is not None


def noisy_end() -> list[list[GenerateAnswer]]:
    return [[text("x"), text("y")], [text("a"), text("z")]]


def test_a_text_that_is_taken_for_a_reasoning_by_the_end_has_not_changed() -> None:
    reasoned = GenerateAnswer((Generated("", "length", 8, "a b"),), 4)
    assert describe_drift([[text(" a b")]], [[reasoned]]) is None
    assert describe_drift([[text("a c")]], [[reasoned]]) is not None


def test_a_question_without_an_answer_says_nothing() -> None:
    assert describe_drift([[score(-1.0)]], [[Refusal("gone")]]) is None


SETTINGS = ModelSettings()


class Replayed(HttpTransport):
    """A transport to a recorded server; ``end`` is what comes of every call from then on."""

    def __init__(self, server: RecordedServer) -> None:
        super().__init__("http://h")
        self.server = server
        self.end: CallFailure | ServerError | None = None

    def run(self, calls: Sequence[Call[Any]], done: Callable[[int, Any], None]) -> None:
        for number, call in enumerate(calls):
            if isinstance(self.end, ServerError):
                raise self.end
            said = self.end or self.server.ask(call.path, call.body)
            done(number, said if isinstance(said, CallFailure) else CallReply(call.read(said)))


@pytest.mark.parametrize(
    ("end", "noted"),
    [
        (None, False),
        (CallFailure("HTTP 500", "server", 500), True),
        (ServerError("it has not answered for 120 s"), True),
    ],
    ids=["answered", "refused", "gone"],
)
def test_a_server_that_cannot_be_checked_at_the_end_is_told_of(
    end: CallFailure | ServerError | None, noted: bool
) -> None:
    server = RecordedServer("llama-server-b11434")
    transport, info = Replayed(server), probed(server.ask)
    engine = HttpEngine(info, transport, planner_of(info, SETTINGS, transport), SETTINGS)
    engine.answer(TEXTS)
    transport.end = end
    if isinstance(end, ServerError):
        with pytest.raises(ServerError):
            engine.check()
    else:
        engine.check()
    assert any("unknown whether" in note for note in engine.usage["notes"]) == noted
