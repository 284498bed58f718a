"""GGUF files of tiny models, written as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

EMBEDDING, LAYERS, HEADS, LENGTH = 32, 2, 4, 128


def tokenizer_keys(tokenizer: Any, pre: str = "gpt-2") -> dict[str, Any]:
    """The keys of a byte-level tokenizer."""
    said = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = sorted(said["model"]["vocab"], key=said["model"]["vocab"].__getitem__)
    special = {token["content"] for token in said["added_tokens"] if token["special"]}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in tokens],
        "tokenizer.ggml.merges": [
            merge if isinstance(merge, str) else " ".join(merge) for merge in said["model"]["merges"]
        ],
        "tokenizer.ggml.bos_token_id": tokenizer.bos_token_id,
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tokenizer.ggml.add_bos_token": False,
    }


def model_keys(architecture: str, **changes: Any) -> dict[str, Any]:
    """The keys of a tiny model, with ``changes`` by their names without the architecture; None leaves one out."""
    keys = {
        "context_length": LENGTH,
        "embedding_length": EMBEDDING,
        "block_count": LAYERS,
        "feed_forward_length": 2 * EMBEDDING,
        "attention.head_count": HEADS,
        **changes,
    }
    named = {f"{architecture}.{name}": value for name, value in keys.items() if value is not None}
    return {"general.architecture": architecture, "general.type": "model", **named}


def write(path: Path, keys: Mapping[str, Any], tensors: Mapping[str, Any]) -> Path:
    """Write a file of these keys and arrays."""
    import gguf

    writer = gguf.GGUFWriter(str(path), str(keys["general.architecture"]))
    for key, value in keys.items():
        if key == "general.architecture":
            continue
        if isinstance(value, (list, tuple)):
            writer.add_array(key, list(value))
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_string(key, value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors_of(model: Any, architecture: str) -> dict[str, Any]:
    """The tensors of a model of Transformers as the converter names and changes them."""
    import gguf

    (known,) = (kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(known, model.config.num_hidden_layers)
    tied = getattr(model.config, "tie_word_embeddings", False)
    found = {}
    for name, tensor in model.state_dict().items():
        if (tied and name == "lm_head.weight") or name.endswith((".attn.bias", ".masked_bias", "inv_freq")):
            continue
        for given, array in _parts(name, tensor.numpy()):
            short = given.removeprefix("transformer.")
            its = next(filter(None, (names.get_name(each, (".weight", ".bias")) for each in (given, short))))
            found[its] = _changed(its, array, architecture, model.config)
    return found


def _parts(name: str, array: Any) -> list[tuple[str, Any]]:
    if name.endswith("experts.gate_up_proj"):
        start = name.removesuffix("gate_up_proj")
        gate, up = np.split(array, 2, axis=1)
        return [(f"{start}gate_proj.weight", gate), (f"{start}up_proj.weight", up)]
    return [(f"{name}.weight" if name.endswith("experts.down_proj") else name, array)]


def _changed(name: str, array: Any, architecture: str, config: Any) -> Any:
    """An array as the converter changes it."""
    if architecture == "llama" and (".attn_q." in name or ".attn_k." in name):
        heads = config.num_attention_heads if ".attn_q." in name else config.num_key_value_heads
        half = array.shape[0] // heads // 2
        array = array.reshape(heads, 2, half, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
    elif architecture in ("gemma2", "gemma3", "nemotron") and name.endswith("norm.weight"):
        array = array + 1
    elif architecture == "gpt2" and name.endswith(
        ("attn_qkv.weight", "ffn_down.weight", "ffn_up.weight", "attn_output.weight")
    ):
        array = array.T
    elif architecture == "bloom" and "attn_qkv" in name:
        split = array.reshape(config.n_head, 3, -1, *array.shape[1:])
        array = np.concatenate([split[:, part].reshape(-1, *array.shape[1:]) for part in range(3)])
    elif name.endswith(("ssm_conv1d.weight", "shortconv.conv.weight")):
        array = array.squeeze(1)
    elif name.endswith("ssm_a"):
        array = -np.exp(array)
    elif name.endswith("ffn_gate_inp_shexp.weight"):
        array = array[0]
    return array
