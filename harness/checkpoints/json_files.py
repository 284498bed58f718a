"""The JSON files of a checkpoint folder, read through pydantic.

Only the fields that matter here are declared; all others are allowed and left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import CheckpointError


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


class ModelConfig(_Lenient):
    """``config.json``: which model it is, and the sizes that are checked against the weights."""

    model_type: str
    architectures: list[str] | None = None
    is_encoder_decoder: bool = False
    vocab_size: int | None = None
    pad_token_id: int | None = None
    max_position_embeddings: int | None = None
    n_positions: int | None = None
    n_ctx: int | None = None
    max_seq_len: int | None = None
    position_buckets: int | None = None
    max_relative_positions: int | None = None


class TrainerState(_Lenient):
    """``trainer_state.json``, which transformers' Trainer leaves in every checkpoint."""

    global_step: int
    epoch: float | None = None


class ShardIndex(_Lenient):
    """``model.safetensors.index.json``: which shard holds which tensor."""

    weight_map: dict[str, str]


class TokenizerConfig(_Lenient):
    """``tokenizer_config.json``: only the length, which is a huge number when nobody set it."""

    model_max_length: float | None = None


Model = TypeVar("Model", bound=BaseModel)


def read_json(path: Path, model: type[Model]) -> Model:
    """The file's content, checked; a ``CheckpointError`` names the file and the first fault."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}); check the file's rights"
        ) from error
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise CheckpointError(f"{path}: {_first_fault(error.errors())}; save the checkpoint again") from error


def _first_fault(faults: list[Any]) -> str:
    """The first fault of a pydantic report in one line."""
    fault = faults[0]
    if fault["type"] == "json_invalid":
        return f"not valid JSON ({fault['ctx']['error']})"
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"the field {where!r} is missing"
    message = fault["msg"][:1].lower() + fault["msg"][1:]
    return f"{where}={fault['input']!r}: {message}" if where else message
