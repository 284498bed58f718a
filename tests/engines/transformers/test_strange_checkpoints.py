"""Checkpoints from elsewhere: right numbers or one line."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.formats.transformers import TEXT_LENGTHS
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import RollingLoglikelihood
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import TransformersFactory
from tests.support.lines import naming
from tests.support.tiny import bytelevel_tokenizer, pickle_weights, tiny_causal, tiny_masked

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


def test_names_from_a_wrapper_give_the_same_score(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    plain = tiny_causal(tmp_path / "plain")
    wrapped = tiny_causal(tmp_path / "wrapped")
    tensors = load_file(wrapped / "model.safetensors")
    named = {f"module._orig_mod.{name}": tensor for name, tensor in tensors.items()}
    save_file(named, wrapped / "model.safetensors", {"format": "pt"})
    assert score(wrapped) == score(plain)


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
    with pytest.raises(CheckpointError, match=r"pip install|before its quantization") as caught:
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
    with pytest.raises(CheckpointError, match=naming("rope_type", "'su'")):
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


def test_a_model_type_that_transformers_does_not_know_yet_says_to_update_it(tmp_path: Path) -> None:
    folder = changed(tiny_causal(tmp_path), model_type="xyz", architectures=["XyzForCausalLM"])
    with pytest.raises(CheckpointError, match=naming("'xyz'", "update transformers")):
        opened(folder)


def test_a_note_says_which_of_two_weights_that_differ_is_read(tmp_path: Path) -> None:
    plain = tiny_causal(tmp_path / "plain")
    both, same = tiny_causal(tmp_path / "both"), tiny_causal(tmp_path / "same")
    for folder, seed in ((both, 1), (same, 0)):
        other = tiny_causal(tmp_path / f"other-{seed}", seed=seed)
        pickle_weights(other)
        (folder / "pytorch_model.bin").write_bytes((other / "pytorch_model.bin").read_bytes())
    assert score(both) == score(same) == score(plain)
    assert [note for note in opened(same).notes if "is not read" in note] == []
    (note,) = [note for note in opened(both).notes if "is not read" in note]
    assert naming("those of model.safetensors", "pytorch_model.bin").search(note)


def test_an_end_token_that_the_tokenizer_adds_is_left_out_with_a_note(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    plain, folder = tiny_causal(tmp_path / "plain"), tiny_causal(tmp_path / "m")
    tokenizer = bytelevel_tokenizer()
    bos, eos = tokenizer.bos_token, tokenizer.eos_token
    known = [(bos, tokenizer.bos_token_id), (eos, tokenizer.eos_token_id)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(f"{bos} $A {eos}", special_tokens=known)
    tokenizer.save_pretrained(folder)
    assert score(folder) == pytest.approx(score(plain), abs=1e-4)
    assert any(naming(repr(eos), "left out").search(note) for note in opened(folder).notes)


def tekken(folder: Path) -> Path:
    """A model with Mistral's own file of tokens alone."""
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    table = {
        "config": {
            "pattern": r"[^\s]+|\s+",
            "num_vocab_tokens": 256,
            "default_vocab_size": 276,
            "default_num_special_tokens": 20,
            "version": "v3",
        },
        "vocab": [
            {"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode(), "token_str": None}
            for byte in range(256)
        ],
        "special_tokens": [
            {"rank": rank, "token_str": token, "is_control": True} for rank, token in enumerate(special)
        ],
    }
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    (folder / "tekken.json").write_text(json.dumps(table), encoding="utf-8")
    return folder


def test_tekken_alone_is_a_tokenizer(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    folder = tekken(tiny_causal(tmp_path))
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = [1, *(20 + byte for byte in TEXT.encode())]  # after 20 special tokens
    with torch.no_grad():
        logprobs = model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
    assert score(folder) == pytest.approx(
        sum(float(logprobs[place, token]) for place, token in enumerate(ids[1:])), abs=1e-3
    )
    assert [note for note in opened(folder).notes if "tekken.json" in note]


VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION |= {"image_size": 28, "patch_size": 14}
SIZE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZE |= {"num_key_value_heads": 2, "head_dim": 8}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}

MULTIMODAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gemma3": ({"sliding_window": 16}, {**VISION, "model_type": "siglip_vision_model"}),
    "llama4": (
        {"intermediate_size_mlp": 64, "num_local_experts": 2, "attention_chunk_size": 64},
        {**VISION, "intermediate_size": 128, "vision_output_dim": 32, "projector_input_dim": 32}
        | {"projector_output_dim": 32},
    ),
    "qwen3_5": (
        {**LINEAR, "layer_types": ["linear_attention", "full_attention"]},
        {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32},
    ),
    "mllama": (
        {"num_hidden_layers": 3, "cross_attention_layers": [1]},
        {**VISION, "attention_heads": 2, "num_global_layers": 1, "vision_output_dim": 96, "max_num_tiles": 2}
        | {"intermediate_layers_indices": [0], "supported_aspect_ratios": [[1, 1], [1, 2]]},
    ),
}


def multimodal(folder: Path, kind: str, text: dict[str, Any], vision: dict[str, Any], **more: Any) -> Path:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    tokenizer = bytelevel_tokenizer()
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    text = {**SIZE, "vocab_size": len(tokenizer), "max_position_embeddings": 128, **ids, **text}
    config = AutoConfig.for_model(kind, text_config=text, vision_config=vision, **more)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", MULTIMODAL)
def test_the_language_model_of_a_multimodal_checkpoint_scores_texts_as_a_plain_loop(
    kind: str, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = multimodal(tmp_path / "m", kind, *MULTIMODAL[kind])
    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForCausalLM.from_pretrained(folder).eval(),
    )
    ids = [tokenizer.bos_token_id, *tokenizer(TEXT, add_special_tokens=False)["input_ids"]]
    with torch.no_grad():
        logprobs = model(torch.tensor([ids[:-1]]), use_cache=False).logits[0].float().log_softmax(-1)
    expected = sum(float(logprobs[place, token]) for place, token in enumerate(ids[1:]))
    assert score(folder) == pytest.approx(expected, abs=1e-3)
    assert resolve(str(folder), seq_len=None)[0].seq_len == 128


def test_a_multimodal_checkpoint_that_transformers_has_no_language_model_for_names_a_server(
    tmp_path: Path,
) -> None:
    folder = changed(
        tiny_causal(tmp_path),
        model_type="llava",
        text_config={},
        architectures=["LlavaForConditionalGeneration"],
    )
    with pytest.raises(CheckpointError, match=r"multimodal.*vllm:PATH"):
        opened(folder)


def test_the_multimodal_types_are_those_that_transformers_takes_with_their_lengths() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    lengths = {}
    for kind in TEXT_LENGTHS:
        assert kind in CAUSAL
        lengths[kind] = CONFIG_MAPPING[kind]().get_text_config().max_position_embeddings
    assert lengths == TEXT_LENGTHS
