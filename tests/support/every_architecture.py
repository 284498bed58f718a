"""A tiny random checkpoint of any architecture of the installed Transformers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tests.support.tiny import bytelevel_tokenizer, wordpiece_tokenizer

_WIDTH = dict.fromkeys(
    (
        "hidden_size",
        "n_embd",
        "d_model",
        "dim",
        "emb_dim",
        "embedding_size",
        "word_embed_proj_dim",
        "n_embed",
    ),
    32,
)
_WIDE = dict.fromkeys(
    ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "hidden_dim", "decoder_ffn_dim", "encoder_ffn_dim"),
    64,
)
_WIDE |= dict.fromkeys(("d_inner", "dense_intermediate_size", "mlp_hidden_size", "ffn_hidden_size"), 64)
_LAYERS = dict.fromkeys(
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2
)
_HEADS = dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 4)
_HEADS |= dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), 4)
_HEADS |= dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2)
_LENGTHS = dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 256)
_EXPERTS = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(
        ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts"), 2
    ),
    **dict.fromkeys(
        ("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 32
    ),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1),
}
_LATENT = {
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "head_dim"), 8),
}
_SMALL = {**_WIDTH, **_WIDE, **_LAYERS, **_HEADS, **_LENGTHS, **_EXPERTS, **_LATENT, "sliding_window": 16}
"""Sizes by the names that configs have for them."""


def small_config(model_type: str, vocabulary: int, **settings: Any) -> Any:
    """The config of a type with small sizes, with ``settings`` instead of those where they are given."""
    from transformers import AutoConfig

    usual = AutoConfig.for_model(model_type)
    return type(usual)(**{**_small(usual, vocabulary), **settings})


def _small(config: Any, vocabulary: int) -> dict[str, Any]:
    """The small sizes that a config has names for, also those of its parts."""
    named = {**config.attribute_map, **config.to_dict()}
    found: dict[str, Any] = {name: size for name, size in _SMALL.items() if name in named}
    found = {name: size for name, size in found.items() if config.attribute_map.get(name, name) == name}
    if "vocab_size" in named:
        found["vocab_size"] = vocabulary
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if part is not None:
            found[name] = {**_small(part, vocabulary), "model_type": part.model_type}
    return found


def make(folder: Path, auto: Any, model_type: str, settings: dict[str, Any], *, seed: int = 0) -> Path:
    """Save a tiny model with random weights, large enough that a right answer is told apart from a wrong one."""
    import torch
    from transformers import AutoModelForMaskedLM

    tokenizer = wordpiece_tokenizer() if auto is AutoModelForMaskedLM else bytelevel_tokenizer()
    config = small_config(model_type, len(tokenizer), **copy.deepcopy(settings))
    text = config.get_text_config()
    text.bos_token_id, text.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    text.pad_token_id = tokenizer.pad_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = auto.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


_LATENT_HEADS = {"num_key_value_heads": 4}
_TWO_KINDS = {"layer_types": ["linear_attention", "full_attention"]}
_MAMBA_HEADS = {"mamba_n_heads": 8, "mamba_d_head": 8}
_XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "pad_index": 0}

_LATENT_TYPES = (
    "axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 dots3_note_text glm4_moe_lite glm_moe_dsa longcat_flash "
    "minicpm3 youtu"
)
_TWO_KIND_TYPES = "qwen3_5_moe_text qwen3_5_text qwen3_next"
_DECODERS = (
    "bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta "
    "roberta-prelayernorm roc_bert roformer xlm-roberta xlm-roberta-xl"
)

CAUSAL_SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(_LATENT_TYPES.split(), _LATENT_HEADS),  # never changed: ``make`` copies them
    **dict.fromkeys(_TWO_KIND_TYPES.split(), _TWO_KINDS),
    **{name: {**_LATENT_HEADS, **_TWO_KINDS} for name in ("bailing_hybrid", "kimi_linear")},
    **{name: {"is_decoder": True} for name in _DECODERS.split()},
    **{name: {"rotary_dim": 4} for name in ("codegen", "gptj")},
    "bamba": {**_MAMBA_HEADS, "attn_layer_indices": [1]},
    "dots1": {"layer_types": ["full_attention"] * 2, "n_shared_experts": 1},
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 400,
        "laurel_rank": 4,
        "activation_sparsity_pattern": [0.0] * 4,
        "intermediate_size": [64] * 4,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {**_MAMBA_HEADS, "mamba_n_groups": 1, "layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {
        "is_decoder": True,
        "axial_pos_shape": [16, 16],
        "axial_pos_embds_dim": [16, 16],
        "attention_head_size": 8,
        "hash_seed": 0,
    },
    "xlm": {**_XLM, "causal": True},
    "xlnet": {"attn_type": "uni"},
    "xmod": {"is_decoder": True, "default_language": "en_XX"},
    "zamba2": {"layer_types": ["mamba", "hybrid"], "hybrid_layer_ids": [1]},
    "zaya": {"num_experts_per_tok": 1},
}
"""What a type needs besides small sizes to be a causal model that can be made."""

MASKED_SETTINGS: dict[str, dict[str, Any]] = {
    "esmc": {"num_key_value_heads": 4},
    "flaubert": _XLM,
    "xlm": _XLM,
    "funnel": {"block_sizes": [1, 1]},
    "mobilebert": {"embedding_size": 16},
    "reformer": {
        "axial_pos_shape": [16, 16],
        "axial_pos_embds_dim": [16, 16],
        "attention_head_size": 8,
        "hash_seed": 0,
    },
    "xmod": {"default_language": "en_XX"},
}

_COMPOSITES = (
    "dots3_note emu3 gemma3 gemma3n gemma4 gemma4_unified got_ocr2 mllama moss_transcribe_diarize musicgen "
    "musicgen_melody qwen3_5 qwen3_5_moe qwen4_exp"
)
_COMPOSITE = "its text model is a type of its own, or it is multimodal and refused"
_UNMADE = "its config allows no small sizes by their usual names"

CAUSAL_LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(_COMPOSITES.split(), _COMPOSITE),
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), "it needs the states of another model"),
    **dict.fromkeys(("cohere_compass_text", "dbrx", "zamba"), _UNMADE),
    "blt": "it reads bytes, by a model of patches that has sizes of its own",
}
MASKED_LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(("bart", "mbart", "mvp"), "an encoder-decoder, which is refused"),
    **dict.fromkeys(("luke", "perceiver"), _UNMADE),
    "modernvbert": _COMPOSITE,
    "neomme": _UNMADE,
    "tapas": "it needs a table beside its text",
}

SEES_LATER_TOKENS = ("cpmant", "prophetnet")
"""Types of causal models whose tokens see later ones whatever the config says."""
