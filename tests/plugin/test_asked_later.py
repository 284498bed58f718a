"""Requests that nobody waits for yet are asked beside others, of engines that keep their texts at work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.requests import Answer, Generate, GenerateAnswer, Generated, Refusal, Request
from pytest_touchstone.engines.base import Done
from pytest_touchstone.plugin.driver import RunningBatch, run_batch
from pytest_touchstone.results.journal import Journal, read_journal
from tests.plugin.test_dispatch import SPEC, Batch, Function, Scripted


class Writer(Scripted):
    """Writes texts, those of the prompts in ``first`` before the others, and can be left; notes what it is asked."""

    continues = True
    first: tuple[str, ...] = ()

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        prompts = [request.prompt for request in requests if isinstance(request, Generate)]
        self.asked.append(prompts)
        answer = GenerateAnswer((Generated("text", "length", 1),), 1, 0, False)
        assert done is not None
        for number in sorted(range(len(prompts)), key=lambda number: prompts[number] not in self.first):
            done(number, answer)
        return [answer] * len(requests)

    def answer_first(self, count: int, requests: Sequence[Request], done: Done) -> list[Answer | Refusal]:
        assert 0 < count < len(requests)
        return self.answer(requests, done)


def writes(*prompts: str) -> Function:
    """A benchmark that asks for one text after the other."""

    def function(n: int) -> Any:
        for prompt in prompts:
            yield Generate(prompt, max_new_tokens=1)
        return {"acc": 1.0}

    return function


@pytest.mark.parametrize("continues", [True, False])
def test_texts_of_the_batch_ahead_are_asked_for_and_nobody_waits_for_them(
    continues: bool, tmp_path: Path
) -> None:
    engine = Writer()
    engine.continues, engine.first = continues, ("ahead 1",)
    spec = replace(SPEC, asks=(Generate,))
    batch = Batch(tmp_path, writes("one"), writes("two", "again"), spec=spec)
    ahead = Batch(tmp_path, writes("ahead 1"), writes("ahead 2"), spec=spec)
    later = [replace(job, item=f"ahead::{job.item}") for job in ahead.jobs]
    with Journal(tmp_path, "main") as journal:
        two = RunningBatch(later, engine)
        one = RunningBatch(batch.jobs, engine)
        one.begin(engine, journal)
        two.begin(engine, journal, early=True)
        while one.open:
            one.step()
        one.close()
        found = one.outcomes
        assert {item: end.record.message for item, end in found.items()} == {"t::0": None, "t::1": None}
        assert set(two.outcomes) == ({"ahead::t::0"} if continues else set())
        assert len(run_batch(two, engine, journal)) == 2
    assert len(read_journal(tmp_path)) == 4
    asked = [["one", "two", "ahead 1", "ahead 2"], ["again", "ahead 2"], ["ahead 2"]]
    assert engine.asked == (asked if continues else [["one", "two"], ["again"], ["ahead 1", "ahead 2"]])
