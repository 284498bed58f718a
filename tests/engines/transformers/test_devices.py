"""The devices of workers and of spread models, on a machine that seems to have some."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import devices, loading
from pytest_touchstone.engines.transformers.devices import (
    Reading,
    choose_device,
    copies_notes,
    devices_of,
    neighbours,
    to_device,
)


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
    assert [neighbours("auto", gpu, processes) for processes in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert neighbours("cuda:0", gpu, 4) == 4, "all were told to use that one"
    assert neighbours("auto", cpu, 4) == 4


def test_several_copies_of_the_weights_on_a_gpu_are_told(two_gpus: None) -> None:
    gpu = torch.device("cuda", 0)
    assert copies_notes("auto", gpu, 2) == copies_notes("auto", torch.device("cpu"), 4) == ()
    (note,) = copies_notes("auto", gpu, 3)
    assert note == (
        "2 of the run's 3 processes compute on cuda:0, each with its own copy of the weights; -n 2 keeps one per GPU"
    )
    (note,) = copies_notes("cuda:0", gpu, 2)
    assert note.endswith("-n 0 keeps one per GPU")


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
    monkeypatch.setattr(loading, "place", lambda *_: pytest.fail("the model was moved"))
    loaded = loading.load_model(info, settings)
    assert given == ["auto"]
    assert not loaded.model.training
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(CheckpointError, match="needs the package accelerate"):
        loading.load_model(info, settings)
    with pytest.raises(CheckpointError, match="spreads a model over GPUs, and this run computes on cpu"):
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
    assert Reading(torch.tensor([3.5])).numbers() == [3.5]
