"""With DEBUG an engine logs what it is asked, bounded and in lines of its own."""

from __future__ import annotations

import logging

import pytest

from pytest_touchstone.checkpoints.resolve import resolve
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.engines.base import MOST_LOGGED, MOST_SIGNS
from pytest_touchstone.engines.registry import EnginePool
from pytest_touchstone.engines.settings import ModelSettings


def logged(caplog: pytest.LogCaptureFixture, level: int, texts: list[str]) -> list[str]:
    """The lines that come of a batch of requests with these texts."""
    pool = EnginePool(ModelSettings())
    with caplog.at_level(level, "pytest_touchstone"):
        (info,) = resolve("fake:causal", seq_len=None)
        engine, answered = pool.engine(info), list[int]()
        engine.submit(
            [Loglikelihood(text, " x") for text in texts], lambda number, _: answered.append(number)
        )
        engine.collect()
    pool.close()
    assert sorted(answered) == [*range(len(texts))]
    return [record.getMessage() for record in caplog.records if record.name == "pytest_touchstone"]


def test_batches_and_their_requests_are_logged_with_answers(caplog: pytest.LogCaptureFixture) -> None:
    first, request, last = logged(caplog, logging.DEBUG, ["one\x1b[2J\ntwo"])
    assert first.endswith(", a batch of 1 Loglikelihood")
    assert "request 1: Loglikelihood(context='one" in request
    assert "-> LoglikelihoodAnswer(logprob=" in request
    assert "\x1b" not in request
    assert last.startswith("1 answers in ")


def test_a_log_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, logging.DEBUG, ["long " * 10_000] * (MOST_LOGGED + 5))
    assert len(lines) == MOST_LOGGED + 2
    assert max(map(len, lines)) < 2 * MOST_SIGNS + 100
    assert lines[-1].endswith(", 5 requests more")


def test_without_debug_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, logging.INFO, ["one"]) == []
