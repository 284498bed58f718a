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
    """Save a tiny model with random weights, large enough that a right answer is told from a wrong one."""
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
