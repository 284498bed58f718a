"""The JSON files of a checkpoint folder, and what they tell of its training.

Only the fields that matter here are declared; all others are allowed and left alone.

The files of a checkpoint folder must really be in it. A link out of the folder would let a checkpoint name any file of
the machine as its own. The Hub's cache is the one place where links may lead out: from ``snapshots/REVISION`` into
``blobs`` beside ``snapshots``.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import MOST_SETTINGS, read_regular


def check_inside(folder: Path) -> None:
    """Raise ``CheckpointError`` for a link out of a checkpoint's folder, or to nothing."""
    allowed = [real := folder.resolve()]
    if real.parent.name == "snapshots":
        allowed.append(real.parent.parent / "blobs")
    for path in sorted(folder.iterdir()):
        if not path.is_symlink() or path.is_dir():
            continue
        target = Path(os.path.realpath(path))  # ``resolve`` raises for a link to itself
        if not any(target.is_relative_to(root) for root in allowed):
            raise CheckpointError(
                f"{path}: a link out of the checkpoint's folder (to {target}); copy the file into the folder"
            )
        if not target.exists():
            raise CheckpointError(f"{path}: a link to nothing; copy the file into the folder")


def shard_path(index: Path, shard: str) -> Path:
    """Return the file of a shard that an index names.

    Raises ``CheckpointError`` for a shard that is missing or outside the index's folder.
    """
    if Path(shard).name != shard or shard in ("", ".", "..") or not shard.isprintable():
        raise CheckpointError(
            f"{index}: names the shard {shard[:200]!r}, which is not in its folder; save the checkpoint again"
        )
    path = index.parent / shard
    if not path.is_file():
        raise CheckpointError(f"{path}: missing, though {index.name} names it; copy the checkpoint again")
    return path


@contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Raise ``CheckpointError`` for an ``OSError`` within the block."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or path}: cannot be read ({error.strerror}); check the permissions"
        ) from error


# JSON files


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


class ModelConfig(_Lenient):
    """``config.json``: the kind of model, and the sizes that are checked against the weights."""

    model_type: str
    architectures: list[str] | None = None
    auto_map: dict[str, Any] | None = None
    attn_implementation: str | dict[str, Any] | None = None
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
    max_steps: int | None = None
    num_train_epochs: float | None = None
    train_batch_size: int | None = None
    best_metric: float | None = None
    log_history: list[dict[str, Any]] = []


class AdapterConfig(_Lenient):
    """``adapter_config.json`` of the PEFT library, as far as plain LoRA goes; the PEFT library reads the rest."""

    peft_type: str
    base_model_name_or_path: str | None = None
    r: int | None = Field(8, le=1 << 16)
    lora_alpha: float | None = 8
    use_rslora: bool = False
    target_modules: list[str] | str | None = None
    exclude_modules: list[str] | str | None = None
    layers_to_transform: list[int] | int | None = None
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None
    bias: str = "none"


class ShardIndex(_Lenient):
    """``model.safetensors.index.json``: the shard that holds each tensor. Transformers needs ``metadata`` there
    too."""

    weight_map: dict[str, str]
    metadata: dict[str, Any]


class TokenizerConfig(_Lenient):
    """The length in ``tokenizer_config.json``, a huge number if it was never set."""

    model_max_length: float | None = None
    auto_map: Any = None


class GenerationConfig(_Lenient):
    """``generation_config.json``: the tokens that end a text. Transformers would silently go on without a broken
    one."""

    eos_token_id: int | list[int] | None = None


class LlamaParams(_Lenient):
    """``params.json`` of Llama's reference code; Transformers' names for the sizes are accepted."""

    dim: int = Field(validation_alias=AliasChoices("dim", "hidden_size"), gt=0)
    n_heads: int = Field(validation_alias=AliasChoices("n_heads", "num_attention_heads"), gt=0)
    n_layers: int | None = Field(None, validation_alias=AliasChoices("n_layers", "num_hidden_layers"))
    n_kv_heads: int | None = Field(None, validation_alias=AliasChoices("n_kv_heads", "num_key_value_heads"))
    norm_eps: float | None = Field(None, validation_alias=AliasChoices("norm_eps", "rms_norm_eps"))
    max_seq_len: int | None = Field(
        None, validation_alias=AliasChoices("max_seq_len", "max_position_embeddings")
    )
    vocab_size: int | None = None
    n_future_tokens: int | None = None


Model = TypeVar("Model", bound=BaseModel)


def read_json(path: Path, model: type[Model]) -> Model:
    """Read and validate a JSON file.

    Raises ``CheckpointError`` naming the file and the first fault.
    """
    with readable(path):
        text = read_regular(path, MOST_SETTINGS)
    with _validation(path):
        return model.model_validate_json(text)


def check_table(path: Path, table: Any, model: type[Model]) -> Model:
    """Validate a table that was read from within a file.

    Raises ``CheckpointError`` naming the file and the first fault.
    """
    with _validation(path):
        return model.model_validate(table)


_VALUES: Final = reprlib.Repr()
_VALUES.maxlevel, _VALUES.maxstring, _VALUES.maxother, _VALUES.maxlong = 2, 200, 200, 200


@contextmanager
def _validation(path: Path) -> Iterator[None]:
    """Raise ``CheckpointError`` for a validation error within the block, naming its first fault."""
    try:
        yield
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(step) for step in fault["loc"])
        reason = fault["msg"][:1].lower() + fault["msg"][1:]
        if fault["type"] == "json_invalid":
            reason = f"not valid JSON ({fault['ctx']['error']})"
        elif fault["type"] == "missing":
            reason = f"the field {field!r} is missing"
        elif field:
            # The text of nested lists that share their lists doubles with each level.
            shown = _VALUES.repr(fault["input"])
            shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
            reason = f"{field}={shown}: {reason}"
        raise CheckpointError(f"{path}: {reason}; save the checkpoint again") from error


# Training


_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class TrainingState:
    """What a checkpoint says of its training: the trainer's step, the epoch, the last validation loss, the settings.

    ``settings`` are plain values. ``series`` is the folder of the checkpoints of one training, and ``step`` the place
    of this one in it: the trainer's step, else the number at the end of its name, else its epoch. Both are set for a
    run (``checkpoints.resolve``).
    """

    global_step: int | None = None
    epoch: float | None = None
    val_loss: float | None = None
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    series: str | None = None
    step: float | None = None


def progress_of(folder: Path) -> TrainingState:
    """Read ``trainer_state.json``; without it only the step is known, from the folder's name."""
    path = folder / "trainer_state.json"
    if not path.is_file():
        return TrainingState(step_in_name(folder.resolve().name))
    state = read_json(path, TrainerState)
    losses = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
    names = ("max_steps", "num_train_epochs", "train_batch_size", "best_metric")
    settings = {name: value for name in names if (value := getattr(state, name)) is not None}
    return TrainingState(
        state.global_step, state.epoch, finite_number(losses[-1]) if losses else None, settings
    )


def step_of_row(row: Mapping[str, Any]) -> int | None:
    """Return the trainer's step in a row of a manifest, result file or table.

    Both names of the field are read. A step that was taken from a name or an epoch does not count: ``gpt2`` is not step
    2.
    """
    return row["global_step"] if "global_step" in row else row.get("step")


def seq_len_of_row(row: Mapping[str, Any]) -> int | None:
    """Return the length in tokens in a row; None for a served model with an assumed length."""
    served = row.get("served") or {"cut": True}
    return row.get("seq_len") if served.get("limit") is not None or served.get("cut") else None


def step_in_name(name: str) -> int | None:
    """Return the step in the name of a checkpoint's folder or file, else None."""
    named = re.fullmatch(r"(?:checkpoint|step|global_step)[-_]?(?:step[-_]?)?(\d+)", name)
    return int(named[1]) if named else None


def finite_number(value: object) -> float | None:
    """Return a finite number as a float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def to_plain_values(value: object, deeper: int = 6, left: list[int] | None = None) -> Any:
    """Convert a value to tables, lists, text and finite numbers, cut at depth and length.

    ``deeper`` is the number of levels that are kept. ``left`` has the number of values that may still follow: a few
    bytes of a pickle can repeat one value many times.
    """
    left = [2000] if left is None else left
    left[0] -= 1
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return value if finite_number(value) is not None and abs(value) < 1 << 63 else None
    if isinstance(value, str):
        return value[:_LONGEST]
    if deeper and left[0] > 0 and isinstance(value, dict):
        names = [key for key in value if isinstance(key, (str, int)) and left[0] > 0]
        return {
            str(key)[:_LONGEST]: to_plain_values(value[key], deeper - 1, left)
            for key in names[: max(0, left[0])]
        }
    if deeper and left[0] > 0 and isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return [to_plain_values(inner, deeper - 1, left) for inner in value[: left[0]]]
    return str(getattr(value, "shown", "…"))
