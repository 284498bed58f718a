"""Files as nanoGPT saves them, and its model in plain torch, for tests."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

ARGS = {
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 32,
    "block_size": 64,
    "bias": True,
    "vocab_size": 400,
    "dropout": 0.1,
}


def random_state(args: dict[str, Any]) -> dict[str, Any]:
    """Tensors of a model by nanoGPT's names."""
    import torch

    numbers = torch.Generator().manual_seed(1)
    wide = args["n_embd"]

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, generator=numbers) * 0.2

    state = {"transformer.wte.weight": drawn(args["vocab_size"], wide)}
    state["transformer.wpe.weight"] = drawn(args["block_size"], wide)
    norms = ["transformer.ln_f"]
    for layer in range(args["n_layer"]):
        block = f"transformer.h.{layer}"
        norms += [f"{block}.ln_1", f"{block}.ln_2"]
        for name, rows, columns in (
            *(("attn.c_attn", 3 * wide, wide), ("attn.c_proj", wide, wide)),
            *(("mlp.c_fc", 4 * wide, wide), ("mlp.c_proj", wide, 4 * wide)),
        ):
            state[f"{block}.{name}.weight"] = drawn(rows, columns)
            if args["bias"]:
                state[f"{block}.{name}.bias"] = drawn(rows)
    for name in norms:
        state[f"{name}.weight"] = drawn(wide) + 1
        if args["bias"]:
            state[f"{name}.bias"] = drawn(wide)
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return state


def plain_logits(state: dict[str, Any], args: dict[str, Any], ids: list[int]) -> Any:
    """Logits [length, vocabulary], written down from the paper on GPT-2: one text, one head at a time."""
    import torch

    def linear(name: str, x: Any) -> Any:
        return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)

    def norm(name: str, x: Any) -> Any:
        middle, spread = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        return (x - middle) / (spread + 1e-5).sqrt() * state[f"{name}.weight"] + state.get(f"{name}.bias", 0)

    def gelu(x: Any) -> Any:
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2

    size = args["n_embd"] // args["n_head"]
    x = state["transformer.wte.weight"][ids] + state["transformer.wpe.weight"][: len(ids)]
    later = torch.ones(len(ids), len(ids)).triu(1).bool()
    for layer in range(args["n_layer"]):
        block = f"transformer.h.{layer}"
        queries, keys, values = linear(f"{block}.attn.c_attn", norm(f"{block}.ln_1", x)).split(
            args["n_embd"], -1
        )
        heads = []
        for first in range(0, args["n_embd"], size):
            q, k, v = (part[:, first : first + size] for part in (queries, keys, values))
            weights = (q @ k.T / math.sqrt(size)).masked_fill(later, -math.inf).softmax(-1)
            heads.append(weights @ v)
        x = x + linear(f"{block}.attn.c_proj", torch.cat(heads, -1))
        x = x + linear(f"{block}.mlp.c_proj", gelu(linear(f"{block}.mlp.c_fc", norm(f"{block}.ln_2", x))))
    return norm("transformer.ln_f", x) @ state["lm_head.weight"].T


def save_nanogpt(path: Path, state: dict[str, Any], args: dict[str, Any], **values: Any) -> Path:
    """Writes a file as the training saves it; ``values`` replace its parts."""
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    moments = {
        "state": {0: {"exp_avg": torch.zeros(9), "step": torch.tensor(3.0)}},
        "param_groups": [{"lr": 1e-3}],
    }
    content = {
        "model": state,
        "optimizer": moments,
        "model_args": args,
        "iter_num": 250,
        "best_val_loss": torch.tensor(1.75),
        "config": {"dataset": "shakespeare_char", "learning_rate": 1e-3},
        **values,
    }
    torch.save(content, path)
    return path


def save_characters(folder: Path, characters: str) -> Path:
    """Writes the vocabulary as nanoGPT prepares it."""
    folder.mkdir(parents=True, exist_ok=True)
    table = {one: number for number, one in enumerate(characters)}
    meta = {"vocab_size": len(table), "itos": {number: one for one, number in table.items()}, "stoi": table}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    return folder
