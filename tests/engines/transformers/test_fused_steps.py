"""Steps of models of Llama's form that are one function give what the model's own code gives."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.cpu.kernels import kernels
from pytest_touchstone.engines.transformers.cpu.packing import Packer
from pytest_touchstone.engines.transformers.cpu.processor import computes_in_float32
from pytest_touchstone.engines.transformers.cpu.steps import StepKernels
from pytest_touchstone.engines.transformers.fused_layers import fuse
from pytest_touchstone.engines.transformers.fused_steps import fuse_steps, steps_are_fused
from pytest_touchstone.engines.transformers.pool import load_weights
from tests.support.engines import engine_for, generates_together
from tests.support.families import CAUSAL, SHOTS, causal_of
from tests.support.generating import few, prompts, texts

OF_THE_FORM = {"llama", "llama tied", "mistral", "qwen2", "qwen2 sliding", "qwen3"}


def quick_engine(folder: Path, dtype: Dtype = "auto") -> CausalEngine:
    """An engine as the plugin makes it; its steps are fused where they can be."""
    (info,) = resolve(str(folder), seq_len=None)
    settings = ModelSettings(device="cpu", threads=1, dtype=dtype)
    loaded = load_weights(info, settings)
    fuse(loaded.model)
    Packer(loaded.model, least=0).pack(loaded.model)
    fuse_steps(loaded.model)
    return CausalEngine(info, loaded, settings)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each step that goes this way."""
    seen: list[int] = []
    right = StepKernels.compute

    def compute(self: Any, states: torch.Tensor, *more: Any) -> bool:
        seen.append(len(states))
        return right(self, states, *more)

    monkeypatch.setattr(StepKernels, "compute", compute)
    return seen


@pytest.mark.parametrize("name", CAUSAL)
def test_texts_stay_and_steps_of_llamas_form_go_this_way(
    name: str, tmp_path: Path, steps: list[int], step_way: str
) -> None:
    folder = causal_of(tmp_path, name)
    engine, requests = quick_engine(folder), few()
    assert steps_are_fused(engine.loaded.model) == (name in OF_THE_FORM)
    assert texts(engine, requests) == texts(engine_for(folder), requests)
    assert bool(steps) == (name in OF_THE_FORM and step_way == "by kernels")
    slower = "texts are generated more slowly than they could be: there is no C compiler (cc or gcc)"
    assert [note.partition(": ")[2] for note in engine.notes] == [slower] * (step_way == "by torch")


def test_texts_after_several_prefixes_are_those_of_each_alone(llama: Path, steps: list[int]) -> None:
    requests = [
        Generate(f"{shots} {word}", max_new_tokens=12)
        for shots in (SHOTS, " ".join(reversed(SHOTS.split())), "a")
        for word in ("one", "two", "three", "four")
    ]
    alone = engine_for(llama, together=False)
    assert texts(quick_engine(llama), requests) == texts(alone, requests)
    assert max(steps) == len(requests)


def test_half_precision_goes_this_way_too(llama: Path, steps: list[int]) -> None:
    engine = quick_engine(llama, "bfloat16")
    found = texts(engine, prompts())
    assert [sample[0][2] for sample in found] == [request.max_new_tokens for request in prompts()]
    assert generates_together(engine)
    assert steps
    assert engine.notes == []


def test_a_layer_with_a_hook_is_computed_by_its_own_code(llama: Path, steps: list[int]) -> None:
    engine, wanted = quick_engine(llama), texts(engine_for(llama), few())
    assert texts(engine, few()) == wanted
    steps.clear()
    hook = engine.loaded.model.model.layers[1].mlp.up_proj.register_forward_hook(lambda *_: None)
    assert texts(engine, few()) == wanted
    assert steps == []
    hook.remove()
    assert texts(engine, few()) == wanted
    assert steps


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kernels_with_a_fault_are_left_to_torchs_operations(
    dtype: Dtype, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = StepKernels.compute

    def faulty(self: Any, states: torch.Tensor, turn: Any, caches: Any, masks: Any) -> bool:
        seen = [[torch.zeros_like(mask) for mask in some] for some in masks]
        return right(self, states, turn, caches, seen)  # all rows see as much as the longest

    monkeypatch.setattr(StepKernels, "compute", faulty)
    engine = quick_engine(llama, dtype)
    found = texts(engine, prompts())
    if dtype == "float32":
        assert found == texts(engine_for(llama), prompts())
    assert steps_are_fused(engine.loaded.model)
    model, halves = engine.loaded.model, getattr(kernels(), "by_halves", False)
    in_float32 = dtype == "float32" or computes_in_float32(model.dtype, model.device)
    assert len(engine.notes) == (in_float32 or halves)
    assert all("each step goes by torch's operations: a logit is" in note for note in engine.notes)


def test_a_model_keeps_its_name_and_what_it_takes(llama: Path) -> None:
    model = quick_engine(llama).loaded.model
    assert type(model).__name__ == "LlamaForCausalLM"
    taken = inspect.signature(model.forward)
    assert taken == inspect.signature(type(model).steps_of.forward.__get__(model))
    assert not fuse_steps(model)  # once is enough


def test_other_numbers_around_the_layers_are_left_to_the_models_own_code(llama: Path) -> None:
    greedy = [request for request in few() if not request.temperature]
    engine, wanted = quick_engine(llama), texts(engine_for(llama), greedy)
    plain: Any = type(engine.loaded.model.model)

    class Scaled(plain):  # type: ignore[misc]
        def forward(self, *given: Any, **more: Any) -> Any:
            found = super().forward(*given, **more)
            return type(found)(last_hidden_state=2 * found.last_hidden_state, past_key_values=None)

    engine.loaded.model.model.__class__ = Scaled
    assert texts(engine, greedy) == wanted
    assert engine.loaded.model.step_kernels is None
    assert "each step goes by torch's operations: a logit is" in engine.notes[-1]


def test_a_model_whose_layers_are_not_fused_stays(llama: Path) -> None:
    (info,) = resolve(str(llama), seq_len=None)
    model = load_weights(info, ModelSettings(device="cpu")).model
    assert not fuse_steps(model)
    fuse(model)
    assert fuse_steps(model)
