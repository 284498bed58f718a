"""Weights that are packed for the CPU's kernels compute what plain ones do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_touchstone.engines.settings import resident_bytes
from pytest_touchstone.engines.transformers.cpu import packing
from pytest_touchstone.engines.transformers.cpu.kernels import kernels
from pytest_touchstone.engines.transformers.cpu.memory import MappedFiles, trim_heap
from pytest_touchstone.engines.transformers.cpu.packing import (
    PACKED,
    Packer,
    has_room_to_pack,
    keep_few_kernels,
    pack_for_steps,
)
from pytest_touchstone.engines.transformers.cpu.processor import in_float32
from pytest_touchstone.engines.transformers.devices import bytes_of_weights
from tests.support.families import CAUSAL, MAMBA, MASKED, SEQ_LEN, causal_of
from tests.support.tiny import tiny_causal, tiny_masked

IDS = torch.tensor([[3, 17, 42, 7, 99, 120, 5, 60], [9, 1, 77, 13, 200, 31, 8, 2]])


def model_of(name: str, tmp_path: Path, dtype: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    if name in MASKED:
        folder = tiny_masked(tmp_path / "c", **MASKED[name])
        return AutoModelForMaskedLM.from_pretrained(folder, dtype=dtype).eval()
    return AutoModelForCausalLM.from_pretrained(causal_of(tmp_path, name), dtype=dtype).eval()


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=IDS).logits
    return found.float()


def layers(model: Any) -> list[Any]:
    return [one for one in model.modules() if isinstance(one, torch.nn.Linear)]


@pytest.mark.parametrize("name", [*CAUSAL, *MASKED])
@pytest.mark.usefixtures("library")
def test_logits_stay_the_same_up_to_rounding(name: str, tmp_path: Path) -> None:
    model = model_of(name, tmp_path, torch.float32)
    before = logits(model)
    assert Packer(model, least=0).pack(model) == len(layers(model))
    assert float((logits(model) - before).abs().max()) <= 1e-5 * max(1.0, float(before.abs().max()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
@pytest.mark.usefixtures("library")
def test_half_precision_is_packed_where_there_are_products(
    name: str, dtype: Any, half: str, tmp_path: Path
) -> None:
    model = model_of(name, tmp_path, dtype)
    with in_float32():
        exact = logits(model)
    usual = float((logits(model) - exact).square().mean().sqrt())
    by_itself = dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    packed = half == "in float32" or by_itself
    assert Packer(model, least=0).pack(model) == packed * len(layers(model))
    assert float((logits(model) - exact).square().mean().sqrt()) <= 1.5 * usual
    with in_float32():
        assert torch.allclose(logits(model), exact, atol=1e-5)


def test_a_packed_weight_takes_the_place_of_the_plain_one(tmp_path: Path, library: str) -> None:
    model = model_of("llama", tmp_path, torch.float32)
    plain = {name: one.weight.clone() for name, one in model.named_modules() if type(one) is torch.nn.Linear}
    count = sum(one.numel() for one in model.parameters())
    Packer(model, least=0).pack(model)
    if library == "oneDNN":  # the other one's layout has room that takes no memory
        assert sum(one.numel() for one in model.parameters()) == count
    for name, weight in plain.items():
        layer = model.get_submodule(name)
        assert isinstance(layer, torch.nn.Linear)
        assert [one.is_mkldnn for one in layer.parameters()] == [library != "own" or kernels() is None]
        assert torch.equal(layer.weight, weight)


@pytest.mark.usefixtures("library")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says so what a process takes")
def test_packed_weights_take_no_more_memory_than_plain_ones() -> None:
    model: Any = torch.nn.Sequential(*(torch.nn.Linear(1024, 10240, bias=False) for _ in range(6)))
    model.device = torch.device("cpu")
    trim_heap(model.device)
    before = resident_bytes()
    assert Packer(model).pack(model) == 6
    with torch.inference_mode():
        for layer in model:
            layer(torch.ones(512, 1024))
    trim_heap(model.device)
    assert resident_bytes() - before < 3 * 40 * 2**20, "half of the weights are there twice"


def test_code_that_takes_a_weight_by_itself_gets_the_plain_one(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = tiny_causal(tmp_path / "c", seq_len=SEQ_LEN, **MAMBA)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    before = logits(model)
    assert Packer(model, least=0).pack(model) > 0
    assert torch.allclose(logits(model), before, atol=1e-4)


@pytest.mark.usefixtures("library")
def test_a_weight_that_is_also_the_table_of_embeddings_stays(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path, torch.float32)
    model.lm_head.weight = model.get_input_embeddings().weight
    before = logits(model)
    assert Packer(model, least=0).pack(model) == len(layers(model))
    assert not model.get_input_embeddings().weight.is_mkldnn
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert torch.allclose(logits(model), before, atol=1e-5)


def test_packing_again_changes_nothing(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path, torch.float32)
    Packer(model, least=0).pack(model)
    before = logits(model)
    assert Packer(model, least=0).pack(model) == 0
    assert torch.equal(logits(model), before)


def test_small_weights_and_other_number_types_stay(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path / "a", torch.float32)
    assert Packer(model).pack(model) == 0
    model = model_of("llama", tmp_path / "b", torch.float64)
    assert Packer(model, least=0).pack(model) == 0


@pytest.mark.usefixtures("half", "no_kernels")
def test_room_is_asked_for_where_float32_numbers_take_more(
    half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("llama", tmp_path, torch.bfloat16)
    more = 2 * sum(one.weight.numel() for one in layers(model))
    wide = half == "in float32"
    monkeypatch.setattr(packing, "free_bytes", lambda: 2 * more)
    assert has_room_to_pack(model, least=0) is not wide
    monkeypatch.setattr(packing, "free_bytes", lambda: 20 * more)
    assert has_room_to_pack(model, least=0)
    assert has_room_to_pack(model, least=0, processes=10) is not wide
    assert has_room_to_pack(model_of("llama", tmp_path / "f", torch.float32), least=0, processes=1000)


@pytest.mark.skipif(kernels() is None, reason="there are no kernels here")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("half", ["in float32"], indirect=True)
@pytest.mark.usefixtures("half")
def test_half_precision_that_is_not_multiplied_stays_half_as_large(
    dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "multiplies_by_tiles", lambda: False)
    model = model_of("llama", tmp_path, dtype)
    plain = [one.weight.clone() for one in layers(model)]
    with in_float32():
        exact = logits(model)
    usual = float((logits(model) - exact).square().mean().sqrt())
    assert has_room_to_pack(model, least=0, processes=10**9)
    assert Packer(model, least=0).pack(model) == len(plain)
    assert float((logits(model) - exact).square().mean().sqrt()) <= 1.5 * usual
    with in_float32():
        assert torch.allclose(logits(model), exact, atol=1e-5)
    packed = [one._parameters[PACKED] for one in layers(model)]
    assert pack_for_steps(model) == len(plain)
    for layer, before, weight in zip(layers(model), packed, plain, strict=True):
        assert layer._parameters[PACKED] is before
        assert (before.dtype, layer.weight.dtype) == (dtype, dtype)
        assert torch.equal(layer.weight, weight)


@pytest.mark.parametrize("rows", [1, 2, 7, 64, 300])
def test_any_number_of_rows_is_computed(rows: int, library: str) -> None:
    layer, numbers = torch.nn.Linear(576, 960), torch.Generator().manual_seed(rows)
    model: Any = torch.nn.Sequential(layer)
    model.device = torch.device("cpu")
    inputs = torch.randn(3, rows, 576, generator=numbers)
    with torch.inference_mode():
        expected = layer(inputs)
        assert Packer(model).pack(model) == 1
        found = layer(inputs)
    assert torch.allclose(found, expected, atol=1e-5), library


@pytest.mark.usefixtures("library")
def test_a_layer_whose_packed_product_differs_stays_plain() -> None:
    first, second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)
    with torch.no_grad():
        first.weight[3, 5] = float("nan")  # no product of it is the same
    model: Any = torch.nn.Sequential(first, second)
    model.device = torch.device("cpu")
    assert Packer(model, least=0).pack(model) == 1
    assert [type(one) is torch.nn.Linear for one in layers(model)] == [True, False]


def _alike(count: int) -> Any:
    """Return a model of layers of one kind."""
    model: Any = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(count)))
    model.device = torch.device("cpu")
    return model


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The plain weights whose products were tried."""
    found: list[torch.Tensor] = []
    same = packing._gives_same_products

    def tried(plain: torch.Tensor, packed: torch.Tensor, kernels: Any) -> bool:
        found.append(plain)
        return same(plain, packed, kernels)

    monkeypatch.setattr(packing, "_gives_same_products", tried)
    return found


@pytest.mark.usefixtures("library")
def test_one_layer_of_each_kind_is_tried(trials: list[torch.Tensor]) -> None:
    model = _alike(4)
    model.append(torch.nn.Linear(64, 32))
    assert Packer(model, least=0).pack(model) == 5
    assert [tuple(one.shape) for one in trials] == [(64, 64), (32, 64)]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_tried_by_itself(trials: list[torch.Tensor], odd: float) -> None:
    model = _alike(3)
    with torch.no_grad():
        model[1].weight[3, 5] = odd
    weights = [one.weight.data_ptr() for one in model]
    assert Packer(model, least=0).pack(model) == 2
    assert {one.data_ptr() for one in trials} == set(weights[:2])
    assert type(model[1]) is torch.nn.Linear


@pytest.mark.usefixtures("library")
def test_another_layer_is_tried_where_the_first_of_its_kind_differs(trials: list[torch.Tensor]) -> None:
    model = _alike(3)
    with torch.no_grad():
        model[0].weight[3, 5] = float("nan")
    weights = [one.weight.data_ptr() for one in model]
    assert Packer(model, least=0).pack(model) == 2
    assert {one.data_ptr() for one in trials} == set(weights[:2])


def test_float32_arithmetic_reads_packed_weights(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path, torch.bfloat16)
    with in_float32():
        before = logits(model)
    Packer(model, least=0).pack(model)
    with in_float32():
        assert torch.equal(logits(model), before)


def test_pages_of_a_file_are_let_go_and_memory_of_another_kind_is_not(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    expected = torch.arange(1 << 16, dtype=torch.float32)
    path.write_bytes(expected.numpy().tobytes())
    mapped = torch.from_file(str(path), shared=False, size=expected.numel(), dtype=torch.float32)
    for tensor in (mapped, expected.clone()):
        MappedFiles().let_go(tensor)
        assert torch.equal(tensor, expected)


@pytest.mark.parametrize(("said", "kept"), [(None, "128"), ("8", "8")])
def test_few_kernels_are_kept_unless_the_user_says_how_many(
    said: str | None, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    monkeypatch.setenv(name, said or "")
    if said is None:
        monkeypatch.delenv(name)
    keep_few_kernels()
    assert os.environ[name] == kept


@pytest.mark.usefixtures("library")
def test_weights_count_once_whatever_their_layout(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path, torch.float32)
    model.lm_head.weight = model.get_input_embeddings().weight
    before = bytes_of_weights(model)
    assert before == sum(one.numel() * one.element_size() for one in model.parameters())
    Packer(model, least=0).pack(model)
    assert bytes_of_weights(model) == before
