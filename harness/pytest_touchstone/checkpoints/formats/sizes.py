"""The number of tokens that a checkpoint takes, and the check of the sizes in ``config.json`` against the weights.

A model is built layer by layer and its tensors are allocated by the config: a number that is far too large would cost
hours or all memory before anything compared it with the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints.formats.config_files import ModelConfig
from pytest_touchstone.checkpoints.formats.tensors import Shapes
from pytest_touchstone.core.errors import CheckpointError

_LENGTH_FIELDS: Final = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
_POSITION_TABLE: Final = re.compile(r"(^|\.)(position_embeddings|wpe|embed_positions)\.weight$")
_RELATIVE_TABLE: Final = re.compile(r"(^|\.)encoder\.rel_embeddings\.weight$")
_WORD_TABLE: Final = re.compile(r"(^|\.)(word_embeddings|embed_tokens|wte|embed_in|tok_embeddings)\.weight$")

_PADDING_TYPES: Final = (
    "camembert data2vec-text esm ibert longformer luke mpnet prophetnet roberta roberta-prelayernorm "
    "xlm-roberta xlm-roberta-xl xmod"
)
_PADDING_ROWS: Final = frozenset(_PADDING_TYPES.split())
"""Model types that number positions from the padding index on: ``pad_token_id + 1`` rows are never used. ESM does so
where it has a table; ESM-2 has none."""

HIDDEN_ROWS: Final = dict.fromkeys(
    ["bart", "biogpt", "mbart", "mra", "mvp", "nystromformer", "opt", "plbart", "trocr", "yoso"], 2
)
"""Model types whose table has more rows than the config's length says, with the number of extra rows: all that
transformers has. The first rows were for padding once, and are not used."""

_HIDDEN_WORDS: Final = {"moshi": 1}
"""Model types whose word table has more rows than the config says, with the number of extra rows."""

_DEFAULT: Final = {"masked": 512, "causal": 2048}
_SANE: Final = 10_000_000

_LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_SIDES: Final = (
    *("hidden_size", "n_embd", "dim", "d_model", "embedding_size", "intermediate_size", "n_inner"),
    *("hidden_dim", "ffn_dim", "vocab_size"),
)
_COUNTS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads")

_MOST_LAYERS: Final = 1000
"""More than any model has; some share the tensors of one layer between all."""

_DEEPEST: Final = 4
"""Tables within tables that are looked at."""

_LAXITY: Final = 4
"""A size may be this many times the longest side in the file: packed numbers have shorter ones."""


class Length(NamedTuple):
    """``seq_len`` in tokens; ``overrides`` are config values that the tables in the file contradict."""

    seq_len: int
    overrides: dict[str, int]


def length_of(
    folder: Path, kind: str, config: ModelConfig, shapes: Shapes, tokenizer_length: float | None
) -> Length:
    """The length by table, else by config, else by tokenizer, else 512 (masked) or 2048 (causal).

    A table longer than the config says is used whole. Raises ``CheckpointError`` when a table is shorter than
    the config says.
    """
    field, configured = _configured(config)
    rows = _rows(shapes, _POSITION_TABLE)
    overrides: dict[str, int] = {}
    if rows is not None:
        name, count = rows
        usable = count - HIDDEN_ROWS.get(config.model_type, 0)
        if field is not None and usable < configured:
            raise CheckpointError(
                f"{folder}: shape mismatch, {name} has {count} rows but config.json says "
                f"{field}={configured}; "
                "save the checkpoint again with its own config"
            )
        if field is not None and usable > configured:
            overrides[field] = usable
        configured = usable
    overrides |= _relative_override(folder, config, shapes, overrides)
    if rows is None and overrides.get("max_relative_positions", 0) > configured > 0 and field is not None:
        # No table of positions (position_biased_input false): how far it sees is how long it is.
        overrides[field] = configured = overrides["max_relative_positions"]
    if configured:
        return Length(configured - _unused_rows(config, rows is not None), overrides)
    if tokenizer_length is not None and 0 < tokenizer_length < _SANE:
        return Length(int(tokenizer_length), overrides)
    return Length(_DEFAULT[kind], overrides)


def check_vocabulary(folder: Path, config: ModelConfig, shapes: Shapes) -> None:
    """Raises ``CheckpointError`` when the word table does not have ``vocab_size`` rows."""
    rows = _rows(shapes, _WORD_TABLE)
    if rows is None or config.vocab_size is None:
        return
    if rows[1] - _HIDDEN_WORDS.get(config.model_type, 0) != config.vocab_size:
        raise CheckpointError(
            f"{folder}: shape mismatch, {rows[0]} has {rows[1]} rows but config.json says "
            f"vocab_size={config.vocab_size}; "
            "save the checkpoint again with its own config"
        )


def _configured(config: ModelConfig) -> tuple[str | None, int]:
    for field in _LENGTH_FIELDS:
        value = getattr(config, field)
        if value is not None and 0 < value < _SANE:
            return field, value
    return None, 0


def _rows(shapes: Shapes, pattern: re.Pattern[str]) -> tuple[str, int] | None:
    """Name and rows of the one table of that kind; None when there is none, or several that differ."""
    found = {name: shape[0] for name, shape in shapes.items() if pattern.search(name) and len(shape) == 2}
    return min(found.items()) if len(set(found.values())) == 1 else None


def _unused_rows(config: ModelConfig, has_table: bool) -> int:
    if config.model_type not in _PADDING_ROWS or (config.model_type == "esm" and not has_table):
        return 0
    ahead = 1 if config.model_type == "prophetnet" else 0  # it looks up the positions of coming tokens, too
    return (1 if config.pad_token_id is None else config.pad_token_id) + 1 + ahead


def _relative_override(
    folder: Path, config: ModelConfig, shapes: Shapes, overrides: dict[str, int]
) -> dict[str, int]:
    """DeBERTa's relative table has two rows per bucket, or two per position where it has no buckets."""
    rows = _rows(shapes, _RELATIVE_TABLE)
    if rows is None:
        return {}
    if rows[1] % 2:
        raise CheckpointError(
            f"{folder}: shape mismatch, {rows[0]} has {rows[1]} rows, which are not two per distance; "
            "save the checkpoint again"
        )
    half = rows[1] // 2
    if (config.position_buckets or 0) > 0:
        return {} if half == config.position_buckets else {"position_buckets": half}
    given = config.max_relative_positions or 0
    if given < 1:
        # What the model falls back on, with the table of positions that it will have.
        given = overrides.get("max_position_embeddings", config.max_position_embeddings or 0)
    return {} if half == given else {"max_relative_positions": half}


def check_sizes(path: Path, config: ModelConfig, shapes: Shapes) -> None:
    """Raises ``CheckpointError`` for a size below 1, for one far beyond what the weights hold, and for a negative
    number in a field that takes none."""
    longest = max((side for shape in shapes.values() for side in shape), default=0)
    for name in (*_LAYERS, *_SIDES, *_COUNTS):
        value = _number(config, name)
        if value is None:
            continue
        if value < 1:
            raise _no_size(path, name, value)
        if name in _LAYERS and shapes and value > max(_MOST_LAYERS, len(shapes)):
            raise CheckpointError(
                f"{path}: {name}={value}, but the weights have {len(shapes)} tensors; "
                "save the checkpoint again with its own config"
            )
        if name in _SIDES and shapes and value > _LAXITY * longest:
            raise CheckpointError(
                f"{path}: {name}={value}, but the longest side of a tensor in the weights is {longest}; "
                "save the checkpoint again with its own config"
            )
    _check_numbers(path, config.model_dump())


_NOT_NEGATIVE: Final = re.compile(
    r"^(num|n|d)_|(^|_)(size|sizes|dim|dims|heads|layers|rank|experts|per_tok|groups|kernel|factor)$|eps(ilon)?$"
)
_POSITIVE: Final = re.compile(r"(^|_)(theta|base|base_freq|head_dim)$|^factor$")
_INNER: Final = ("text_config", "rope_parameters", "rope_scaling", "attn_config", "ffn_config")
"""Tables in a config that are about the language model; that of a quantization has numbers of other kinds."""


def _check_numbers(path: Path, config: Mapping[str, Any], within: str = "") -> None:
    """Raises ``CheckpointError`` for a number with which transformers would compute nonsense, or nothing."""
    for name, value in config.items():
        if isinstance(value, dict) and (within or name in _INNER) and within.count(".") < _DEEPEST:
            _check_numbers(path, value, f"{within}{name}.")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        positive, not_negative = _POSITIVE.search(name), _NOT_NEGATIVE.search(name)
        if (positive and not value > 0) or (not_negative and not value >= 0) or value == math.inf:
            raise _no_size(path, f"{within}{name}", value)
    window = config.get("sliding_window")
    if isinstance(window, int) and window < 1 and config.get("use_sliding_window") is not False:
        raise _no_size(path, f"{within}sliding_window", window)
    experts = [config.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts")]
    if any(isinstance(one, int) and one > 0 for one in experts) and config.get("num_experts_per_tok") == 0:
        raise _no_size(path, f"{within}num_experts_per_tok", 0)


def _no_size(path: Path, name: str, value: float) -> CheckpointError:
    return CheckpointError(
        f"{path}: {name}={value} is not possible; save the checkpoint again with its own config"
    )


def _number(config: ModelConfig, name: str) -> int | None:
    value: Any = getattr(config, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
