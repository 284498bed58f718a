"""The devices of workers and of spread models, on a machine that seems to have some."""

from __future__ import annotations

import logging
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import FillMask, Generate, Loglikelihood, Refusal, RollingLoglikelihood
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings, resident_bytes
from pytest_touchstone.engines.transformers import devices, loading
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.compat import is_out_of_memory
from pytest_touchstone.engines.transformers.devices import (
    AsyncHostCopy,
    BatchBudget,
    choose_device,
    copies_notes,
    devices_of,
    first_batch_budget,
    free_memory,
    processes_per_device,
    release,
    to_device,
)
from pytest_touchstone.engines.transformers.kv_cache import SlotCache
from pytest_touchstone.engines.transformers.masked import MaskedEngine
from pytest_touchstone.engines.transformers.pool import load_weights
from tests.support.engines import generates_together, out_of_memory, short_of_memory
from tests.support.lines import naming
from tests.support.tiny import CORPUS, tiny_causal, tiny_masked


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpu_count", lambda: 2)


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_workers_are_spread_over_the_gpus(two_gpus: None, wanted: str) -> None:
    workers = [{"PYTEST_XDIST_WORKER": f"gw{number}"} for number in range(5)]
    assert [str(choose_device(wanted, one)) for one in workers] == [
        *("cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0")
    ]
    assert str(choose_device("cuda:1", workers[0])) == "cuda:1"
    with pytest.raises(CheckpointError, match="torch sees 2 GPUs here"):
        choose_device("cuda:2", workers[0])


def test_the_memory_of_a_gpu_is_for_the_workers_on_it(two_gpus: None) -> None:
    gpu, cpu = torch.device("cuda", 0), torch.device("cpu")
    assert [processes_per_device("auto", gpu, processes) for processes in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert processes_per_device("cuda:0", gpu, 4) == 4, "all were told to use that one"
    assert processes_per_device("auto", cpu, 4) == 4


def test_several_copies_of_the_weights_on_a_gpu_are_told(two_gpus: None) -> None:
    gpu = torch.device("cuda", 0)
    assert copies_notes("auto", gpu, 2) == copies_notes("auto", torch.device("cpu"), 4) == ()
    (note,) = copies_notes("auto", gpu, 3)
    assert naming("2 of", "3 processes", "cuda:0", "-n 2").search(note)
    (note,) = copies_notes("cuda:0", gpu, 2)
    assert naming("-n 0").search(note)


def test_a_model_is_spread_by_transformers_and_not_moved(
    two_gpus: None, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    (info,) = resolve(str(llama), seq_len=None)
    settings = ModelSettings(device_map="auto", threads=1)
    given: list[Any] = []
    right = AutoModelForCausalLM.from_pretrained

    def from_pretrained(*arguments: Any, device_map: str | None = None, **more: Any) -> Any:
        given.append(device_map)
        return right(*arguments, **more)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: True)
    monkeypatch.setattr(torch.nn.Module, "to", lambda *_: pytest.fail("the model was moved"))
    loaded = loading.load_model(info, settings)
    assert given == ["auto"]
    assert not loaded.model.training
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(CheckpointError, match=naming("accelerate")):
        loading.load_model(info, settings)
    with pytest.raises(CheckpointError, match=naming("GPUs", "cpu")):
        loading.load_model(info, replace(settings, device="cpu"))


def test_the_devices_of_a_model_are_those_of_its_weights() -> None:
    places = ["cuda:1", "cuda:0", "cpu", "cuda:1"]
    parameters = [SimpleNamespace(device=torch.device(place)) for place in places]
    assert devices_of(SimpleNamespace(parameters=lambda: parameters)) == ["cuda:0", "cuda:1"]
    assert devices_of(torch.nn.Linear(2, 2)) == []


def test_numbers_are_sent_and_read_pinned_and_without_a_wait_on_a_gpu_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    to: Any = torch.Tensor.to

    def pin(self: torch.Tensor) -> torch.Tensor:
        calls.append("pinned")
        return self

    def moved(self: torch.Tensor, device: Any, **how: Any) -> torch.Tensor:
        calls.append(f"to {device} {how}")
        return self if how else to(self, device)

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", moved)
    assert to_device([1, 2], torch.device("cpu")).tolist() == [1, 2]
    assert calls == []
    to_device([1, 2], torch.device("cuda", 1))
    assert calls == ["pinned", "to cuda:1 {'non_blocking': True}"]
    assert AsyncHostCopy(torch.tensor([3.5])).numbers() == [3.5]


def engine_for(
    folder: Path, batch: int | None = None, *, together: bool = True, memory: str | None = None
) -> Any:
    (info,) = resolve(str(folder), seq_len=None)
    settings = ModelSettings(device="cpu", threads=1, batch=batch, memory=memory)
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
    with caplog.at_level(logging.WARNING, logger="pytest_touchstone"):
        for answer, wanted in zip(engine.answer(some_requests()), expected, strict=True):
            assert answer.logprob == pytest.approx(wanted.logprob, abs=1e-4)  # type: ignore[union-attr]
        assert max(sizes) <= 150
        assert engine.budget.tokens < first
        remembered = engine.budget.tokens
        engine.answer(some_requests())
    assert engine.budget.tokens == remembered
    (line,) = [record.message for record in caplog.records if "out of memory" in record.message]
    assert naming(f"{first // 2} tokens", "--eval-batch N").search(line)


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
            "pytest_touchstone.engines.transformers.devices.free_memory", lambda _device, free=free: free
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


def test_a_pass_takes_fewer_tokens_the_more_keys_they_see(tmp_path: Path) -> None:
    budget = engine_for(tiny_causal(tmp_path / "c"), memory="2MiB").budget
    assert budget.within(0, 8) <= budget.tokens
    for split in (True, False):
        found = [budget.within(keys, 8, split=split) for keys in (0, 1000, 10000)]
        assert found == sorted(found, reverse=True)
        assert found[-1] < found[0] / 2


def test_a_memory_too_small_for_a_few_tokens_is_told_when_a_checkpoint_is_opened(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"--eval-set memory=10KiB .*\b\d+MiB\b"):
        engine_for(tiny_causal(tmp_path / "c"), memory="10KiB")


def test_a_text_whose_keys_and_values_do_not_fit_is_refused_with_what_it_needs(tmp_path: Path) -> None:
    folder = tiny_causal(tmp_path / "c", seq_len=20000)
    engine = engine_for(folder, memory="1MiB")
    requests = [
        Generate(CORPUS[0], max_new_tokens=3),
        Generate(CORPUS[0], max_new_tokens=15000),
        RollingLoglikelihood(" ".join(CORPUS) * 60),
        Loglikelihood(CORPUS[0], " the"),
    ]
    found = engine.answer(requests)
    assert [isinstance(one, Refusal) for one in found] == [False, True, True, False]
    assert isinstance(found[1], Refusal)
    assert re.search(r"--eval-set memory=1MiB .*\b15,\d{3}\b", found[1].reason)
    enough = found[1].reason.rpartition("give ")[2].split()[0]
    assert engine_for(folder, memory=enough).budget.allowance.too_long(15000) is None


def test_keys_and_values_at_work_stay_within_half_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_causal(tmp_path / "c", seq_len=2000)
    requests = [Generate(f"{CORPUS[0]} {number}", max_new_tokens=130, stop=()) for number in range(24)]
    wanted = engine_for(folder).answer(requests)
    engine = engine_for(folder, memory="1MiB")
    assert generates_together(engine)
    row = engine.budget.allowance.costs.row
    most, at_work = 0, 0
    slots: list[SlotCache] = []
    begin = SlotCache.__init__

    def watched(self: SlotCache, *given: Any) -> None:
        slots.append(self)
        begin(self, *given)

    monkeypatch.setattr(SlotCache, "__init__", watched)

    def look(_model: Any, _given: Any, inputs: dict[str, Any]) -> None:
        nonlocal most, at_work
        used = [one for one in slots if one.lengths]
        most = max(most, sum(one.rows * one.columns + one.past for one in used) * row)
        at_work = max(at_work, sum(len(one.lengths) for one in used))

    engine.loaded.model.register_forward_pre_hook(look, with_kwargs=True)
    assert engine.answer(requests) == wanted
    assert 2**18 < most <= 2**19
    assert at_work > 1


@pytest.mark.skipif(sys.platform != "linux", reason="memory is given back to Linux")
def test_freed_memory_between_what_is_kept_goes_back() -> None:
    size, count = 1 << 16, 1000  # small enough to come from the heap
    tensors = [torch.ones(size // 4) for _ in range(count)]
    held = resident_bytes()
    kept = tensors[::10]
    del tensors

    release(torch.device("cpu"))

    assert resident_bytes() < held - size * count // 2
    assert all(bool((one == 1).all()) for one in kept)
