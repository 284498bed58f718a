"""Families of models with settings that matter to how they are computed: small windows, caps, heads of other sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.tiny import CORPUS, tiny_causal

SEQ_LEN = 256
SHOTS = " ".join(CORPUS[:3])
"""Over a hundred tokens, so much longer than the windows below."""

CAUSAL: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "llama tied": {"model_type": "llama", "tie_word_embeddings": True},
    "gpt2": {},
    "gpt_neox": {},
    "mistral": {"sliding_window": 16},
    "gemma2": {
        "head_dim": 8,
        "final_logit_softcapping": 3.0,
        "attn_logit_softcapping": 2.0,
        "sliding_window": 16,
    },
    "gemma3_text": {
        "head_dim": 8,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "qwen2": {},
    "qwen2 sliding": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 16,
        "max_window_layers": 1,
    },
    "qwen3": {"head_dim": 8},
    "opt": {"word_embed_proj_dim": 32, "ffn_dim": 64},
    "phi3": {"sliding_window": 16, "pad_token_id": 0},
}

MAMBA: dict[str, Any] = {
    "model_type": "mamba",
    "num_attention_heads": None,
    "num_key_value_heads": None,
    "state_size": 4,
    "time_step_rank": 2,
}
"""A causal model without attention, so without a cache of keys and values."""

_EXPERTS: dict[str, Any] = {"num_experts": 4, "moe_intermediate_size": 32, "num_experts_per_tok": 2}

_OLD: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4}

FURTHER: dict[str, dict[str, Any]] = {
    **{
        name: {}
        for name in ("apertus", "arcee", "biogpt", "cohere", "ernie4_5", "granite", "nemotron", "olmo")
    },
    **{name: {} for name in ("olmo2", "persimmon", "phi", "smollm3", "stablelm", "starcoder2")},
    **{name: {"head_dim": 8} for name in ("gemma", "helium", "hunyuan_v1_dense", "seed_oss")},
    **{name: {"head_dim": 8, "pad_token_id": 0} for name in ("glm", "glm4")},
    **{name: {"sliding_window": 16} for name in ("exaone4", "olmo3")},
    "cohere2": {"head_dim": 8, "sliding_window": 16},
    "gpt_bigcode": _OLD,
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 4},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 32},
    "qwen3_moe": {**_EXPERTS, "head_dim": 8},
    "deepseek_v3": {
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "n_group": 1,
        "topk_group": 1,
    },
    "gpt_oss": {"head_dim": 8, "num_local_experts": 4, "sliding_window": 16},
    "codegen": {**_OLD, "rotary_dim": 4},
    "gptj": {**_OLD, "rotary_dim": 4},
    "falcon": {"num_kv_heads": 2},
    "jetmoe": {},
    "xglm": {"d_model": 32, "ffn_dim": 64, "attention_heads": 4, "num_layers": 2},
    "bloom": {"n_layer": 2, "n_head": 4},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2},
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    "llama4_text": {"head_dim": 8, "num_local_experts": 4},
    "mamba2": {"head_dim": 8, "num_heads": 8, "n_groups": 2},
    "qwen3_next": {"head_dim": 8, "layer_types": ["linear_attention", "full_attention"]},
    "llama dynamic": {
        "model_type": "llama",
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    },
}
"""Families of which only the ways of computing are tested, many of them more slowly."""

MASKED: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert"},
    "roberta": {"model_type": "roberta"},
    "deberta-v2 legacy": {
        "model_type": "deberta-v2",
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
    },
    "deberta-v2 new": {
        "model_type": "deberta-v2",
        "legacy": False,
        "position_buckets": 16,
        "relative_attention": True,
    },
    "modernbert": {"model_type": "modernbert", "local_attention": 8},
    "distilbert": {"model_type": "distilbert"},
    "albert": {"model_type": "albert", "embedding_size": 16},
    "electra": {"model_type": "electra", "embedding_size": 16},
}


def causal_of(folder: Path, family: str, seed: int = 0) -> Path:
    """A tiny causal checkpoint of the family."""
    settings = {"model_type": family, **{**CAUSAL, **FURTHER, "mamba": MAMBA}[family]}
    return tiny_causal(folder / "c", seq_len=SEQ_LEN, seed=seed, **settings)
