"""Quantized checkpoints score as Transformers computes them, or one true line says why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, RollingLoglikelihood
from tests.engines.transformers.test_strange_checkpoints import TEXT, changed, opened
from tests.support.engines import engine_for
from tests.support.tiny import tiny_causal

TEXTS = (TEXT, "She read the answer.", f"{TEXT} {TEXT}")


def plain_scores(folder: Path) -> list[float]:
    """The log-probabilities of the texts by a plain loop over Transformers' own model."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model = model if getattr(model, "hf_quantizer", None) else model.float()
    scores = []
    for text in TEXTS:
        ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]
        with torch.no_grad():
            logprobs = model(torch.tensor([ids[:-1]]), use_cache=False).logits[0].float().log_softmax(-1)
        scores.append(sum(float(logprobs[place, token]) for place, token in enumerate(ids[1:])))
    return scores


def scores_of(engine: Any) -> list[float]:
    return [answer.logprob for answer in engine.answer([RollingLoglikelihood(text) for text in TEXTS])]


def check(folder: Path) -> Any:
    """Hold an engine's scores against the plain loop, and return it."""
    engine = opened(folder)
    assert scores_of(engine) == pytest.approx(plain_scores(folder), abs=1e-3)
    (text,) = engine.answer([Generate("The river was", max_new_tokens=4)])
    assert text.samples[0].tokens > 0
    return engine


def rewritten(folder: Path, change: Callable[[str, Any], dict[str, Any]], **config: Any) -> Path:
    """Write tensors and config of a checkpoint again."""
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    tensors = [change(name, tensor) for name, tensor in load_file(file).items()]
    save_file({name: one for part in tensors for name, one in part.items()}, file, {"format": "pt"})
    return changed(folder, **config)


def mxfp4(folder: Path) -> Path:
    """gpt-oss as it is published: experts in blocks of 4-bit numbers, everything else in bfloat16."""
    import torch

    config = {"head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1, "hidden_size": 64}
    made = tiny_causal(folder, model_type="gpt_oss", intermediate_size=64, **config)
    numbers = torch.Generator().manual_seed(3)

    def packed(name: str, tensor: Any) -> dict[str, Any]:
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            return {name: tensor.bfloat16()}
        experts, inputs, outputs = tensor.shape
        shape = experts, outputs, inputs // 32
        blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=numbers)
        scales = torch.randint(120, 124, shape, dtype=torch.uint8, generator=numbers)
        return {f"{name}_blocks": blocks, f"{name}_scales": scales}

    plain = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    return rewritten(
        made,
        packed,
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": plain},
        dtype="bfloat16",
    )


def fp8(folder: Path, *, scales: bool = True) -> Path:
    """8-bit floating-point weights in blocks with a scale each, as DeepSeek's and Qwen's are published."""
    import torch

    def packed(name: str, tensor: Any) -> dict[str, Any]:
        if not name.endswith("proj.weight"):
            return {name: tensor.bfloat16()}
        outputs, inputs = tensor.shape
        blocks = tensor.view(outputs // 16, 16, inputs // 16, 16)
        scale = blocks.abs().amax((1, 3)) / 448
        weight = (blocks / scale[:, None, :, None]).view(outputs, inputs).to(torch.float8_e4m3fn)
        return {name: weight, **({f"{name}_scale_inv": scale} if scales else {})}

    quantization = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16]}
    return rewritten(tiny_causal(folder), packed, quantization_config=quantization)


def compressed(folder: Path, *, form: str, bits: int, kind: str, group: int | None, dynamic: bool) -> Path:
    """A checkpoint as llm-compressor saves it."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationArgs,
        QuantizationConfig,
        QuantizationScheme,
        apply_quantization_config,
    )
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    strategy = {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
    weights = QuantizationArgs(num_bits=bits, type=kind, symmetric=True, **strategy)
    inputs = QuantizationArgs(num_bits=bits, type=kind, symmetric=True, strategy="token", dynamic=True)
    scheme = QuantizationScheme(
        targets=["Linear"], weights=weights, input_activations=inputs if dynamic else None
    )
    config = QuantizationConfig(
        config_groups={"group_0": scheme}, ignore=["lm_head"], quantization_status="frozen", format=form
    )
    model = AutoModelForCausalLM.from_pretrained(tiny_causal(folder))
    apply_quantization_config(model, config)
    largest = 448 if kind == "float" else 2 ** (bits - 1) - 1
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            rows = module.weight.data.view(module.weight.shape[0], -1, group or module.weight.shape[1])
            module.weight_scale.data.copy_(rows.abs().amax(-1) / largest)
    ModelCompressor(quantization_config=config).compress_model(model)
    tensors = {name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    table = {**json.loads(config.model_dump_json()), "quant_method": "compressed-tensors"}
    return changed(folder, quantization_config={**table, "quantization_status": "compressed"})


def test_mxfp4_is_scored_as_transformers_dequantizes_it(tmp_path: Path) -> None:
    check(mxfp4(tmp_path / "m"))


def test_weights_that_are_dequantized_to_two_types_are_computed_in_the_one_asked_for(tmp_path: Path) -> None:

    folder = fp8(tmp_path / "m")
    engine = opened(folder)
    assert {str(tensor.dtype) for tensor in engine.loaded.model.parameters()} == {"torch.float32"}
    # Transformers loads it in both types, and cannot multiply them.
    assert scores_of(engine) == pytest.approx(plain_scores(folder), abs=1e-3)


def test_a_quantization_that_cannot_be_computed_is_one_line_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"cannot compute its quantization \(fp8\).*--eval-dtype"
    ) as raised:
        opened(fp8(tmp_path / "m", scales=False))
    assert "\n" not in str(raised.value)


COMPRESSED: dict[str, dict[str, Any]] = {
    "W4A16": {"form": "pack-quantized", "bits": 4, "kind": "int", "group": 32, "dynamic": False},
    "W8A8": {"form": "int-quantized", "bits": 8, "kind": "int", "group": None, "dynamic": True},
    "FP8": {"form": "float-quantized", "bits": 8, "kind": "float", "group": None, "dynamic": True},
}


@pytest.mark.parametrize("scheme", COMPRESSED)
def test_compressed_tensors_are_scored_as_transformers_decompresses_them(scheme: str, tmp_path: Path) -> None:
    pytest.importorskip("compressed_tensors")
    check(compressed(tmp_path / "m", **COMPRESSED[scheme]))


@pytest.mark.parametrize("bits", [4, 8])
def test_bitsandbytes_is_scored_as_transformers_computes_it(bits: int, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    folder = tiny_causal(tmp_path / "m")
    config = BitsAndBytesConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8)
    AutoModelForCausalLM.from_pretrained(folder, quantization_config=config).save_pretrained(folder)
    check(folder)


def test_torchao_is_scored_as_transformers_computes_it(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import AutoModelForCausalLM, TorchAoConfig

    folder = tiny_causal(tmp_path / "m")
    config = TorchAoConfig(Int8WeightOnlyConfig())
    AutoModelForCausalLM.from_pretrained(folder, quantization_config=config).save_pretrained(folder)
    check(folder)


def rounding(model: Any, *, over: tuple[int, ...] | None) -> Any:
    """Make a model round the inputs of its linear layers to 8 bits: by token, or by all tokens of a pass."""
    import torch

    class Kind:
        quant_method = "w8a8"

    def rounded(_module: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden = given[0]
        largest = (
            hidden.abs().amax(-1, keepdim=True) if over is None else hidden.abs().amax(over, keepdim=True)
        )
        step = largest.clamp(min=1e-6) / 127
        return ((hidden / step).round() * step,)

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            module.register_forward_pre_hook(rounded)
    model.hf_quantizer, model.config.quantization_config = object(), Kind()
    return model


@pytest.mark.parametrize("over", [None, (0, 1)])
def test_what_rounds_activations_is_computed_text_by_text_and_a_note_says_why(
    over: tuple[int, ...] | None, tmp_path: Path
) -> None:
    import torch

    from pytest_touchstone.checkpoints import resolve
    from pytest_touchstone.engines.settings import ModelSettings
    from pytest_touchstone.engines.transformers.causal import CausalEngine
    from pytest_touchstone.engines.transformers.pool import load_weights

    (info,) = resolve(str(tiny_causal(tmp_path / "m", seq_len=512)), seq_len=None)
    settings = ModelSettings(device="cpu", threads=1)
    loaded = load_weights(info, settings)
    rounding(loaded.model, over=over)
    engine = CausalEngine(info, loaded, settings)
    assert engine.company.rows == "one"
    assert any("its quantization (w8a8) rounds" in note for note in engine.notes)
    alone = []
    for text in TEXTS:
        ids = [loaded.tokenizer.bos_token_id, *loaded.tokenizer(text, add_special_tokens=False)["input_ids"]]
        with torch.no_grad():
            logprobs = loaded.model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
        alone.append(sum(float(logprobs[place, token]) for place, token in enumerate(ids[1:])))
    assert scores_of(engine) == pytest.approx(alone, abs=1e-3)


def test_a_quantized_model_that_reads_in_both_directions_is_refused(tmp_path: Path) -> None:
    from pytest_touchstone.checkpoints import resolve
    from pytest_touchstone.engines.settings import ModelSettings
    from pytest_touchstone.engines.transformers.causal import CausalEngine
    from pytest_touchstone.engines.transformers.pool import load_weights

    (info,) = resolve(str(tiny_causal(tmp_path / "m", is_causal=False)), seq_len=None)
    settings = ModelSettings(device="cpu", threads=1)
    loaded = load_weights(info, settings)
    rounding(loaded.model, over=None)
    with pytest.raises(CheckpointError, match="is_causal is false"):
        CausalEngine(info, loaded, settings)


def test_weights_that_come_with_the_first_pass_are_there_before_the_model_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_touchstone.engines.transformers import loading

    folder = tiny_causal(tmp_path / "m")
    expected = scores_of(engine_for(folder))
    read = loading._model

    def compressed_model(*given: Any) -> Any:
        model, report = read(*given)
        layer = model.model.layers[0].self_attn.q_proj
        weight = layer.weight
        del layer.weight

        def decompress(_module: Any, _given: Any) -> None:
            layer.weight = weight
            hook.remove()

        hook = model.register_forward_pre_hook(decompress)
        model.hf_quantizer = object()
        model.config.quantization_config = type("Kind", (), {"quant_method": "packed"})
        return model, report

    monkeypatch.setattr(loading, "_model", compressed_model)
    engine = opened(changed(folder, quantization_config={"quant_method": "mxfp4"}))
    assert scores_of(engine) == pytest.approx(expected, abs=1e-4)
