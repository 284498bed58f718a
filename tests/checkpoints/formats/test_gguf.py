"""GGUF files: what changes answers is understood or refused by name, and what only describes the file passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.formats.gguf import SPLITS, read_gguf, tokenizer_of
from pytest_touchstone.checkpoints.formats.gguf_metadata import ARCHITECTURES, check_complete, config_values
from pytest_touchstone.core.errors import CheckpointError
from tests.support.gguf_files import model_keys, write

BYTES: dict[str, Any] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}
TENSORS: dict[str, Any] = {"token_embd.weight": [[0.0] * 256], "blk.0.x": [0.0], "blk.1.x": [0.0]}


def model(
    tmp_path: Path,
    more: dict[str, Any] | None = None,
    *,
    architecture: str = "llama",
    name: str = "model.gguf",
    tensors: tuple[str, ...] = (),
) -> Path:
    keys = model_keys(architecture) | BYTES | (more or {})
    return write(tmp_path / name, keys, TENSORS | {each: [1.0] for each in tensors})


def fault(path: Path) -> str:
    with pytest.raises(CheckpointError) as raised:
        resolve(str(path), seq_len=None)
    text = str(raised.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        ("llama", "attention.scale", 0.1),
        ("llama", "logit_scale", 2.0),
        ("llama", "residual_scale", 0.5),
        ("llama", "embedding_scale", 12.0),
        ("llama", "attn_logit_softcapping", 50.0),
        ("llama", "final_logit_softcapping", 30.0),
        ("llama", "attention.sliding_window", 64),
        ("llama", "attention.causal", False),
        ("llama", "attention.value_length", 16),
        ("llama", "attention.head_count_kv", [2, 4]),
        ("llama", "expert_count", 8),
        ("llama", "pooling_type", 1),
        ("llama", "use_parallel_residual", True),
        ("llama", "rope.dimension_count", 4),
        ("llama", "rope.dimension_sections", [1, 2, 1]),
        ("llama", "rope.scaling.type", "longrope"),
        ("llama", "rope.scaling.attn_factor", 1.2),
        ("llama", "rope.freq_base_swa", 5.0),
        ("llama", "nextn_predict_layers", 1),
        ("llama", "a_key_of_tomorrow", 0),
        ("llama", "rope.freq_base", "500000"),
        ("llama", "rope.scaling.factor", -4.0),
        ("llama", "attention.head_count", float("inf")),
        ("llama", "embedding_length", float("nan")),
        ("qwen2", "attention.clamp_kqv", 8.0),
        ("qwen3moe", "expert_weights_norm", False),
        ("gemma2", "rope.scaling.factor", 2.0),
        ("gemma3", "attention.sliding_window_pattern", 3),
        ("falcon", "attention.head_count_kv", 4),
        ("bloom", "attention.max_alibi_bias", 4.0),
        ("phi3", "rope.scaling.factor", 2.0),
        ("mamba", "ssm.dt_b_c_rms", True),
    ],
)
def test_a_key_that_would_change_answers_is_named(
    architecture: str, key: str, value: Any, tmp_path: Path
) -> None:
    path = model(tmp_path, {f"{architecture}.{key}": value}, architecture=architecture)
    text = fault(path)
    assert f"{architecture}.{key}" in text
    assert f"llama-server:{path}" in text


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        ("llama", "attention.scale", 8**-0.5),
        ("llama", "attention.causal", True),
        ("llama", "attention.sliding_window", 128),
        ("llama", "attention.key_length", 8),
        ("llama", "attention.value_length", 8),
        ("llama", "expert_count", 0),
        ("llama", "logit_scale", 1.0),
        ("llama", "pooling_type", 0),
        ("llama", "rope.dimension_count", 8),
        ("llama", "rope.scaling.type", "none"),
        ("llama", "rope.scaling.finetuned", True),
        ("llama", "rope.scaling.original_context_length", 64),
        ("llama", "rope.scale_linear", 1.0),
        ("llama", "tensor_data_layout", "Meta AI original pth"),
        ("llama", "vocab_size", 256),
        ("phi3", "rope.scaling.attn_factor", 1.0),
        ("bloom", "attention.max_alibi_bias", 8.0),
        ("bloom", "rope.freq_base", 5.0),
        ("mamba", "attention.head_count", 0),
        ("mamba", "feed_forward_length", 0),
    ],
)
def test_a_key_that_says_what_the_model_does_anyway_passes(
    architecture: str, key: str, value: Any, tmp_path: Path
) -> None:
    resolve(str(model(tmp_path, {f"{architecture}.{key}": value}, architecture=architecture)), seq_len=None)


def test_keys_that_only_describe_the_file_pass(tmp_path: Path) -> None:
    more = {
        **{f"general.{name}": "text" for name in ("name", "author", "license", "url", "base_model.0.name")},
        **{"general.quantization_version": 2, "general.file_type": 7, "general.tags": ["a", "b"]},
        **{
            "quantize.imatrix.file": "i.dat",
            "quantize.imatrix.chunks_count": 9,
            "split.count": 1,
            "split.no": 0,
        },
        **{
            "tokenizer.chat_template": "{{ x }}" * 9999,
            "tokenizer.chat_template.tools": "",
            "someone.by": "me",
        },
        **{
            "tokenizer.ggml.eot_token_id": 1,
            "tokenizer.ggml.fim_pre_token_id": 1,
            "general.sampling.temp": 0.6,
        },
        **{"tokenizer.ggml.add_space_prefix": False, "tokenizer.huggingface.json": "{}"},
    }
    resolve(str(model(tmp_path, more)), seq_len=None)


@pytest.mark.parametrize("name", ["rope_factors_long.weight", "v.patch_embd.weight", "cls.output.weight"])
def test_a_tensor_outside_the_layers_that_has_no_place_is_named(name: str, tmp_path: Path) -> None:
    assert name in fault(model(tmp_path, tensors=(name,)))
    assert "rope_freqs.weight" in fault(model(tmp_path, architecture="qwen2", tensors=("rope_freqs.weight",)))


@pytest.mark.parametrize("architecture", ["t5", "command-r", "gemma", "bert"])
def test_an_architecture_that_transformers_does_not_read_is_named(architecture: str, tmp_path: Path) -> None:
    path = model(tmp_path, architecture=architecture)
    assert f"is of the architecture '{architecture}'" in fault(path)
    assert f"give llama-server:{path}" in fault(path)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"general.type": "adapter"}, "a LoRA adapter for llama.cpp"),
        ({"general.type": "mmproj"}, "give the file of its language model"),
        ({"general.type": "imatrix"}, "statistics for quantizing"),
        ({"general.type": "vocab"}, "a vocabulary alone"),
        ({"general.type": "dataset"}, "no model, but of the type 'dataset'"),
        ({"general.architecture": "clip"}, "give the file of its language model"),
        ({"adapter.type": "lora"}, "a LoRA adapter for llama.cpp"),
        ({"split.count": 3}, "one of 3 parts"),
    ],
)
def test_a_file_that_is_no_whole_language_model_says_what_it_is(
    keys: dict[str, Any], what: str, tmp_path: Path
) -> None:
    assert what in fault(model(tmp_path, keys))


def test_a_part_of_a_model_says_how_to_join_it_with_the_others(tmp_path: Path) -> None:
    text = fault(model(tmp_path, name="x-00002-of-00003.gguf"))
    first = tmp_path / "x-00001-of-00003.gguf"
    assert f"llama-gguf-split --merge {first} MODEL.gguf" in text
    assert f"llama-server:{first}" in text


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"pre": "pre-of-tomorrow"}, "tokenizer.ggml.pre = 'pre-of-tomorrow'"),
        ({"pre": "default"}, "does not name the way to cut a text"),
        ({"model": "bert"}, "a tokenizer of the kind 'bert'"),
        ({"model": "t5"}, "a tokenizer of the kind 't5'"),
        ({"add_space_prefix": True}, "tokenizer.ggml.add_space_prefix = True"),
        ({"remove_extra_whitespaces": True}, "tokenizer.ggml.remove_extra_whitespaces = True"),
        ({"add_sep_token": True}, "tokenizer.ggml.add_sep_token = True"),
        ({"normalizer.lowercase": True}, "tokenizer.ggml.normalizer.lowercase = True"),
        ({"precompiled_charsmap": [1] * 2000}, "tokenizer.ggml.precompiled_charsmap"),
        ({"key_of_tomorrow": False}, "tokenizer.ggml.key_of_tomorrow = False"),
        ({"add_bos_token": "false"}, "tokenizer.ggml.add_bos_token = 'false'"),
        ({"bos_token_id": "1"}, "tokenizer.ggml.bos_token_id = '1'"),
        ({"add_bos_token": True}, "tokenizer.ggml.bos_token_id is not there"),
        ({"pre": "llama-bpe"}, "tokenizer.ggml.bos_token_id is not there"),
    ],
)
def test_a_tokenizer_that_would_cut_texts_otherwise_is_named(
    changes: dict[str, Any], what: str, tmp_path: Path
) -> None:
    more = {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    assert what in fault(model(tmp_path, more))


def test_texts_begin_as_llama_cpp_begins_them_where_the_file_is_silent() -> None:
    def begins(**keys: Any) -> bool:
        said = {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
        return tokenizer_of(Path("x.gguf"), "llama", said).add_bos

    assert begins(model="gpt2", pre="llama-bpe", bos_token_id=0)
    assert begins(model="gpt2", pre="tekken", bos_token_id=0)
    assert not begins(model="gpt2", pre="llama-bpe", add_bos_token=False)
    assert not begins(model="gpt2", pre="qwen2")
    assert begins(model="llama")
    assert not begins(model="llama", add_bos_token=False)
    assert {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "falcon", "starcoder"} < SPLITS.keys()


def test_a_space_before_gemmas_texts_is_refused(tmp_path: Path) -> None:
    keys = {"tokenizer.ggml.model": "llama"}
    assert "add_space_prefix" in fault(model(tmp_path, keys, architecture="gemma2"))
    more = keys | {"tokenizer.ggml.add_space_prefix": False}
    resolve(str(model(tmp_path, more, architecture="gemma2")), seq_len=None)


def test_a_number_that_is_missing_is_no_other_models_default(tmp_path: Path) -> None:
    header = read_gguf(model(tmp_path))
    with pytest.raises(CheckpointError, match=r"no llama\.attention.layer_norm_rms_epsilon"):
        check_complete(tmp_path, header.architecture, header.keys)


def test_scales_that_no_key_names_are_those_of_llama_cpp() -> None:
    for architecture, layers in (("gemma2", 46), ("gemma3", 62)):
        keys = model_keys(architecture, block_count=layers, **{"attention.key_length": 16})
        assert config_values(Path(), architecture, keys, ())["query_pre_attn_scalar"] == 8
        keys[f"{architecture}.block_count"] = 26
        assert config_values(Path(), architecture, keys, ())["query_pre_attn_scalar"] == 16


def test_frequencies_are_llama_cpps_where_the_file_is_silent() -> None:
    for architecture, form in ARCHITECTURES.items():
        found = config_values(Path(), architecture, model_keys(architecture), ())
        assert found.get("rope_theta") == (10_000.0 if form.rope in ("whole", "part") else None)


def test_a_server_is_given_what_transformers_cannot_compute(tmp_path: Path) -> None:
    path = model(tmp_path, {"llama.attention.scale": 0.1, "tokenizer.ggml.pre": "pre-of-tomorrow"})
    (info,) = resolve(str(path), seq_len=None, served=True)
    assert (info.path, info.format) == (path, "gguf")
