"""What is guaranteed in half precision: the same calls give the same bytes, other batches only other rounding.

It holds where the processor multiplies such numbers, and where they are computed in float32 instead.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import Generate, GenerateAnswer, Request
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from pytest_touchstone.engines.transformers import cpu, pool
from pytest_touchstone.engines.transformers.agreement import FACTOR
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.cpu import processor
from pytest_touchstone.engines.transformers.cpu import processor as module
from pytest_touchstone.engines.transformers.cpu.packing import Packer
from pytest_touchstone.engines.transformers.cpu.processor import in_float32, widen_attention
from pytest_touchstone.engines.transformers.fused_layers import fuse, fuse_steps
from pytest_touchstone.engines.transformers.kv_cache import KeyValues, SlotCache
from pytest_touchstone.engines.transformers.pool import load_weights
from pytest_touchstone.engines.transformers.split_attention import split_attention
from tests.support.engines import ON_CPU, engine_for
from tests.support.families import CAUSAL, MAMBA, MASKED, SEQ_LEN, SHOTS, causal_of
from tests.support.lines import naming
from tests.support.scoring import SCORED, error, logprobs
from tests.support.tiny import CORPUS, tiny_adapter, tiny_causal, tiny_masked

HALF: tuple[Dtype, ...] = ("bfloat16", "float16")

ASKED: list[Request] = [
    Generate(shots + text[:size], max_new_tokens=12)
    for shots in ("", SHOTS)
    for text, size in zip(CORPUS, (5, 17, 40, 9, 20), strict=False)
]


def texts(engine: CausalEngine, requests: Sequence[Request]) -> list[str]:
    return [one.samples[0].text for one in engine.answer(requests) if isinstance(one, GenerateAnswer)]


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("dtype", HALF)
def test_the_same_calls_give_the_same_bytes(dtype: Dtype, llama: Path) -> None:
    first, second = engine_for(llama, dtype=dtype), engine_for(llama, dtype=dtype)
    assert first.answer(SCORED) == second.answer(SCORED)
    assert first.answer(ASKED) == second.answer(ASKED)
    assert len(set(texts(first, ASKED))) > 1


@ON_CPU
@pytest.mark.parametrize("half", ["in float32"], indirect=True)
@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("dtype", HALF)
def test_packed_models_keep_what_is_guaranteed(dtype: Dtype, llama: Path) -> None:
    """All products and attention in float32, as a checkpoint is opened."""
    first, second = quick(llama, dtype), quick(llama, dtype)
    assert first.answer(SCORED) == second.answer(SCORED)
    assert first.answer(ASKED) == second.answer(ASKED)
    alone = engine_for(llama, dtype=dtype, together=False, batch=1)
    with in_float32():
        exact = logprobs(alone, SCORED)
    assert 0 < error(logprobs(first, SCORED), exact) <= FACTOR * error(logprobs(alone, SCORED), exact)
    assert first.notes == []


@ON_CPU
def test_without_memory_for_float32_weights_stay_and_a_note_says_so(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (info,) = resolve(str(llama), seq_len=None)
    settings = ModelSettings(device="cpu", threads=1, dtype="bfloat16", processes=3)
    asked: list[int] = []

    def full(_model: object, *, processes: int) -> bool:
        asked.append(processes)
        return False

    monkeypatch.setattr(cpu, "has_room_to_pack", full)
    monkeypatch.setattr(cpu, "Packer", lambda _: pytest.fail("packed without memory"))
    engine = pool.engine_of(info, pool.load_fused(info, settings), settings)
    (note,) = engine.notes
    assert naming(llama, "bfloat16", "memory").search(note)
    assert asked == [3]


def quick(folder: Path, dtype: Dtype) -> CausalEngine:
    """An engine whose weights are all packed."""
    (info,) = resolve(str(folder), seq_len=None)
    settings = ModelSettings(device="cpu", threads=1, dtype=dtype)
    loaded = load_weights(info, settings)
    assert fuse(loaded.model) == len(loaded.model.model.layers)
    assert Packer(loaded.model, least=0).pack(loaded.model) > 0
    assert fuse_steps(loaded.model)
    widen_attention()
    return CausalEngine(info, loaded, settings)


@pytest.mark.parametrize("half", ["in float32"], indirect=True)
@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_transformers_attention_is_that_of_float32_rounded_once(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    widen_attention()
    attend = ALL_ATTENTION_FUNCTIONS["sdpa"]
    tensors = [torch.randn(2, heads, 7, 16).to(dtype) for heads in (4, 2, 2)]
    mask = torch.zeros(2, 1, 7, 7, dtype=dtype).masked_fill_(~torch.ones(7, 7).tril().bool(), -3e4)
    layer = torch.nn.Module()
    layer.num_key_value_groups = 2  # type: ignore[assignment]
    for masked in (None, mask):
        wide = [one.float() for one in (*tensors, mask)]
        expected, _ = attend(layer, *wide[:3], None if masked is None else wide[3], is_causal=masked is None)
        found, _ = attend(layer, *tensors, masked, is_causal=masked is None)
        assert torch.equal(found, expected.to(dtype))
    monkeypatch.setattr(processor, "multiplies", lambda _: True)
    assert attend(layer, *tensors, mask)[0].dtype is dtype


@pytest.mark.parametrize("half", ["in float32"], indirect=True)
@pytest.mark.usefixtures("half")
def test_keys_and_values_at_work_are_held_as_they_are_multiplied() -> None:
    made = torch.randn(1, 2, 3, 4).bfloat16()
    slots = SlotCache(KeyValues((5, 6, 7), ((made, made),)))
    assert slots.prefix.layers[0][0].dtype is torch.float32
    slots.set_write_target(0, 1, torch.tensor([[0]]), 1)
    key, value = slots.store(made[:, :, :1], made[:, :, 1:2], 0)
    assert key.dtype is value.dtype is torch.float32
    assert torch.equal(value, made[:, :, 1:2].float())


@pytest.mark.usefixtures("half")
def test_a_model_gets_its_own_type_from_the_cache_and_attends_to_what_is_stored() -> None:
    made = torch.randn(1, 2, 3, 4).bfloat16()
    slots = SlotCache(KeyValues((5, 6, 7), ((made, made),)))
    for column in (0, 1):
        slots.set_write_target(0, 1, torch.tensor([[column]]), column + 1)
        new = made[:, :, column : column + 1]
        keys, values = slots.update(new, new, 0)
    assert keys.dtype is values.dtype is torch.bfloat16
    torch.nn.functional.linear(keys, torch.ones(8, 4).bfloat16())
    query, mask = torch.randn(1, 2, 1, 4).bfloat16(), torch.zeros(1, 1, 1, 2).bfloat16()
    found, _ = split_attention(None, query, keys, values, mask)
    seen = torch.cat((made, made[:, :, :2]), dim=2).float()
    expected = torch.nn.functional.scaled_dot_product_attention(query.float(), seen, seen).transpose(1, 2)
    assert found.dtype is torch.bfloat16
    assert torch.allclose(found.float(), expected, atol=0.03)


@pytest.mark.parametrize(
    ("abilities", "machine", "expected"),
    [
        ({"avx2": True, "avx512_bf16": False}, "x86_64", (False, False)),
        ({"avx512_bf16": True}, "x86_64", (True, False)),
        ({"amx_bf16": True, "avx512_fp16": True}, "AMD64", (True, True)),
        ({"avx512_f": True, "avx_ne_convert": True}, "x86_64", (False, False)),
        ({}, "aarch64", (True, True)),
    ],
)
def test_the_processors_instructions_say_which_types_it_multiplies(
    abilities: dict[str, bool],
    machine: str,
    expected: tuple[bool, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities, raising=False)
    find = processor.multiplies.__wrapped__
    assert (find("torch.bfloat16"), find("torch.float16")) == expected
    assert find("torch.float32")


def test_an_older_torch_is_asked_for_one_kind_of_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    for there in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda there=there: there, raising=False)
        assert processor.multiplies.__wrapped__("torch.bfloat16") is there


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("dtype", HALF)
def test_the_order_of_requests_within_a_call_changes_no_score(dtype: Dtype, llama: Path) -> None:
    mixed = random.Random(3).sample(SCORED, len(SCORED))
    assert logprobs(engine_for(llama, dtype=dtype), mixed) == logprobs(engine_for(llama, dtype=dtype), SCORED)


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("dtype", HALF)
def test_other_batches_differ_by_rounding_only(dtype: Dtype, llama: Path) -> None:
    """No way of batching is further from float32 arithmetic than twice the error of sequences by themselves."""
    alone = engine_for(llama, dtype=dtype, together=False, batch=1)
    usual = logprobs(alone, SCORED)
    with in_float32():
        exact = logprobs(alone, SCORED)
    ways = {batch: logprobs(engine_for(llama, dtype=dtype, batch=batch), SCORED) for batch in (1, 2, 5, None)}
    one_by_one = engine_for(llama, dtype=dtype)
    ways[0] = {request: logprobs(one_by_one, [request])[request] for request in reversed(SCORED)}
    assert error(usual, exact) > 0
    assert any(found != usual for found in ways.values())
    for batch, found in ways.items():
        assert error(found, exact) <= FACTOR * error(usual, exact), batch


@pytest.fixture
def _asked_anew() -> Iterator[None]:
    processor.mkl_is_faster.cache_clear()
    yield
    processor.mkl_is_faster.cache_clear()


@pytest.mark.usefixtures("_asked_anew")
@pytest.mark.parametrize(
    ("description", "windows", "faster"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\n", "", True),
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\n", "", False),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", "", False),
        (None, "Intel64 Family 6 Model 173 Stepping 1, GenuineIntel", True),
        (None, "AMD64 Family 26 Model 2 Stepping 1, AuthenticAMD", False),
        (None, "arm", False),
    ],
)
def test_mkl_computes_on_intels_processors(
    description: str | None, windows: str, faster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    path = tmp_path / "cpuinfo"
    if description is not None:
        path.write_text(description, encoding="utf-8")
    monkeypatch.setattr(processor, "DESCRIPTION", path)
    monkeypatch.setattr("platform.processor", lambda: windows)
    assert processor.mkl_is_faster() == (faster and torch.backends.mkl.is_available())


@pytest.mark.usefixtures("_asked_anew")
def test_a_torch_without_mkl_uses_the_other_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert not processor.mkl_is_faster()


OTHERS: dict[str, dict[str, Any]] = {
    "mamba": MAMBA,
    "mixtral": {"num_local_experts": 4},
    "gptj": {"rotary_dim": 8},
    "bloom": {},
    "falcon": {},
    "stablelm": {},
    "olmo2": {},
    "granite": {},
    "cohere": {"logit_scale": 0.25},
}

IDS = torch.tensor([[3, 17, 42, 7, 99, 120, 5, 60, 11, 200, 31, 8]])


def folder_of(name: str, tmp_path: Path) -> tuple[Path, str]:
    """A tiny checkpoint, and what kind it is."""
    if name in MASKED:
        return tiny_masked(tmp_path / "c", **MASKED[name]), "masked"
    if name in CAUSAL:
        return causal_of(tmp_path, name), "causal"
    return tiny_causal(tmp_path / "c", seq_len=SEQ_LEN, **{"model_type": name, **OTHERS[name]}), "causal"


def loaded(folder: Path, kind: str, dtype: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    auto = AutoModelForMaskedLM if kind == "masked" else AutoModelForCausalLM
    return auto.from_pretrained(folder, dtype=dtype).eval()


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=IDS).logits
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*CAUSAL, *OTHERS, *MASKED])
def test_logits_are_those_of_float32_weights(name: str, dtype: Any, tmp_path: Path) -> None:
    folder, kind = folder_of(name, tmp_path)
    half, wide = loaded(folder, kind, dtype), loaded(folder, kind, torch.float32)
    kept = [*half.named_parameters(), *half.named_buffers()]
    before = {name: one.clone() for name, one in kept}
    ordinary = logits(half)
    with torch.no_grad():
        for key, one in (*wide.named_parameters(), *wide.named_buffers()):
            one.copy_(before[key])
    with in_float32():
        found = logits(half)
    assert found.dtype is torch.float32
    assert float((found - logits(wide)).abs().max()) < 2e-5
    assert not torch.equal(found, ordinary.float())
    assert torch.equal(logits(half), ordinary)
    assert all(one.dtype is before[name].dtype and torch.equal(one, before[name]) for name, one in kept)


def test_an_adapter_is_on_there_too(tmp_path: Path) -> None:
    from pytest_touchstone.checkpoints import resolve
    from pytest_touchstone.engines.transformers.adapters import Adapters

    base = causal_of(tmp_path, "llama")
    adapter = tiny_adapter(tmp_path / "a", base)
    (info,) = resolve(str(adapter), seq_len=None)
    half, wide = loaded(base, "causal", torch.bfloat16), loaded(base, "causal", torch.float32)
    wide.load_state_dict({name: one.float() for name, one in half.state_dict().items()})
    plain = logits(wide)
    for model in (half, wide):
        adapters = Adapters(model)
        adapters.put_on(adapters.add(info))
    with in_float32():
        found = logits(half)
    assert float((found - logits(wide)).abs().max()) < 2e-5
    assert float((found - plain).abs().max()) > 0.1


def test_one_weight_at_most_is_there_twice(tmp_path: Path) -> None:
    """Of large ones a block, of a table of embeddings the rows looked up."""
    folder = tiny_causal(tmp_path / "c", seq_len=SEQ_LEN, vocab_size=20_000, hidden_size=64)
    model = loaded(folder, "causal", torch.bfloat16)
    assert model.get_output_embeddings().weight.numel() > 4 * module._BLOCK
    sizes: list[int] = []

    class Copies(TorchDispatchMode):
        """Notes the numbers of everything that is made of half precision."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            if "copy" in str(func):
                sizes.append(found.numel())
            return found

    with Copies(), in_float32():
        logits(model)
    largest = max(one.numel() for one in model.model.layers.parameters())
    assert max(sizes) <= max(largest, module._BLOCK)
    assert max(sizes) > module._BLOCK // 2


def test_only_the_thread_that_asks_computes_so(tmp_path: Path) -> None:
    model = loaded(causal_of(tmp_path, "llama"), "causal", torch.bfloat16)
    found: list[Any] = []
    with in_float32():
        beside = threading.Thread(target=lambda: found.append(logits(model).dtype))
        beside.start()
        beside.join()
        assert logits(model).dtype is torch.float32
    assert found == [torch.bfloat16]
    with pytest.raises(ValueError, match="stop"), in_float32():
        raise ValueError("stop")
    assert logits(model).dtype is torch.bfloat16
