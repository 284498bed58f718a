"""Checkpoints from elsewhere: right numbers or one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import RollingLoglikelihood
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import TransformersFactory
from tests.support.tiny import bytelevel_tokenizer, tiny_causal, tiny_masked

TEXT = "The quick brown fox jumps over the lazy dog."


def changed(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")
    return folder


def opened(folder: Path) -> Any:
    (info,) = resolve(str(folder), seq_len=None)
    return TransformersFactory().open(info, ModelSettings(device="cpu", threads=1))


def score(folder: Path, text: str = TEXT) -> float:
    engine = opened(folder)
    (answer,) = engine.answer([RollingLoglikelihood(text)])
    engine.close()
    return float(answer.logprob)


def test_names_from_a_wrapper_give_the_same_score_and_a_note(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    plain = tiny_causal(tmp_path / "plain")
    wrapped = tiny_causal(tmp_path / "wrapped")
    tensors = load_file(wrapped / "model.safetensors")
    named = {f"module._orig_mod.{name}": tensor for name, tensor in tensors.items()}
    save_file(named, wrapped / "model.safetensors", {"format": "pt"})
    assert score(wrapped) == score(plain)
    engine = opened(wrapped)
    assert len(engine.notes) == 1
    assert "wrapper" in engine.notes[0]
    engine.close()


@pytest.mark.parametrize("flag", ["return_dict", "torchscript", "output_attentions", "output_hidden_states"])
def test_what_a_config_says_of_the_form_of_outputs_does_not_matter(flag: str, tmp_path: Path) -> None:
    plain = score(tiny_causal(tmp_path / "plain"))
    assert score(changed(tiny_causal(tmp_path / "other"), **{flag: flag != "return_dict"})) == plain


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "compressed-tensors", "torchao", "quanto"])
def test_a_quantization_that_needs_another_package_is_one_line_that_names_it(
    method: str, tmp_path: Path
) -> None:
    settings = {"quant_method": method, "bits": 4, "load_in_4bit": method == "bitsandbytes"}
    folder = changed(tiny_causal(tmp_path), quantization_config=settings)
    with pytest.raises(CheckpointError, match=r"; install what is missing|before its quantization") as caught:
        opened(folder)
    assert "\n" not in str(caught.value)


def test_a_quantization_that_nobody_knows_is_noted_and_its_whole_numbers_refused(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = changed(tiny_causal(tmp_path), quantization_config={"quant_method": "exl2"})
    engine = opened(folder)
    assert any("Unknown quantization type" in note for note in engine.notes)
    engine.close()
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({**tensors, name: tensors[name].to(torch.int8)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=name):
        opened(folder)


def test_a_rope_type_that_nobody_knows_is_named(tmp_path: Path) -> None:
    rope = {"rope_type": "su", "factor": 8.0, "rope_theta": 10000.0}
    with pytest.raises(CheckpointError, match="rope_type is 'su', which Transformers does not know"):
        opened(changed(tiny_causal(tmp_path / "m"), rope_parameters=rope))


def test_an_expert_without_one_of_its_tensors_is_one_line(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_causal(tmp_path / "m", model_type="mixtral", num_local_experts=4)
    tensors = load_file(folder / "model.safetensors")
    del tensors[next(name for name in tensors if "experts.2.w1" in name)]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="experts, are not all there"):
        opened(folder)


def test_a_model_without_a_table_of_embeddings_is_one_line(tmp_path: Path) -> None:
    sizes = {"d_model": 32, "d_latents": 32, "num_latents": 8, "num_blocks": 1, "vocab_size": 400}
    heads = {
        "num_self_attention_heads": 2,
        "num_cross_attention_heads": 2,
        "qk_channels": 32,
        "v_channels": 32,
    }
    folder = tiny_masked(tmp_path, model_type="perceiver", num_self_attends_per_block=1, **sizes, **heads)
    with pytest.raises(CheckpointError, match="no plain table of embeddings") as caught:
        opened(folder)
    assert "\n" not in str(caught.value)


def test_a_model_that_fails_when_it_is_tried_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no\nsuch\nshape")

    folder = tiny_causal(tmp_path)
    monkeypatch.setattr(LlamaForCausalLM, "forward", broken)
    with pytest.raises(CheckpointError, match="fails when it is tried") as caught:
        opened(folder)
    assert "\n" not in str(caught.value)


DECODER: dict[str, Any] = {
    **{"d_model": 32, "decoder_layers": 1, "encoder_layers": 1, "decoder_ffn_dim": 32, "encoder_ffn_dim": 32},
    **{"decoder_attention_heads": 4, "encoder_attention_heads": 4, "max_position_embeddings": 32},
    **{"is_decoder": True, "is_encoder_decoder": False, "pad_token_id": 0, "vocab_size": 400},
}


@pytest.mark.parametrize("model_type", ["bart", "mbart", "trocr", "whisper"])
def test_a_decoder_with_hidden_rows_scores_its_longest_text_as_the_model_does(
    model_type: str, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {**DECODER, "max_target_positions": 32} if model_type == "whisper" else DECODER
    tokenizer = bytelevel_tokenizer()
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes)).eval()
    with torch.no_grad():
        for one in model.parameters():
            if one.dim() > 1:
                one.normal_(0, 0.3)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (info,) = resolve(str(tmp_path), seq_len=None)
    assert info.seq_len == 32
    ids = tokenizer(TEXT * 3)["input_ids"][:32]
    text = tokenizer.decode(ids)
    assert tokenizer(text)["input_ids"] == ids
    with torch.no_grad():
        inputs = torch.tensor([[tokenizer.bos_token_id, *ids[:-1]]])
        logprobs = model(inputs, use_cache=False).logits[0].log_softmax(-1)
    expected = logprobs.gather(1, torch.tensor(ids)[:, None]).sum().item()
    assert score(tmp_path, text) == pytest.approx(expected, abs=1e-3)
