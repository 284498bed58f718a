"""The JSON files of a checkpoint folder, read through pydantic.

Only the fields that matter here are declared; all others are allowed and left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from pytest_touchstone.checkpoints.formats.paths import readable
from pytest_touchstone.core.errors import CheckpointError


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
    """``tokenizer_config.json``: only the length, which is a huge number when nobody set it."""

    model_max_length: float | None = None
    auto_map: Any = None


class GenerationConfig(_Lenient):
    """``generation_config.json``: the tokens that end a text. Transformers would silently go on without a broken
    one."""

    eos_token_id: int | list[int] | None = None


class LlamaParams(_Lenient):
    """``params.json`` of Llama's reference code, and the names that Transformers has for the same sizes."""

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
    """The file's content, checked; a ``CheckpointError`` names the file and the first fault."""
    with readable(path):
        text = path.read_bytes()
    with _valid(path):
        return model.model_validate_json(text)


def _first_fault(faults: list[Any]) -> str:
    """The first fault of a pydantic report in one line."""
    fault = faults[0]
    if fault["type"] == "json_invalid":
        return f"not valid JSON ({fault['ctx']['error']})"
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"the field {where!r} is missing"
    message = fault["msg"][:1].lower() + fault["msg"][1:]
    shown = repr(fault["input"])
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return f"{where}={shown}: {message}" if where else message


def check_table(path: Path, table: Any, model: type[Model]) -> Model:
    """The same for a table that was read already, from within a file."""
    with _valid(path):
        return model.model_validate(table)


@contextmanager
def _valid(path: Path) -> Iterator[None]:
    """The checked content; a ``CheckpointError`` names the file and the first fault."""
    try:
        yield
    except ValidationError as error:
        raise CheckpointError(f"{path}: {_first_fault(error.errors())}; save the checkpoint again") from error
