"""Distributed checkpoints as folders of training: of FSDP (Transformers, accelerate), torchtitan, OLMo-core and others.

checkpoint-500/     pytorch_model_fsdp_0/.metadata    beside optimizer_0/, scheduler.pt, trainer_state.json
step-1000/          .metadata                         with the optimizer in the same files
step1000/           model_and_optim/.metadata

Such a folder has no config and no tokenizer, unless someone put them there. They are those of ``--eval-base-model``,
else of the folder or the two above it. Tensors with the names of Llama's reference code make a model of
``formats.llama``, all others one of transformers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic_core import from_json

from pytest_touchstone.checkpoints.config_files import ModelConfig, read_json, readable
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.checkpoints.formats.content import Tensors, file_lines, matching_files, tensor_lines
from pytest_touchstone.checkpoints.formats.dcp import (
    INNER,
    distributed_files,
    is_distributed,
    read_distributed,
)
from pytest_touchstone.checkpoints.formats.llama import SIDE
from pytest_touchstone.checkpoints.formats.llama import describe_llama as llama
from pytest_touchstone.checkpoints.formats.transformers import PATTERNS, describe_transformers
from pytest_touchstone.checkpoints.formats.weights import has_weights, without_wrappers
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import MOST_SETTINGS, read_regular

_OLMO: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"^embeddings\.", "model.embed_tokens."),
        (r"^lm_head\.norm\.", "model.norm."),
        (r"^lm_head\.w_out\.", "lm_head."),
        (r"^blocks\.", "model.layers."),
        (r"\.attention\.w_([qkv])\.", r".self_attn.\1_proj."),
        (r"\.attention\.w_out\.", ".self_attn.o_proj."),
        (r"\.attention\.", ".self_attn."),
        (r"\.feed_forward\.w1\.", ".mlp.gate_proj."),
        (r"\.feed_forward\.w2\.", ".mlp.down_proj."),
        (r"\.feed_forward\.w3\.", ".mlp.up_proj."),
    )
)
"""OLMo-core's names, and those of transformers for the same tensors."""

_OLMO_NORMS: Final = {
    True: (
        (".attention_norm.", ".post_attention_layernorm."),
        (".feed_forward_norm.", ".post_feedforward_layernorm."),
    ),
    False: ((".attention_norm.", ".input_layernorm."), (".feed_forward_norm.", ".post_attention_layernorm.")),
}
"""The same of norms: OLMo's since its second version come after what others' come before."""


class DistributedFormat:
    """A folder that ``torch.distributed.checkpoint`` wrote, or that holds one of the model."""

    name = "distributed"

    def detect(self, path: Path) -> bool:
        """Return whether it is one, and no whole weights are there, which are preferred."""
        return path.is_dir() and not SIDE.match(path.name) and is_distributed(path) and not has_weights(path)

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Describe the checkpoint; of tensors only types, shapes and places are read. Raises ``CheckpointError``."""
        if is_inner(path):
            path = path.parent
        tensors = without_wrappers(read_distributed(path))
        if "tok_embeddings.weight" in tensors:
            return llama(path, asked, tensors, {})
        home = _home(path, asked)
        config = read_json(home / "config.json", ModelConfig)
        if getattr(config, "quantization_config", None) is not None:
            raise CheckpointError(
                f"{home / 'config.json'}: names a quantization, which the weights of a training have not; name the "
                "folder of its model from before that with --eval-base-model"
            )
        info = describe_transformers(path, asked, home, config, lambda: _renamed(tensors, config.model_type))
        return replace(info, format=self.name, tokenizer=home, takes_adapters=False)

    def files(self, info: CheckpointInfo) -> list[Path]:
        """Return the weights with their metadata, config and tokenizer."""
        return [*distributed_files(info.path), *matching_files(info.tokenizer, PATTERNS)]

    def content(self, info: CheckpointInfo) -> Iterator[str]:
        """Yield the lines of a Transformers folder with equal tensors."""
        yield from file_lines(matching_files(info.tokenizer, PATTERNS))
        yield from tensor_lines(self.tensors(info))

    def tensors(self, info: CheckpointInfo) -> Tensors:
        """Return the tensors under Transformers' names."""
        return _renamed(without_wrappers(read_distributed(info.path)), info.model_type)


def is_inner(folder: Path) -> bool:
    """Return whether a folder holds the weights of the checkpoint around it."""
    return folder.name in INNER and is_distributed(folder) and is_distributed(folder.parent)


def _renamed(tensors: Tensors, model_type: str) -> Tensors:
    """Return the tensors under transformers' names, where they have those of OLMo-core."""
    if "embeddings.weight" not in tensors or "blocks.0.attention.w_q.weight" not in tensors:
        return tensors
    renamed = {}
    for name, tensor in tensors.items():
        new_name = name
        for pattern, new in _OLMO:
            new_name = pattern.sub(new, new_name)
        for old, new in _OLMO_NORMS[model_type in ("olmo2", "olmo3")]:
            new_name = new_name.replace(old, new)
        renamed[new_name] = tensor
    return renamed


def _home(path: Path, asked: CheckpointRequest) -> Path:
    """Return the folder with config and tokenizer."""
    if asked.base_model is not None:
        given = Path(asked.base_model).expanduser()
        return given if _has_config(given) else asked.resolve_base(asked.base_model)[0].path
    for folder in (path, *path.resolve().parents[:2]):
        if _has_config(folder):
            return folder
    raise CheckpointError(
        f"{path}: a distributed checkpoint without config.json and tokenizer, and none are in the folders above it; "
        "name the folder of the model that was trained with --eval-base-model"
    )


def _has_config(folder: Path) -> bool:
    """Return whether there is a config for Transformers; OLMo-core has another file of this name."""
    path = folder / "config.json"
    if not path.is_file():
        return False
    with readable(path):
        text = read_regular(path, MOST_SETTINGS)
    try:
        content = from_json(text)
    except ValueError:
        return True  # which is told where it is read
    return not isinstance(content, dict) or "model_type" in content
