"""Benchmarks that ask the same about the same rows ask the model once, and score as if each had asked by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_touchstone.core.requests import Generate, Loglikelihood, LoglikelihoodAnswer, Request
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.plugin.dispatch import Remembered, Remembering
from tests.plugin.test_dispatch import Scripted

Project = Any

OTHER = """
from pytest_touchstone import Loglikelihood, benchmark


@benchmark("part", version=1, data="sums/test", asks=Loglikelihood, primary="acc", keep=lambda row: row["n"] % 2)
def test_part(example):
    answers = yield [Loglikelihood(example["q"], " " + option) for option in example["options"]]
    return {"acc": float(answers[0].logprob > answers[1].logprob)}
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """All requests that the engine gets."""
    found: list[Request] = []
    right = FakeEngine.answer

    def answer(self: FakeEngine, requests: Sequence[Request], done: Any = None) -> Any:
        found.extend(requests)
        return right(self, requests, done)

    monkeypatch.setattr(FakeEngine, "answer", answer)
    return found


def test_a_row_of_two_benchmarks_is_asked_once(project: Project, asked: list[Request]) -> None:
    (project.path / "test_part.py").write_text(OTHER)
    assert project.run().ret == 0
    together = project.scores()
    assert len(asked) == len(set(asked)) == 40
    asked.clear()
    assert project.run("test_part.py").ret == 0
    alone = project.scores()
    assert len(asked) == 20
    assert alone == {name: scores for name, scores in together.items() if name.startswith("part/")}


def test_only_sound_log_probabilities_are_remembered() -> None:
    class Odd(Engine):
        info = Scripted.info

        def __init__(self) -> None:
            self.asked: list[Request] = []

        def answer(self, requests: Sequence[Request], done: Any = None) -> Any:
            self.asked += requests
            found = [
                LoglikelihoodAnswer(float("nan") if "nan" in str(one) else -1.0, True, 1) for one in requests
            ]
            done(0, found[0])
            return found

    odd = Odd()
    engine = Remembering(odd, Remembered())
    requests: list[Request] = [
        Loglikelihood("a", "b"),
        Loglikelihood("a", "nan"),
        Generate("a", max_new_tokens=1),
    ]
    told: list[int] = []
    for _ in range(2):
        answers = engine.answer(requests, lambda number, _: told.append(number))
        assert [round(one.logprob) for one in answers[::2]] == [-1, -1]  # type: ignore[union-attr]
    assert odd.asked == [*requests, *requests[1:]]
    assert told == [0, 0, 1]
    assert engine.answer([Loglikelihood("ab", "")], lambda *_: None)
    assert odd.asked[-1] == Loglikelihood("ab", "")
