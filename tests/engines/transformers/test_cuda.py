"""Engines on a GPU, against the same checkpoints on the processor; ``TESTS_DEVICE=cuda`` has the other tests there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_touchstone.core.requests import Generate, GenerateAnswer
from pytest_touchstone.engines.settings import Dtype
from pytest_touchstone.engines.transformers.agreement import FACTOR
from tests.support.engines import engine_for
from tests.support.families import CAUSAL, causal_of
from tests.support.generating import prompts, texts, with_samples
from tests.support.scoring import SCORED, error, logprobs
from tests.support.tiny import CORPUS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")

HALF: tuple[Dtype, ...] = ("bfloat16", "float16")


@pytest.mark.parametrize("family", CAUSAL)
def test_log_probabilities_of_a_gpu_are_those_of_the_processor(family: str, tmp_path: Path) -> None:
    model = causal_of(tmp_path, family)
    engine = engine_for(model, device="cuda", dtype="float32")
    assert logprobs(engine, SCORED) == pytest.approx(
        logprobs(engine_for(model, device="cpu", dtype="float32"), SCORED), abs=1e-3
    )
    assert (engine.shares, engine._needed.gathers, engine.notes) == (True, True, [])


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("family", CAUSAL)
def test_shared_scoring_in_half_precision_rounds_no_more_than_the_plain_way(
    family: str, dtype: Dtype, tmp_path: Path
) -> None:
    model = causal_of(tmp_path, family)
    exact = logprobs(engine_for(model, device="cpu", dtype="float32"), SCORED)
    plain = error(logprobs(engine_for(model, device="cuda", dtype=dtype, together=False), SCORED), exact)
    engine = engine_for(model, device="cuda", dtype=dtype)
    assert error(logprobs(engine, SCORED), exact) <= FACTOR * plain
    assert (engine.shares, engine._needed.gathers, engine.notes) == (True, True, [])


@pytest.mark.parametrize("family", CAUSAL)
def test_texts_of_a_gpu_are_those_of_one_text_at_a_time(family: str, tmp_path: Path) -> None:
    model = causal_of(tmp_path, family)
    asked = prompts()
    engine = engine_for(model, device="cuda", dtype="float32")
    found = texts(engine, asked)
    assert found == texts(engine_for(model, device="cuda", dtype="float32", together=False), asked)
    assert engine.notes == []


@pytest.mark.parametrize("dtype", ["float32", *HALF])
def test_samples_of_a_gpu_are_the_same_in_a_second_run(llama: Path, dtype: Dtype) -> None:
    first, second = (engine_for(llama, device="cuda", dtype=dtype) for _ in range(2))
    found = texts(first, with_samples())
    assert found == texts(second, with_samples())
    assert len({one for some in found for one in some}) > 11


@pytest.mark.parametrize("dtype", ["float32", *HALF])
def test_texts_of_several_calls_end_as_they_should(llama: Path, dtype: Dtype) -> None:
    engine = engine_for(llama, device="cuda", dtype=dtype)
    for size in (3, 40):
        asked = [Generate(f"{text[:20]}", max_new_tokens=size, stop=("e ",)) for text in CORPUS]
        for answer in engine.answer(asked):
            assert isinstance(answer, GenerateAnswer)
            (one,) = answer.samples
            assert one.tokens <= size
            assert "e " not in one.text
