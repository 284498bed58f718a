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


def causal_of(folder: Path, family: str) -> Path:
    """A tiny causal checkpoint of the family."""
    return tiny_causal(folder / "c", seq_len=SEQ_LEN, **{"model_type": family, **CAUSAL[family]})
