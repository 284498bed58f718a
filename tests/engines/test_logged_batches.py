"""With DEBUG an engine logs its batches, each in a line."""

from __future__ import annotations

import logging
import re

import pytest

from pytest_touchstone.checkpoints.resolve import resolve
from pytest_touchstone.core.requests import Loglikelihood
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


def test_a_batch_is_logged_by_its_kinds_and_its_time(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = logged(caplog, logging.DEBUG, ["one", "two"])
    assert re.search(r"\b2 Loglikelihood\b.* \d+\.\d\d s$", line)


def test_without_debug_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, logging.INFO, ["one"]) == []
