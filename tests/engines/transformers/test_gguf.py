"""GGUF files compute what the model that was converted computes, by whatever keys and tensors they say it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.gguf import gguf_tokenizer
from pytest_touchstone.engines.transformers.loading import LoadedModel, load_model
from tests.support.gguf_files import HEADS, LAYERS, LENGTH, model_keys, tensors_of, tokenizer_keys, write
from tests.support.lines import naming
from tests.support.tiny import CORPUS, bytelevel_tokenizer

SETTINGS = ModelSettings(device="cpu", dtype="float32", threads=1)
TOKENIZER = bytelevel_tokenizer(300)
EPSILON, BASE = 1e-4, 5000.0

SIZES: dict[str, Any] = {
    **{"vocab_size": len(TOKENIZER), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": LAYERS},
    **{"num_attention_heads": HEADS, "num_key_value_heads": 2, "max_position_embeddings": LENGTH},
    **{"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None},
}
OLD: dict[str, Any] = {
    **{"vocab_size": len(TOKENIZER), "hidden_size": 32, "n_layer": LAYERS, "n_head": HEADS},
    **{"layer_norm_epsilon": EPSILON, "bos_token_id": 0, "eos_token_id": 0},
}
NEWER = {name: value for name, value in OLD.items() if name[1] != "_"} | {"num_hidden_layers": LAYERS}
RMS = {"attention.layer_norm_rms_epsilon": EPSILON}
NORM = {"attention.layer_norm_epsilon": EPSILON}
ROPE = {"attention.head_count_kv": 2, "rope.freq_base": BASE, "rope.dimension_count": 8}
WIDE = {**ROPE, "attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 16}
EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 24}
THEIR_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


def rope(**more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": BASE, **more}


FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", {**SIZES, "rms_norm_eps": EPSILON, "rope_theta": BASE}, ROPE | RMS),
    "qwen2": ("qwen2", {**SIZES, "rms_norm_eps": EPSILON, "rope_theta": BASE}, ROPE | RMS),
    "qwen3": ("qwen3", {**SIZES, "rms_norm_eps": EPSILON, "rope_theta": BASE, "head_dim": 16}, WIDE | RMS),
    "gemma2": (
        "gemma2",
        {
            **{
                **SIZES,
                "rms_norm_eps": EPSILON,
                "rope_theta": BASE,
                "head_dim": 16,
                "query_pre_attn_scalar": 16,
            },
            **{"sliding_window": 4, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0},
        },
        {
            **{**WIDE, **RMS, "attention.sliding_window": 4},
            **{"attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0},
        },
    ),
    "gemma3": (
        "gemma3_text",
        {
            **{
                **SIZES,
                "rms_norm_eps": EPSILON,
                "head_dim": 16,
                "query_pre_attn_scalar": 16,
                "sliding_window": 4,
            },
            "num_hidden_layers": 6,
            "rope_parameters": {
                "full_attention": rope(rope_type="linear", factor=8.0),
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
            },
        },
        {
            **{**WIDE, **RMS, "attention.sliding_window": 4, "rope.freq_base_swa": 300.0, "block_count": 6},
            **{"rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
        },
    ),
    "phi3": (
        "phi3",
        {
            **{**SIZES, "rms_norm_eps": EPSILON, "sliding_window": 4},
            "rope_parameters": rope(partial_rotary_factor=0.5),
        },
        {**ROPE, **RMS, "rope.dimension_count": 4, "attention.sliding_window": 4},
    ),
    "stablelm": (
        "stablelm",
        {
            **{**SIZES, "layer_norm_eps": EPSILON, "use_qkv_bias": True},
            "rope_parameters": rope(partial_rotary_factor=0.5),
        },
        {**ROPE, **NORM, "rope.dimension_count": 4, "use_parallel_residual": False},
    ),
    "starcoder2": ("starcoder2", {**SIZES, "norm_epsilon": EPSILON, "rope_theta": BASE}, ROPE | NORM),
    "nemotron": (
        "nemotron",
        {**SIZES, "norm_eps": EPSILON, "rope_parameters": rope(partial_rotary_factor=0.25)},
        {**ROPE, **NORM, "rope.dimension_count": 2, "rope.scaling.type": "none"},
    ),
    "gpt2": ("gpt2", {**OLD, "n_positions": LENGTH}, {**NORM, "feed_forward_length": 128}),
    "bloom": ("bloom", OLD, {**NORM, "feed_forward_length": 128, "attention.head_count_kv": HEADS}),
    "falcon": (
        "falcon",
        {**NEWER, "num_attention_heads": HEADS, "max_position_embeddings": LENGTH, "rope_theta": BASE},
        {**ROPE, **NORM, "feed_forward_length": 128, "attention.head_count_kv": 1},
    ),
    "mamba": (
        "mamba",
        {**NEWER, "state_size": 8, "time_step_rank": 2},
        {
            **{**RMS, "attention.head_count": 0, "feed_forward_length": 0, "ssm.conv_kernel": 4},
            **{"ssm.inner_size": 64, "ssm.state_size": 8, "ssm.time_step_rank": 2},
        },
    ),
    "qwen2moe": (
        "qwen2_moe",
        {
            **{**SIZES, **THEIR_EXPERTS, "rms_norm_eps": EPSILON, "rope_theta": BASE},
            "shared_expert_intermediate_size": 40,
        },
        {**ROPE, **RMS, **EXPERTS, "expert_shared_feed_forward_length": 40},
    ),
    "lfm2": (
        "lfm2",
        {
            **{**SIZES, "norm_eps": EPSILON, "rope_theta": BASE, "conv_L_cache": 3},
            **{"block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention"]},
        },
        {**ROPE, **RMS, "attention.head_count_kv": [0, 2], "shortconv.l_cache": 3},
    ),
    "qwen3moe": (
        "qwen3_moe",
        {
            **{**SIZES, **THEIR_EXPERTS, "rms_norm_eps": EPSILON, "rope_theta": BASE},
            **{"head_dim": 16, "norm_topk_prob": True},
        },
        {**WIDE, **RMS, **EXPERTS},
    ),
}
"""By the names of GGUF: the model type and config in Transformers, and the keys that say the same."""


def made(family: str, **changes: Any) -> Any:
    """A model with random numbers in all its tensors."""
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, config, _ = FAMILIES[family]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**config, **changes})).eval()
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, tensor in sorted(model.named_parameters()):
            spread = torch.rand(tensor.shape, generator=random)
            tensor.copy_(0.6 * spread - 0.3 if tensor.dim() > 1 else 0.5 + 0.2 * spread)
    return model


def written(
    path: Path,
    family: str,
    model: Any,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
) -> Path:
    said = model_keys(family, **{**FAMILIES[family][2], "vocab_size": len(TOKENIZER), **(keys or {})})
    return write(path, said | tokenizer_keys(TOKENIZER), {**tensors_of(model, family), **(tensors or {})})


def loaded(path: Path) -> LoadedModel:
    (info,) = resolve(str(path), seq_len=None)
    return load_model(info, SETTINGS)


def distance(one: Any, other: Any) -> float:
    """The largest difference between the logits of two models."""
    tokens = torch.randint(3, 290, (1, 40), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return float((one(tokens).logits - other(tokens).logits).abs().max())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_converted_model_computes_the_same(family: str, tmp_path: Path) -> None:
    model = made(family)
    assert distance(loaded(written(tmp_path / "x.gguf", family, model)).model, model) < 1e-5


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("parameters", "keys"),
    [
        (
            {"rope_type": "linear", "factor": 4.0},
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        ),
        ({"rope_type": "linear", "factor": 4.0}, {"rope.scale_linear": 4.0}),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16.0},
            {
                **{
                    "rope.scaling.type": "yarn",
                    "rope.scaling.factor": 4.0,
                    "rope.scaling.yarn_beta_fast": 16.0,
                },
                "rope.scaling.original_context_length": 32,
            },
        ),
    ],
    ids=["linear", "linear in old files", "yarn"],
)
def test_scaled_frequencies_are_those_of_the_model(
    family: str, parameters: dict[str, Any], keys: dict[str, Any], tmp_path: Path
) -> None:
    model = made(family, rope_parameters={**parameters, "rope_theta": BASE})
    found = loaded(written(tmp_path / "x.gguf", family, model, keys)).model
    assert distance(found, made(family)) > 0.01
    assert distance(found, model) < 1e-5


def llama31() -> tuple[Any, dict[str, Any]]:
    """A model whose frequencies are changed as those of Llama 3.1, and the tensor that says so."""
    scaled = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model = made(
        "llama", rope_parameters={**scaled, "original_max_position_embeddings": 64, "rope_theta": BASE}
    )
    plain = 1 / BASE ** (np.arange(0, 8, 2) / 8)
    return model, {"rope_freqs.weight": plain / model.model.rotary_emb.inv_freq.numpy()}


def test_the_frequencies_of_llama_3_1_are_divided_as_its_tensor_says(tmp_path: Path) -> None:
    model, divisors = llama31()
    found = loaded(written(tmp_path / "x.gguf", "llama", model, None, divisors)).model
    assert distance(found, made("llama")) > 0.01
    assert distance(found, model) < 1e-5
    assert torch.equal(found.model.rotary_emb.inv_freq, found.model.rotary_emb.original_inv_freq)


def test_a_file_is_loaded_as_a_plain_model_that_may_be_packed(tmp_path: Path) -> None:
    model = loaded(written(tmp_path / "x.gguf", "llama", made("llama"))).model
    assert getattr(model, "hf_quantizer", None) is None
    assert getattr(model.config, "quantization_config", None) is None
    model.config.to_dict()


@pytest.mark.parametrize("divisors", [[1.0], [1.0, 0.0, 1.0, 1.0]])
def test_divisors_that_fit_no_frequencies_are_refused(divisors: list[float], tmp_path: Path) -> None:
    path = written(tmp_path / "x.gguf", "llama", made("llama"), None, {"rope_freqs.weight": divisors})
    with pytest.raises(CheckpointError, match="rope_freqs"):
        loaded(path)


@pytest.mark.parametrize("switch", ["attention_bias", "mlp_bias"])
def test_biases_of_the_llama_architecture_are_read(switch: str, tmp_path: Path) -> None:
    model = made("llama", **{switch: True})
    found = loaded(written(tmp_path / "x.gguf", "llama", model)).model
    assert distance(found, made("llama")) > 0.01
    assert distance(found, model) < 1e-5


def test_parts_without_a_bias_beside_others_with_one_have_none(tmp_path: Path) -> None:
    model = made("llama", attention_bias=True)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.bias.zero_()
    keys = model_keys("llama", **FAMILIES["llama"][2], vocab_size=len(TOKENIZER)) | tokenizer_keys(TOKENIZER)
    tensors = {
        name: tensor
        for name, tensor in tensors_of(model, "llama").items()
        if not name.endswith("output.bias")
    }
    assert distance(loaded(write(tmp_path / "x.gguf", keys, tensors)).model, model) < 1e-5


@pytest.mark.parametrize(
    "name", ["blk.0.attn_q_norm.weight", "blk.1.post_ffw_norm.weight", "blk.0.attn_q.scale"]
)
def test_a_tensor_without_a_place_in_the_model_is_named(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.gguf", "llama", made("llama"), None, {name: np.ones(8)})
    with pytest.raises(CheckpointError, match=rf"holds {name}, .*llama-server:"):
        loaded(path)


def test_frequencies_that_old_files_hold_for_each_layer_are_left_out(tmp_path: Path) -> None:
    model = made("llama")
    path = written(tmp_path / "x.gguf", "llama", model, None, {"blk.0.attn_rot_embd.weight": np.ones(4)})
    assert distance(loaded(path).model, model) < 1e-5


def test_a_file_named_mistral_has_no_window_that_it_does_not_name(tmp_path: Path) -> None:
    model = made("llama")
    keys = model_keys("llama", **FAMILIES["llama"][2], vocab_size=len(TOKENIZER)) | tokenizer_keys(TOKENIZER)
    path = write(tmp_path / "x.gguf", {**keys, "general.name": "mistral"}, tensors_of(model, "llama"))
    found = loaded(path).model
    assert getattr(found.config, "sliding_window", None) is None
    assert distance(found, model) < 1e-5


def tokenizer(path: Path, keys: dict[str, Any], architecture: str = "llama") -> Any:
    said = model_keys(architecture, block_count=1, feed_forward_length=32)
    count = len(keys["tokenizer.ggml.tokens"])
    return gguf_tokenizer(write(path, said | keys, {"token_embd.weight": np.zeros((count, 32))}))


TEXTS = (
    *CORPUS,
    *("a\n\n5 things", "x =  5", "1234567 and 12", "it's I'M 3rd", "  two  spaces ", "\tTab\r\n", "été"),
)


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o", "falcon"])
def test_texts_are_cut_in_the_way_that_the_file_names(pre: str, tmp_path: Path) -> None:
    """Merges learnt without any cut show each of them."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
    rest = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    end, slashes = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?", rest.replace(r"[\r\n]*|", r"[\r\n/]*|", 1)

    def split(text: str) -> Any:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(text), "isolated"), plain])

    def cased(tail: str) -> str:
        lead = r"[^\r\n\p{L}\p{N}]?"
        return f"{lead}{upper}*{lower}+{tail}|{lead}{upper}+{lower}*{tail}"

    ways = {
        "gpt-2": gpt2,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]),
        "llama-bpe": split(rf"{words}|\p{{N}}{{1,3}}|{rest}"),
        "qwen2": split(rf"{words}|\p{{N}}|{rest}"),
        "tekken": split(rf"{cased('')}|\p{{N}}|{slashes}"),
        "gpt-4o": split(rf"{cased(end)}|\p{{N}}{{1,3}}|{slashes}"),
        "falcon": pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"[\p{P}\$\+<=>\^~\|`]+"), "isolated"),
                gpt2,
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        ),
    }
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = plain, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([text for text in TEXTS for _ in range(3)], trainer)
    made.pre_tokenizer = ways[pre]
    theirs = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="<s>")
    ours = tokenizer(tmp_path / "x.gguf", tokenizer_keys(theirs, pre))
    assert [ours(text).input_ids for text in TEXTS] == [theirs(text).input_ids for text in TEXTS]


def bytes_vocabulary(*more: str) -> dict[str, Any]:
    keys = tokenizer_keys(TOKENIZER)
    keys["tokenizer.ggml.tokens"] = [*keys["tokenizer.ggml.tokens"], *more]
    keys["tokenizer.ggml.token_type"] = [*keys["tokenizer.ggml.token_type"], *(1 for _ in more)]
    return keys


def test_a_word_that_is_a_token_is_one_though_no_merges_lead_there(tmp_path: Path) -> None:
    keys = bytes_vocabulary("Ġxylophone") | {"tokenizer.ggml.pre": "llama-bpe"}
    last = len(keys["tokenizer.ggml.tokens"]) - 1
    found = tokenizer(tmp_path / "x.gguf", {**keys, "tokenizer.ggml.add_bos_token": True})
    assert found(" xylophone").input_ids == [0, last]
    keys["tokenizer.ggml.pre"] = "qwen2"
    assert len(tokenizer(tmp_path / "y.gguf", keys)(" xylophone").input_ids) > 1


def test_tokens_that_stand_for_themselves_are_whole_whatever_their_characters(tmp_path: Path) -> None:
    keys = bytes_vocabulary("<｜end▁of▁sentence｜>", "   ", "<think>")
    count = len(keys["tokenizer.ggml.tokens"])
    keys["tokenizer.ggml.token_type"][-3:] = [3, 4, 4]
    found = tokenizer(tmp_path / "x.gguf", {**keys, "tokenizer.ggml.eos_token_id": count - 3})
    assert len(found) == count
    assert found("<｜end▁of▁sentence｜>   <think>").input_ids == [count - 3, count - 2, count - 1]
    assert (found.eos_token_id, found.is_fast) == (count - 3, True)
    assert found.decode([count - 1]) == "<think>"


@pytest.mark.parametrize("space", [True, False])
def test_sentencepieces_tokens_are_its_own(space: bool, tmp_path: Path) -> None:
    import sentencepiece

    (tmp_path / "text").write_text("\n".join(CORPUS * 20), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"),
        model_prefix=str(tmp_path / "piece"),
        vocab_size=500,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=space,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "piece.model"))
    numbers = range(pieces.get_piece_size())
    types = [
        2 if pieces.is_unknown(each) else 3 if pieces.is_control(each) else 6 if pieces.is_byte(each) else 1
        for each in numbers
    ]
    keys = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [pieces.id_to_piece(each) for each in numbers],
        "tokenizer.ggml.scores": [float(pieces.get_score(each)) for each in numbers],
        "tokenizer.ggml.token_type": types,
        **({} if space else {"tokenizer.ggml.add_space_prefix": False}),
    }
    found = tokenizer(tmp_path / "x.gguf", keys)
    texts = [*TEXTS, " Paris", "a", "日本 🙂"]
    assert [found(text).input_ids for text in texts] == [[1, *pieces.encode(text)] for text in texts]
    assert [found.decode(found(text).input_ids, skip_special_tokens=True) for text in texts] == texts


def test_the_special_tokens_of_phi_3_take_the_space_after_them(tmp_path: Path) -> None:
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        "▁",
        "H",
        "i",
        "▁H",
        "▁Hi",
        "<|user|>",
        *(f"<0x{n:02X}>" for n in range(256)),
    ]
    keys = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(number) for number in range(len(tokens))],
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1, 3, *([6] * 256)],
    }
    found = tokenizer(tmp_path / "x.gguf", keys, "phi3")
    assert found("<|user|>\nHi").input_ids == [1, 8, 7]
    assert len(tokenizer(tmp_path / "y.gguf", keys)("<|user|>\nHi").input_ids) > 3


def test_a_token_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a token twice"):
        tokenizer(tmp_path / "x.gguf", bytes_vocabulary("Ġthe", "Ġthe"))
    with pytest.raises(CheckpointError, match=naming("eos_token", "300 tokens")):
        tokenizer(tmp_path / "x.gguf", bytes_vocabulary() | {"tokenizer.ggml.eos_token_id": 9999})
