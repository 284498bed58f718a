"""Batches that shrink when memory runs out, and lose nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.checkpoints import resolve
from harness.core.requests import FillMask, Loglikelihood
from harness.engines.registry import open_engine
from harness.engines.settings import ModelSettings
from harness.engines.transformers.causal import CausalEngine
from harness.engines.transformers.compat import is_out_of_memory
from harness.engines.transformers.masked import MaskedEngine
from harness.engines.transformers.memory import BatchBudget, first_batch_budget, free_memory
from harness.engines.transformers.pool import load_weights
from tests.support.engines import out_of_memory, short_of_memory
from tests.support.tiny import CORPUS, tiny_causal, tiny_masked


def engine_for(folder: Path, batch: int | None = None, *, together: bool = True) -> Any:
    (info,) = resolve(str(folder), seq_len=None)
    settings = ModelSettings(device="cpu", threads=1, batch=batch)
    if together:
        return open_engine(info, settings)
    return CausalEngine(info, load_weights(info, settings), settings, together=False)


def some_requests() -> list[Loglikelihood]:
    return [
        Loglikelihood(f"{CORPUS[0]} {text}", f" {word}") for text in CORPUS for word in ("the answer", "학교")
    ]


@pytest.mark.parametrize("kind", ["accelerator", "cpu"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_batch_too_large_is_made_again_smaller(
    kind: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_for(tiny_causal(tmp_path / "c"), together=shared)
    assert isinstance(engine, CausalEngine)
    expected = engine.answer(some_requests())
    first = engine.budget.tokens
    sizes = short_of_memory(engine, 150, out_of_memory(kind))
    with caplog.at_level(logging.WARNING, logger="harness"):
        for answer, wanted in zip(engine.answer(some_requests()), expected, strict=True):
            assert answer.logprob == pytest.approx(wanted.logprob, abs=1e-4)  # type: ignore[union-attr]
        assert max(sizes) <= 150
        assert engine.budget.tokens < first
        remembered = engine.budget.tokens
        engine.answer(some_requests())
    assert engine.budget.tokens == remembered
    assert [record.message for record in caplog.records if "out of memory" in record.message] == [
        f"out of memory: batches now hold {first // 2} tokens, and fewer if need be; "
        "--eval-batch N sets their size"
    ]


def test_masks_are_filled_in_smaller_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_for(tiny_masked(tmp_path / "m"))
    assert isinstance(engine, MaskedEngine)
    requests = [FillMask(f"{text[:60]} [MASK]", 3) for text in CORPUS] * 4
    expected = engine.answer(requests)
    short_of_memory(engine, 200, out_of_memory("accelerator"))
    answers = engine.answer(requests)
    assert [[one.token for one in answer.candidates] for answer in answers] == [  # type: ignore[union-attr]
        [one.token for one in answer.candidates]  # type: ignore[union-attr]
        for answer in expected
    ]


def test_a_size_that_was_asked_for_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    engine = engine_for(tiny_causal(tmp_path / "c"), batch=8)
    short_of_memory(engine, 10, out_of_memory("accelerator"))
    before = engine.budget.tokens
    with pytest.raises(torch.OutOfMemoryError):
        engine.answer(some_requests())
    assert engine.budget.tokens == before


def test_other_errors_are_not_taken_for_a_lack_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_for(tiny_causal(tmp_path / "c"))
    short_of_memory(engine, 10, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        engine.answer(some_requests())
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("out of memory"))


def test_a_batch_that_cannot_get_smaller_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    engine = engine_for(tiny_causal(tmp_path / "c"))
    short_of_memory(engine, 0, out_of_memory("accelerator"))
    with pytest.raises(torch.OutOfMemoryError):
        engine.answer(some_requests())


def test_the_first_budget_follows_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:

    config = SimpleNamespace(hidden_size=64, intermediate_size=256)
    model = SimpleNamespace(
        device=torch.device("cpu"),
        dtype=torch.float32,
        config=SimpleNamespace(get_text_config=lambda: config),
    )
    found = {}
    for free in (None, 10**6, 10**7, 10**12):
        monkeypatch.setattr(
            "harness.engines.transformers.memory.free_memory", lambda _device, free=free: free
        )
        found[free] = first_batch_budget(model, 1000).tokens
    assert 16 <= found[10**6] < found[10**7] <= found[10**12] == found[None] == 512
    monkeypatch.undo()
    assert free_memory(torch.device("cpu")) is None or free_memory(torch.device("cpu"))
    assert free_memory(torch.device("mps")) is None


def test_a_budget_halves_down_to_a_few_tokens() -> None:
    budget = BatchBudget(100, 10)
    assert [budget.halve() for _ in range(4)] == [True, True, False, False]
    assert (budget.tokens, budget.logits) == (25, 2)
