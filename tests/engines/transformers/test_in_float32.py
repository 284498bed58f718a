"""Float32 arithmetic with weights in half precision, against a model whose weights are float32."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_touchstone.engines.transformers import in_float32 as module
from pytest_touchstone.engines.transformers.in_float32 import in_float32
from tests.support.families import CAUSAL, MAMBA, MASKED, SEQ_LEN, causal_of
from tests.support.tiny import tiny_adapter, tiny_causal, tiny_masked

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
