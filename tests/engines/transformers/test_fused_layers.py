"""Layers of Llama's form, or of Qwen3's, that are computed by larger operations give what their own code gives."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.cpu import in_float32
from pytest_touchstone.engines.transformers.cpu.kernels import kernels
from pytest_touchstone.engines.transformers.cpu.packing import Packer
from pytest_touchstone.engines.transformers.cpu.processor import computes_in_float32
from pytest_touchstone.engines.transformers.cpu.steps import StepKernels
from pytest_touchstone.engines.transformers.fused_layers import fuse, fuse_steps, steps_are_fused
from pytest_touchstone.engines.transformers.pool import load_weights
from tests.support.engines import engine_for, generates_together
from tests.support.families import CAUSAL, SHOTS, causal_of
from tests.support.generating import few, prompts, texts

IDS = torch.tensor([[3, 17, 42, 7, 99, 120, 5, 60], [9, 1, 77, 13, 200, 31, 8, 2]])

OF_THE_FORM = {"llama", "llama tied", "mistral", "qwen2", "qwen2 sliding", "qwen3"}


def model_of(name: str, tmp_path: Path, dtype: Any = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(causal_of(tmp_path, name), dtype=dtype).eval()


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=IDS).logits
    return found.float()


@pytest.mark.parametrize("name", CAUSAL)
def test_layers_of_llamas_form_are_fused_and_their_logits_stay(name: str, tmp_path: Path) -> None:
    model = model_of(name, tmp_path)
    before = logits(model)
    assert fuse(model) == (len(model.model.layers) if name in OF_THE_FORM else 0)
    Packer(model, least=0).pack(model)
    assert float((logits(model) - before).abs().max()) <= 1e-5 * max(1.0, float(before.abs().max()))
    assert fuse(model) == 0  # once is enough


@pytest.mark.parametrize("name", ["llama tied", "qwen2", "gpt2"])
def test_each_layer_is_packed_before_the_next_is_fused(name: str, tmp_path: Path) -> None:
    model = model_of(name, tmp_path)
    before, packer, packed = logits(model), Packer(model, least=0), []
    layers = fuse(model, then=lambda layer: packed.append(packer.pack(layer)))
    assert packed == [4] * layers
    assert packer.pack(model) == 1  # the output layer
    assert Packer(model, least=0).pack(model) == 0
    assert float((logits(model) - before).abs().max()) <= 1e-5 * max(1.0, float(before.abs().max()))


def test_half_precision_is_no_farther_from_single_precision_than_before(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path, torch.bfloat16)
    with in_float32():
        exact = logits(model)
    usual = float((logits(model) - exact).square().mean().sqrt())
    assert fuse(model) == len(model.model.layers)
    Packer(model, least=0).pack(model)
    assert float((logits(model) - exact).square().mean().sqrt()) <= 1.5 * usual
    with in_float32():
        assert float((logits(model) - exact).abs().max()) <= 1e-5 * max(1.0, float(exact.abs().max()))


def test_in_another_number_type_merged_layers_compute_once_and_keep_nothing(tmp_path: Path) -> None:
    model = model_of("qwen2", tmp_path, torch.bfloat16)
    fuse(model)
    Packer(model, least=0).pack(model)
    merged = [getattr(layer, name) for layer in model.model.layers for name in ("qkv_proj", "gate_up_proj")]
    calls: list[Any] = []
    for one in merged:
        one.register_forward_hook(lambda module, *_: calls.append(module))
    with in_float32():
        found, again = logits(model), logits(model)
    assert len(calls) == 2 * len(merged)
    assert torch.equal(found, again)
    assert all(one.computed is None for one in merged)


def test_weights_and_biases_of_the_parts_can_be_read(tmp_path: Path) -> None:
    model = model_of("qwen2", tmp_path)
    names = [f"self_attn.{name}_proj" for name in "qkv"] + ["mlp.gate_proj", "mlp.up_proj"]
    before = [model.model.layers[0].get_submodule(name) for name in names]
    fuse(model)
    Packer(model, least=0).pack(model)
    hidden = torch.randn(3, before[0].in_features)
    for name, plain in zip(names, before, strict=True):
        part = model.model.layers[0].get_submodule(name)
        assert torch.equal(part.weight, plain.weight)
        assert part.bias is None if plain.bias is None else torch.equal(part.bias, plain.bias)
        assert torch.allclose(part(hidden), plain(hidden), atol=1e-5)


@pytest.mark.parametrize(
    ("family", "part"),
    [
        *(("llama", part) for part in ("input_layernorm", "self_attn", "mlp")),
        *(("qwen3", part) for part in ("self_attn", "self_attn.k_norm")),
    ],
)
def test_a_layer_with_a_part_that_computes_other_numbers_stays(
    family: str, part: str, tmp_path: Path
) -> None:
    model = model_of(family, tmp_path)
    layer = model.model.layers[1]
    plain: Any = type(layer.get_submodule(part))

    class Other(plain):  # type: ignore[misc]
        def forward(self, *given: Any, **more: Any) -> Any:
            found = super().forward(*given, **more)
            return (2 * found[0], *found[1:]) if isinstance(found, tuple) else 2 * found

    layer.get_submodule(part).__class__ = Other
    assert fuse(model) == len(model.model.layers) - 1


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_layer_that_one_setting_of_its_own_makes_other_stays(family: str, tmp_path: Path) -> None:
    model = model_of(family, tmp_path)
    plain: Any = type(model.model.layers[0].self_attn)

    class Turning(plain):  # type: ignore[misc]
        def forward(self, **given: Any) -> Any:
            cos, sin = given["position_embeddings"]
            if not self.turns:
                given["position_embeddings"] = torch.ones_like(cos), torch.zeros_like(sin)
            return super().forward(**given)

    for number, layer in enumerate(model.model.layers):
        layer.self_attn.__class__, layer.self_attn.turns = Turning, number != 1
    before = logits(model)
    assert fuse(model) == len(model.model.layers) - 1
    assert float((logits(model) - before).abs().max()) <= 1e-5 * max(1.0, float(before.abs().max()))


def test_attention_that_is_other_at_the_last_positions_stays(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path)
    plain: Any = type(model.model.layers[0].self_attn)

    class Tempered(plain):  # type: ignore[misc]
        def forward(self, **given: Any) -> Any:
            found, weights = super().forward(**given)
            return found * (1 + 0.1 * (given["position_ids"][..., None] > 100)), weights

    for layer in model.model.layers:
        layer.self_attn.__class__ = Tempered
    before = logits(model)  # of places before those
    assert fuse(model) == 0
    assert torch.equal(logits(model), before)


def test_layers_whose_numbers_would_differ_stay(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path)

    class SiLUActivation(torch.nn.Module):
        """Another function under the name of the usual one."""

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden.tanh()

    for layer in model.model.layers:
        layer.mlp.act_fn = SiLUActivation()
    before = logits(model)
    assert fuse(model) == 0
    assert torch.equal(logits(model), before)


@pytest.mark.usefixtures("step_way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_of_heads_are_those_of_queries_and_of_keys(dtype: torch.dtype, tmp_path: Path) -> None:
    usual = own = 0.0
    for seed in range(8):  # of a single draw the errors' ratio is anything from 0.7 to 1.6
        model, draws = model_of("qwen3", tmp_path / str(seed)), torch.Generator().manual_seed(seed)
        for layer in model.model.layers:
            for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
                torch.nn.init.uniform_(norm.weight, 0.2, 5.0, generator=draws)
        model.to(dtype)
        with in_float32():
            exact = logits(model)
        usual += float((logits(model) - exact).square().mean())
        assert fuse(model) == len(model.model.layers)
        Packer(model, least=0).pack(model)
        own += float((logits(model) - exact).square().mean())
    assert math.sqrt(own / 8) <= 1.25 * math.sqrt(usual / 8) + 1e-6


def test_norms_of_heads_that_add_different_numbers_to_a_mean_square_stay(tmp_path: Path) -> None:
    model = model_of("qwen3", tmp_path)
    model.model.layers[0].self_attn.k_norm.variance_epsilon *= 2
    assert fuse(model) == len(model.model.layers) - 1


@pytest.mark.usefixtures("step_way")
def test_a_layer_that_cannot_be_tried_stays(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path)
    for layer in model.model.layers:
        layer.input_layernorm.variance_epsilon = torch.full((32,), 1e-5)
    before = logits(model)
    assert fuse(model) == 0
    assert torch.equal(logits(model), before)


def test_a_model_without_such_layers_is_not_asked_for_any(tmp_path: Path) -> None:
    model, passes = model_of("gpt2", tmp_path), []
    model.base_model.register_forward_pre_hook(lambda *_: passes.append(1))
    assert fuse(model) == 0
    assert passes == []


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
    assert all("torch's operations" in note for note in engine.notes)


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
    assert "torch's operations" in engine.notes[-1]


def test_a_model_whose_layers_are_not_fused_stays(llama: Path) -> None:
    (info,) = resolve(str(llama), seq_len=None)
    model = load_weights(info, ModelSettings(device="cpu")).model
    assert not fuse_steps(model)
    fuse(model)
    assert fuse_steps(model)
