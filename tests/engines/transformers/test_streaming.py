"""Answers that an engine tells early are those that it returns, and whoever is told cannot break it."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from pytest_touchstone.core.requests import Answer, Generate, GenerateAnswer, Loglikelihood, Refusal, Request
from pytest_touchstone.engines.transformers.causal import CausalEngine
from tests.support.engines import before_each_pass, engine_for, generates_together, out_of_memory
from tests.support.generating import few, prompts, with_samples
from tests.support.tiny import CORPUS


class Told:
    """What an engine tells, in order."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Answer | Refusal]] = []

    def __call__(self, number: int, answer: Answer | Refusal) -> None:
        self.answers.append((number, answer))

    @property
    def order(self) -> list[int]:
        """The numbers alone."""
        return [number for number, _ in self.answers]


def check_told(engine: CausalEngine, requests: list[Request], wanted: list[Answer | Refusal]) -> list[int]:
    told = Told()
    assert engine.answer(requests, told) == wanted
    assert sorted(told.order) == list(range(len(requests)))
    assert all(answer == wanted[number] for number, answer in told.answers)
    return told.order


def mixed() -> list[Request]:
    """Requests of all kinds, short texts behind long ones."""
    return [*few(), Loglikelihood("The quick", " brown"), Loglikelihood("a", "")]


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_every_answer_is_told_once_and_is_the_one_returned(llama: Path, batch: int | None) -> None:
    requests = mixed()
    engine = engine_for(llama, batch=batch)
    order = check_told(engine, requests, engine_for(llama).answer(requests))
    kinds = [type(request) for request in requests]
    first = [kinds[number] for number in order[:2]]
    assert first == [Loglikelihood, Loglikelihood]


def test_a_short_text_is_told_while_longer_ones_go_on(llama: Path) -> None:
    engine = engine_for(llama, speculative="off")  # each pass gives one token
    assert generates_together(engine)
    lengths = (40, 5, 20, 1)
    requests: list[Request] = [
        Generate(text, max_new_tokens=length) for text, length in zip(CORPUS, lengths, strict=False)
    ]
    done: dict[int, int] = {}
    engine.work_done.reset()

    def answered(number: int, _: Answer | Refusal) -> None:
        done.setdefault(number, engine.work_done.decoded)

    engine.answer(requests, answered)
    assert list(done) == [3, 1, 2, 0]
    assert list(done.values()) == [0, 3 * 4, 3 * 4 + 2 * 15, 3 * 4 + 2 * 15 + 20]


def test_a_request_is_told_when_its_last_sample_is_at_its_end(llama: Path) -> None:
    engine = engine_for(llama)
    requests: list[Request] = [
        Generate(CORPUS[0], max_new_tokens=30, temperature=1.0, samples=5, stop=("e",), seed=1),
        Generate(CORPUS[1], max_new_tokens=3, temperature=1.0, samples=3, seed=2),
    ]
    told = Told()
    engine.answer(requests, told)
    assert told.order == [1, 0]
    assert [len(one.samples) for _, one in told.answers if isinstance(one, GenerateAnswer)] == [3, 5]


def test_texts_generated_one_by_one_are_told_one_by_one(llama: Path) -> None:
    engine = engine_for(llama, together=False)
    assert not generates_together(engine)
    requests: list[Request] = [*prompts()[:3], *with_samples()[:3]]
    assert check_told(engine, requests, engine_for(llama).answer(requests)) == list(range(6))


def test_rows_too_many_for_memory_are_told_once_each(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Request] = [*prompts(), *with_samples()]
    wanted = engine_for(llama).answer(requests)
    engine = engine_for(llama)
    assert generates_together(engine)
    failed: list[torch.Size] = []

    def look(cells: torch.Size) -> None:
        if cells[1] == 1 and cells[0] > 3:
            failed.append(cells)
            raise out_of_memory("accelerator")

    before_each_pass(engine, look)
    check_told(engine, requests, wanted)
    assert len(failed) > 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError, RuntimeError])
@pytest.mark.parametrize("together", [True, False])
def test_what_is_raised_by_whoever_is_told_goes_through_and_breaks_nothing(
    llama: Path, stop: type[BaseException], together: bool
) -> None:
    engine = engine_for(llama, together=together)
    assert generates_together(engine) is together
    requests: list[Request] = [*prompts()[9:], Loglikelihood("The quick", " brown"), *with_samples()[:3]]
    wanted = engine.answer(requests)
    most = engine._generator()._most if together else 0  # type: ignore[union-attr]
    for at in (0, 3, 9):
        told: list[int] = []

        def tell(number: int, _: object, told: list[int] = told, at: int = at) -> None:
            told.append(number)
            if len(told) > at:
                raise stop("CUDA out of memory")

        with pytest.raises(stop):
            engine.answer(requests, tell)
        assert len(told) == at + 1
        assert engine.loaded.model.config._attn_implementation == "sdpa"
    assert not together or engine._generator()._most == most  # type: ignore[union-attr]
    check_told(engine, requests, wanted)


def test_whoever_is_told_is_in_no_mode_of_torchs_and_hears_warnings(llama: Path) -> None:
    import torch

    modes: list[bool] = []

    def tell(number: int, _: object) -> None:
        modes.append(torch.is_inference_mode_enabled())
        warnings.warn("heard", UserWarning, stacklevel=1)

    with pytest.warns(UserWarning, match="heard") as heard:
        engine_for(llama).answer(mixed(), tell)
    assert modes == [False] * len(mixed())
    assert sum("heard" in str(one.message) for one in heard) == len(modes)


class _LeaveError(Exception):
    """Raised by a receiver that has enough."""


def test_texts_at_work_go_on_where_their_requests_are_asked_again(llama: Path) -> None:
    first: list[Request] = [Generate(CORPUS[number], max_new_tokens=6) for number in range(3)]
    later: list[Request] = [Generate(f"{CORPUS[number]} more", max_new_tokens=40) for number in range(3)]
    more: list[Request] = [Generate("some more", max_new_tokens=5)]
    wanted = engine_for(llama).answer([*later, *more])
    engine = engine_for(llama)
    assert generates_together(engine)
    assert engine.continues
    engine.work_done.reset()

    def leave(number: int, _: object) -> None:
        seen.append(number)
        if len([one for one in seen if one < len(first)]) == len(first):
            raise _LeaveError

    seen: list[int] = []
    with pytest.raises(_LeaveError):
        engine.answer([*first, *later], leave)
    assert set(seen) == {0, 1, 2}
    prefilled, steps = engine.work_done.prefilled, engine.work_done.steps
    assert engine.answer([*more, *later]) == [*wanted[3:], *wanted[:3]]
    assert engine.work_done.prefilled <= prefilled + 10
    assert engine.work_done.steps - steps < 40
    assert engine.answer(first) == engine_for(llama).answer(first)  # what is asked no more is forgotten
