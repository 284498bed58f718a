"""Checkpoints of nanoGPT: a ``.pt`` file with ``model`` (a state dict), ``model_args``, and beside them ``iter_num``,
``best_val_loss``, ``config`` and the optimizer's state, which is not read.

The model is GPT-2's with linear layers in place of transposed ones, an exact GELU, and biases or none (also in its
layer norms). The tokenizer is one for transformers, or ``meta.pkl``: the characters of the training's texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, Field

from pytest_touchstone.checkpoints.config_files import check_table, number, plain, step_in
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.checkpoints.formats.content import (
    TOKENIZER,
    Tensor,
    Tensors,
    count_parameters,
    file_lines,
    main_dtype,
    matching,
    table_line,
    tensor_lines,
)
from pytest_touchstone.checkpoints.formats.pickled_objects import read_objects
from pytest_touchstone.checkpoints.formats.torch_pickle import read_pickled
from pytest_touchstone.checkpoints.formats.transformers import has_tokenizer
from pytest_touchstone.checkpoints.formats.weights import state_dict, without_wrappers
from pytest_touchstone.checkpoints.info import SERVES, CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import count, listed

CHARACTERS: Final = "meta.pkl"

_TURNED: Final = re.compile(r"\.(c_attn|c_fc|c_proj)\.weight$")
"""Matrices that GPT-2's own layers have transposed."""

_MASK: Final = re.compile(r"\.attn\.bias$")
"""The causal mask, which older versions saved."""

_END: Final = 50256
"""``<|endoftext|>`` of GPT-2's tokenizer."""


class _ModelArgs(BaseModel):
    n_layer: int = Field(gt=0, le=1000)
    n_head: int = Field(gt=0, le=1 << 16)
    n_embd: int = Field(gt=0, le=1 << 20)
    block_size: int = Field(gt=0, le=1 << 30)


class NanoGpt:
    """A ``.pt`` file of nanoGPT; Llama's format sees such files first, and hands them over."""

    name = "nanogpt"

    def detect(self, _: Path, /) -> bool:
        """Return False: what a ``.pt`` file is shows when it is read."""
        return False

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Describe the checkpoint. Raises ``CheckpointError`` where it is none of nanoGPT."""
        return described(path, asked, read_pickled(path))

    def files(self, info: CheckpointInfo) -> list[Path]:
        """The weights and the tokenizer."""
        return [info.path, *matching(info.tokenizer, (*TOKENIZER, CHARACTERS))]

    def content(self, info: CheckpointInfo) -> Iterator[str]:
        """Sizes, tokenizer and tensors."""
        yield table_line("params", info.params)
        yield from file_lines(matching(info.tokenizer, (*TOKENIZER, CHARACTERS)))
        yield from tensor_lines(self.tensors(info))

    def tensors(self, info: CheckpointInfo) -> Tensors:
        """The tensors by the names and in the shapes that transformers' GPT-2 has; absent biases are zeros."""
        found = _tensors(info.path, read_pickled(info.path))
        shapes = _shapes(_ModelArgs(**info.params), info.params["vocab_size"])
        absent = {
            name: Tensor("F32", shape, info.path, 0, 0) for name, shape in shapes.items() if name not in found
        }
        return absent | {
            name: tensor.transposed() if _TURNED.search(name) else tensor for name, tensor in found.items()
        }


def is_nanogpt(content: Any) -> bool:
    """Return whether the content of a ``.pt`` file is that of nanoGPT's."""
    return isinstance(content, dict) and all(
        isinstance(content.get(name), dict) for name in ("model", "model_args")
    )


def described(path: Path, asked: CheckpointRequest, content: Mapping[str, Any]) -> CheckpointInfo:
    """The checkpoint in a file of this content. Raises ``CheckpointError`` where its tensors do not fit its sizes."""
    sizes = check_table(path, content["model_args"], _ModelArgs)
    tensors = _tensors(path, content)
    words = tensors.get("transformer.wte.weight")
    vocabulary = words.shape[0] if words is not None and words.shape else 0
    _check(path, tensors, _shapes(sizes, vocabulary))
    if sizes.n_embd % sizes.n_head:
        raise CheckpointError(
            f"{path}: n_embd={sizes.n_embd} is no multiple of n_head={sizes.n_head}; save it again"
        )
    head = tensors.get("lm_head.weight", words)
    trained = content.get("config")
    config = trained if isinstance(trained, dict) else {}
    folder = _tokenizer(path, asked, config)
    end = _END if vocabulary > _END and not (folder / CHARACTERS).is_file() else None
    step = content.get("iter_num")
    return CheckpointInfo(
        name=path.stem,
        source=asked.source,
        path=path,
        kind="causal",
        format=NanoGpt.name,
        model_type="gpt2",
        architecture="nanoGPT",
        seq_len=asked.limited(path, sizes.block_size),
        serves=SERVES["causal"],
        global_step=step if type(step) is int and 0 <= step < 1 << 63 else step_in(path.stem),
        val_loss=number(content.get("best_val_loss")),
        training=plain({"config": config}),
        parameters=count_parameters(tensors),
        dtype=main_dtype(tensors),
        params={
            "model_type": "gpt2",
            **sizes.model_dump(),
            "n_positions": sizes.block_size,
            "vocab_size": vocabulary,
            "activation_function": "gelu",
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": head == words,
            "bos_token_id": end,
            "eos_token_id": end,
        },
        tokenizer=folder,
    )


def _tensors(path: Path, content: Mapping[str, Any]) -> Tensors:
    tensors = without_wrappers(state_dict(path, content["model"]))
    return {
        name: tensor for name, tensor in tensors.items() if not _MASK.search(name) or len(tensor.shape) == 1
    }


def _shapes(sizes: _ModelArgs, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of the model as transformers' GPT-2 has it."""
    wide = sizes.n_embd
    vectors = {"ln_1": wide, "ln_2": wide}
    matrices = {
        **{"attn.c_attn": (wide, 3 * wide), "attn.c_proj": (wide, wide)},
        **{"mlp.c_fc": (wide, 4 * wide), "mlp.c_proj": (4 * wide, wide)},
    }
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (vocabulary, wide),
        "transformer.wpe.weight": (sizes.block_size, wide),
        "transformer.ln_f.weight": (wide,),
        "transformer.ln_f.bias": (wide,),
        "lm_head.weight": (vocabulary, wide),
    }
    for layer in range(sizes.n_layer):
        for name, side in vectors.items():
            shapes |= {f"transformer.h.{layer}.{name}.{kind}": (side,) for kind in ("weight", "bias")}
        for name, (rows, columns) in matrices.items():
            shapes[f"transformer.h.{layer}.{name}.weight"] = (rows, columns)
            shapes[f"transformer.h.{layer}.{name}.bias"] = (columns,)
    return shapes


def _check(path: Path, tensors: Tensors, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ``CheckpointError`` where tensors and sizes are not those of one model."""
    biases = {name for name in shapes if name.endswith(".bias")}
    wanted = {
        name
        for name in shapes
        if name != "lm_head.weight" and (name not in biases or tensors.keys() & biases)
    }
    wrong = [f"{name} is missing" for name in sorted(wanted - tensors.keys())]
    wrong += [f"{name[:80]!r} has no place" for name in sorted(tensors.keys() - shapes.keys())]
    for name, tensor in tensors.items():
        shape = shapes.get(name, ())
        if name in shapes and tensor.shape != (shape[::-1] if _TURNED.search(name) else shape):
            wrong.append(f"{name} is {list(tensor.shape)}")
    if wrong:
        raise CheckpointError(
            f"{path}: {count(len(wrong), 'tensor')} of another model than nanoGPT's of these model_args: "
            f"{listed(wrong, 3)}; convert it to a folder for transformers"
        )


def _tokenizer(path: Path, asked: CheckpointRequest, config: Mapping[str, Any]) -> Path:
    """The folder with the tokenizer: as given, beside the weights, or where nanoGPT has the training's data."""
    data = config.get("dataset")
    places = [Path(asked.base_model).expanduser()] if asked.base_model is not None else []
    places.append(path.parent)
    if isinstance(data, str) and re.fullmatch(r"\w[\w.-]{0,99}", data):
        places += [root / "data" / data for root in (Path(), path.parent.parent)]
    for place in places:
        if place.is_dir() and (has_tokenizer(place) or (place / CHARACTERS).is_file()):
            if not has_tokenizer(place):
                characters_of(place)
            return place
    raise CheckpointError(
        f"{path}: no tokenizer beside it (GPT-2's tokenizer.json, or {CHARACTERS} of the training's data); put it "
        "there, or name its folder with --eval-base-model"
    )


def characters_of(folder: Path) -> dict[str, int]:
    """Character -> token of ``meta.pkl``. Raises ``CheckpointError`` where it does not say that."""
    path = folder / CHARACTERS
    content = read_objects(path)
    table = content.get("stoi") if isinstance(content, dict) else None
    if (
        not isinstance(table, dict)
        or not table
        or not all(isinstance(one, str) and len(one) == 1 for one in table)
        or not all(type(number) is int for number in table.values())
        or sorted(table.values()) != list(range(len(table)))
    ):
        raise CheckpointError(f"{path}: no vocabulary of characters (stoi); copy it from the training's data")
    return table
