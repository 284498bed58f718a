"""A checkpoint format of somebody else's: a file of nanoGPT, whose model Transformers' GPT-2 computes.

The file has ``model`` (a state dict) and ``model_args``. The model is GPT-2's with linear layers in place of
transposed ones, an exact GELU, and biases or none. The tokenizer beside it is one for Transformers, or ``meta.pkl``:
the characters of the training's texts.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_touchstone.checkpoints import (
    SERVES,
    CheckpointInfo,
    CheckpointRequest,
    TrainingState,
    WeightsInfo,
)
from pytest_touchstone.checkpoints.formats.content import (
    TOKENIZER,
    Tensor,
    Tensors,
    count_parameters,
    file_lines,
    main_dtype,
    matching_files,
    table_line,
    tensor_lines,
)
from pytest_touchstone.checkpoints.formats.torch_pickle import read_objects, read_pickled
from pytest_touchstone.checkpoints.formats.weights import state_dict, without_wrappers
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.loading import LoadedModel, load_model

CHARACTERS = "meta.pkl"
SIZES = ("n_layer", "n_head", "n_embd", "block_size")
TRANSPOSED = re.compile(r"\.(c_attn|c_fc|c_proj)\.weight$")
MASK = re.compile(r"\.attn\.bias$")
UNKNOWN = "<unknown character>"
FILES = (*TOKENIZER, CHARACTERS)


class NanoGpt:
    name = "nanogpt"

    def detect(self, path: Path) -> bool:
        try:
            return path.suffix == ".pt" and path.is_file() and bool(content_of(path))
        except CheckpointError:
            return False

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        content = content_of(path)
        sizes = {name: content["model_args"].get(name) for name in SIZES}
        if not all(isinstance(size, int) and size > 0 for size in sizes.values()):
            raise CheckpointError(
                f"{path}: model_args has no whole numbers for {', '.join(SIZES)}; save it again"
            )
        folder = path.parent if asked.base_model is None else Path(asked.base_model).expanduser()
        if not matching_files(folder, FILES):
            raise CheckpointError(
                f"{path}: no tokenizer.json or {CHARACTERS} in {folder}; name its folder with --eval-base-model"
            )
        tensors = tensors_of(path, content)
        words = tensors["transformer.wte.weight"]
        return CheckpointInfo(
            name=path.stem,
            source=asked.source,
            path=path,
            kind="causal",
            format=self.name,
            model_type="gpt2",
            architecture="nanoGPT",
            seq_len=asked.limited(path, sizes["block_size"]),
            serves=SERVES["causal"],
            training=TrainingState(content.get("iter_num")),
            weights=WeightsInfo(
                count_parameters(tensors),
                main_dtype(tensors),
                params={
                    "model_type": "gpt2",
                    **sizes,
                    "n_positions": sizes["block_size"],
                    "vocab_size": words.shape[0],
                    "activation_function": "gelu",
                    "tie_word_embeddings": tensors.get("lm_head.weight", words) == words,
                    "bos_token_id": None,
                    "eos_token_id": None,
                },
            ),
            tokenizer=folder,
        )

    def files(self, info: CheckpointInfo) -> list[Path]:
        return [info.path, *matching_files(info.tokenizer, FILES)]

    def content(self, info: CheckpointInfo) -> Iterator[str]:
        yield table_line("params", info.weights.params)
        yield from file_lines(matching_files(info.tokenizer, FILES))
        yield from tensor_lines(self.tensors(info))

    def tensors(self, info: CheckpointInfo) -> Tensors:
        """The tensors by the names and in the shapes that Transformers' GPT-2 has; absent biases are zeros."""
        tensors = {
            name: transposed(tensor) if TRANSPOSED.search(name) else tensor
            for name, tensor in tensors_of(info.path, content_of(info.path)).items()
        }
        biased = [name for name in tensors if re.search(r"\.(c_\w+|ln_\w)\.weight$", name)]
        biases = {name.replace(".weight", ".bias"): tensors[name].shape[-1] for name in biased}
        zeros = {name: Tensor("F32", (size,), info.path, 0, 0) for name, size in biases.items()}
        return zeros | tensors

    def load(self, info: CheckpointInfo, settings: ModelSettings) -> LoadedModel:
        assert info.tokenizer is not None
        if matching_files(info.tokenizer, TOKENIZER):
            return load_model(info, settings)
        with tempfile.TemporaryDirectory() as folder:
            character_tokenizer(info.tokenizer / CHARACTERS).save_pretrained(folder)
            return load_model(replace(info, tokenizer=Path(folder)), settings)


def content_of(path: Path) -> dict[str, Any]:
    """The content of a file of nanoGPT; of any other, nothing."""
    content = read_pickled(path)
    parts = content if isinstance(content, dict) else {}
    return parts if all(isinstance(parts.get(name), dict) for name in ("model", "model_args")) else {}


def tensors_of(path: Path, content: dict[str, Any]) -> Tensors:
    tensors = without_wrappers(state_dict(path, content["model"]))
    if "transformer.wte.weight" not in tensors:
        raise CheckpointError(
            f"{path}: no model of nanoGPT (transformer.wte.weight is missing); save it again"
        )
    return {name: one for name, one in tensors.items() if not MASK.search(name) or len(one.shape) == 1}


def transposed(tensor: Tensor) -> Tensor:
    rows, columns = tensor.shape
    down, right, offset = tensor.strides or (columns, 1, 0)
    return tensor._replace(shape=(columns, rows), strides=(right, down, offset))


def character_tokenizer(path: Path) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    content = read_objects(path)
    table = content.get("stoi") if isinstance(content, dict) else None
    if not isinstance(table, dict) or sorted(table.values()) != list(range(len(table))):
        raise CheckpointError(f"{path}: no vocabulary of characters (stoi); copy it from the training's data")
    tokenizer = Tokenizer(models.WordLevel({**table, UNKNOWN: len(table)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(UNKNOWN, special=True, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN)
