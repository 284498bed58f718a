"""The keys of a GGUF file that describe its model: their meaning in Transformers, and refused ones.

llama.cpp computes with whatever a file says. Transformers reads some of it and ignores the rest. So every key of the
architecture is one of these here: Transformers reads it, or it becomes a value of the config, or it says what the
model does anyway. Any other is refused by name. Keys that only describe the file (``general.*``, ``quantize.*``, those
of people who quantize) are not looked at; those of the tokenizer are in ``gguf_tokenizer``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import join_names


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """The length of an array or text that is not kept."""

    count: int


Value: TypeAlias = bool | int | float | str | tuple[Any, ...] | SkippedArray

_RMS: Final = "attention.layer_norm_rms_epsilon"
_LAYER_NORM: Final = "attention.layer_norm_epsilon"
_WINDOW: Final = "attention.sliding_window"

_SHAPE: Final = (
    *("context_length", "block_count", "embedding_length", "feed_forward_length", "vocab_size"),
    *("attention.head_count", "attention.head_count_kv"),
)
"""Sizes, which Transformers reads for every architecture."""

_ENDLESS: Final = 1 << 62
_TEXTS: Final = ("tensor_data_layout", "rope.scaling.type")
"""Keys whose values are texts; the former is history."""

ROPE_FREQUENCIES: Final = "rope_freqs.weight"
"""The tensor of numbers that the frequencies of Llama 3.1 and later are divided by."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The use of the keys of one architecture, which are named without its name here.

    ``config``: the names of values in Transformers' config. ``reads``: what Transformers makes a config of by itself.
    ``rope``: whether heads are rotated as a whole, in part, not at all, or as Transformers reads it. ``scalings`` are
    the ways to scale it that are the same in both. ``head_dim``: the size of heads is free. ``biases``: switches in the
    config for biases of attention and of the other layers. ``neutral``: values of what the model does anyway.
    """

    config: Mapping[str, str]
    reads: tuple[str, ...] = ()
    rope: Literal["whole", "part", "none", "read"] = "whole"
    scalings: tuple[str, ...] = ()
    head_dim: bool = False
    biases: tuple[str, ...] = ()
    neutral: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


_BOTH: Final = ("linear", "yarn")
_EXPERTS: Final = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_GEMMA: Final = {_RMS: "rms_norm_eps", _WINDOW: "sliding_window"}
_QWEN35: Final = (
    *(
        _RMS,
        "attention.key_length",
        "attention.value_length",
        "full_attention_interval",
        "nextn_predict_layers",
    ),
    *("ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"),
    *("rope.freq_base", "rope.dimension_sections", "rope.dimension_count"),
)
_MOE: Final = (
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
)

ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "llama": Architecture(
        {_RMS: "rms_norm_eps"}, scalings=_BOTH, head_dim=True, biases=("attention_bias", "mlp_bias")
    ),
    "qwen2": Architecture({_RMS: "rms_norm_eps"}, scalings=_BOTH, head_dim=True),
    "qwen3": Architecture({_RMS: "rms_norm_eps"}, scalings=_BOTH, head_dim=True, biases=("attention_bias",)),
    "qwen2moe": Architecture(
        {
            _RMS: "rms_norm_eps",
            **_EXPERTS,
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        },
        scalings=_BOTH,
        neutral={"expert_weights_norm": (False,)},
    ),
    "qwen3moe": Architecture(
        {_RMS: "rms_norm_eps", **_EXPERTS},
        scalings=_BOTH,
        head_dim=True,
        biases=("attention_bias",),
        neutral={"expert_weights_norm": (True,)},
    ),
    "phi3": Architecture({_RMS: "rms_norm_eps", _WINDOW: "sliding_window"}, rope="part"),
    "gemma2": Architecture(
        {
            **_GEMMA,
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        head_dim=True,
        neutral={"attention.sliding_window_pattern": (2,)},
    ),
    "gemma3": Architecture(
        {
            **_GEMMA,
            "rope.freq_base_swa": "rope_local_base_freq",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        scalings=("linear",),
        head_dim=True,
        neutral={"attention.sliding_window_pattern": (6,)},
    ),
    "falcon": Architecture(
        {_LAYER_NORM: "layer_norm_epsilon"}, neutral={"attention.head_count_kv": (1,)}, scalings=("linear",)
    ),
    "stablelm": Architecture(
        {_LAYER_NORM: "layer_norm_eps", "use_parallel_residual": "use_parallel_residual"}, rope="part"
    ),
    "starcoder2": Architecture(
        {_LAYER_NORM: "norm_epsilon", _WINDOW: "sliding_window"}, scalings=("linear",)
    ),
    "nemotron": Architecture(
        {_LAYER_NORM: "norm_eps"}, rope="part", head_dim=True, biases=("attention_bias", "mlp_bias")
    ),
    "gpt2": Architecture({_LAYER_NORM: "layer_norm_epsilon", "context_length": "n_positions"}, rope="none"),
    "bloom": Architecture(
        {_LAYER_NORM: "layer_norm_epsilon"}, rope="none", neutral={"attention.max_alibi_bias": (8,)}
    ),
    "mamba": Architecture(
        {_RMS: "layer_norm_epsilon"},
        reads=("ssm.conv_kernel", "ssm.state_size", "ssm.time_step_rank", "ssm.inner_size"),
        rope="none",
    ),
    "lfm2": Architecture({}, reads=(_RMS, "shortconv.l_cache", "rope.freq_base"), rope="read"),
    "qwen35": Architecture({}, reads=_QWEN35, rope="read"),
    "qwen35moe": Architecture({}, reads=(*_QWEN35, *_MOE), rope="read"),
}

_ONE: Final = (0, 1)
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("logit_scale", "residual_scale", "embedding_scale", "expert_weights_scale"), _ONE),
    "attention.causal": (True,),
    "expert_gating_func": _ONE,
    "use_parallel_residual": (False,),
    **dict.fromkeys(
        (
            *(
                "attn_logit_softcapping",
                "final_logit_softcapping",
                "router_logit_softcapping",
                "pooling_type",
            ),
            *(
                "attention.clamp_kqv",
                "attention.max_alibi_bias",
                "attention.scale",
                _WINDOW,
                "ssm.dt_b_c_rms",
            ),
            *("expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_count"),
            *("expert_shared_feed_forward_length", "expert_group_count", "expert_group_used_count"),
            *(
                "expert_weights_norm",
                "nextn_predict_layers",
                "leading_dense_block_count",
                "moe_every_n_layers",
            ),
        ),
        (0,),
    ),
}
"""Values that mean that there is no such thing."""

_NO_MODEL: Final = {
    "adapter": "a LoRA adapter for llama.cpp; give the folder that PEFT saved",
    "mmproj": "the part of a model that reads images or sound; give the file of its language model",
    "vocab": "a vocabulary alone; give the model's own file",
    "imatrix": "statistics for quantizing; give the model's own file",
}

_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})$")


def refusal_error(path: Path, what: str) -> CheckpointError:
    """Return the error for what Transformers would ignore, with the alternative."""
    return CheckpointError(f"{path}: {what}, which cannot be honoured here; give llama-server:{path} instead")


def format_key(key: str, value: Value) -> str:
    """Return a key with its value, shortened."""
    return f"{key} = {value!r:.40}" if not isinstance(value, SkippedArray) else key


def check_kind(path: Path, keys: Mapping[str, Value]) -> None:
    """Raise ``CheckpointError`` for a shard of a model, or another kind of file."""
    name = _PART.search(path.stem)
    count = keys.get("split.count", int(name[2]) if name else 1)
    if isinstance(count, int) and count > 1:
        first = path.with_name(_PART.sub(f"-00001-of-{count:05}", path.stem) + path.suffix)
        raise CheckpointError(
            f"{path}: one of {count} parts of a model; join them (llama-gguf-split --merge {first} MODEL.gguf), or "
            f"give llama-server:{first}"
        )
    kind = keys.get("general.type", "model")
    if keys.get("general.architecture") == "clip":
        kind = "mmproj"
    elif "adapter.type" in keys:
        kind = "adapter"
    if kind != "model":
        raise CheckpointError(
            f"{path}: {_NO_MODEL.get(str(kind), f'no model, but of the type {kind!r:.40}')}"
        )


def config_values(
    path: Path, architecture: str, keys: Mapping[str, Value], tensors: Collection[str]
) -> dict[str, Any]:
    """Return the config values that Transformers' own GGUF reader omits or mistakes.

    Raises ``CheckpointError`` naming the keys and tensors that no value stands for.
    """
    if architecture not in ARCHITECTURES:
        raise refusal_error(path, f"is of the architecture {architecture!r:.40}")
    return _MetadataReader(path, architecture, keys, tensors).values()


def check_complete(path: Path, architecture: str, keys: Mapping[str, Value]) -> None:
    """Raise ``CheckpointError`` where a number is missing that would be another model's default."""
    form = ARCHITECTURES[architecture]
    needed = ["block_count", "embedding_length"]
    needed += [name for name in (_RMS, _LAYER_NORM) if name in (*form.config, *form.reads)]
    needed += [] if architecture == "mamba" else ["attention.head_count"]
    for name in needed:
        if f"{architecture}.{name}" not in keys:
            raise CheckpointError(f"{path}: its header names no {architecture}.{name}; convert it again")


class _MetadataReader:
    """The keys of a file while they are turned into values."""

    def __init__(
        self, path: Path, architecture: str, keys: Mapping[str, Value], tensors: Collection[str]
    ) -> None:
        self._path, self._name, self._tensors = path, architecture, tensors
        self._form = ARCHITECTURES[architecture]
        start = f"{architecture}."
        self._keys = {key.removeprefix(start): value for key, value in keys.items() if key.startswith(start)}
        self._foreign = {
            key: value for key, value in keys.items() if key.startswith(("diffusion.", "xielu."))
        }
        self._values: dict[str, Any] = {}
        self._refused: dict[str, Value] = {}

    def values(self) -> dict[str, Any]:
        """Return all values. Raises ``CheckpointError`` for unsupported keys."""
        for name, value in self._keys.items():
            if not self._understood(name, value):
                self._refused[f"{self._name}.{name}"] = value
        names = [format_key(key, value) for key, value in (self._refused | self._foreign).items()]
        # Tensors of layers are looked for in the model once it is there.
        elsewhere = ("v.", "mm.", "cls.", "rope_")
        names += sorted(
            name
            for name in self._tensors
            if name.startswith(elsewhere) and not (name == ROPE_FREQUENCIES and self._name == "llama")
        )
        if names:
            raise refusal_error(self._path, f"holds {join_names(names, 3)}")
        self._set_rope()
        self._set_rest()
        return self._values

    def _understood(self, name: str, value: Value) -> bool:
        """Store the config value of a key, if any; return whether the key is supported.

        A key is supported if Transformers reads it, if it maps to a config value, or if it has a neutral value. The
        caller refuses a file with any other key, since Transformers would ignore it silently.
        """
        form = self._form
        if not (name in _TEXTS if isinstance(value, str) else _is_sane(value)):
            return name == "rope.scaling.yarn_ext_factor" and value == -1
        if name in form.reads:
            return True
        if name.startswith("rope.") and name not in form.config:
            return form.rope == "none" or self._understood_rope(name, value)
        if isinstance(value, (tuple, SkippedArray)):
            return name == "attention.head_count_kv" and form.rope == "read"
        if name in form.config:
            self._values[form.config[name]] = value
            return True
        plain = name in _SHAPE or name == "tensor_data_layout"
        return (plain and name not in form.neutral) or self._is_neutral(name, value)

    def _is_neutral(self, name: str, value: Value) -> bool:
        """Return whether a value says what the model does anyway."""
        form = self._form
        if name in ("attention.key_length", "attention.value_length"):
            free = form.head_dim and value == self._keys.get("attention.key_length")
            return free or value == self._head
        if name == "attention.scale" and self._head_dim:
            return _is_close_to_any(value, (0, self._head_dim**-0.5))
        if name == _WINDOW and isinstance(value, int) and value >= self._number("context_length", _ENDLESS):
            return True
        return _is_close_to_any(value, form.neutral.get(name, _NEUTRAL.get(name, ())))

    def _understood_rope(self, name: str, value: Value) -> bool:
        if name == "rope.dimension_count":
            size = self._head_dim
            return self._form.rope == "part" or value == size or not size
        if name in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
            return _is_close_to_any(value, (1,))
        if name == "rope.scaling.yarn_ext_factor":
            return _is_close_to_any(value, (1, -1) if self._scaling[0] == "yarn" else (0, 1, -1))
        if name == "rope.scaling.yarn_log_multiplier":
            return _is_close_to_any(value, (0,))
        if name in ("rope.scaling.type", "rope.scaling.factor", "rope.scale_linear"):
            return self._scaling[0] in ("none", *self._form.scalings)
        names = ("finetuned", "original_context_length", "yarn_beta_fast", "yarn_beta_slow")
        return name == "rope.freq_base" or name in {f"rope.scaling.{each}" for each in names}

    @property
    def _scaling(self) -> tuple[str, float]:
        """The way in which frequencies are scaled ("none" for none) and the factor."""
        factor = self._number("rope.scaling.factor", 0) or self._number("rope.scale_linear", 0)
        kind = str(self._keys.get("rope.scaling.type", "linear"))
        return ("none", 1.0) if kind in ("linear", "yarn") and factor in _ONE else (kind, factor)

    @property
    def _head(self) -> int:
        """The size of a head where the file does not name it; 0 where that is not known."""
        count = self._number("attention.head_count", 0)
        return int(self._number("embedding_length", 0)) // int(count) if count else 0

    @property
    def _head_dim(self) -> int:
        """The size of a head."""
        return int(self._number("attention.key_length", self._head))

    def _number(self, name: str, default: float) -> float:
        value = self._keys.get(name, default)
        return value if isinstance(value, (int, float)) and _is_sane(value) else default

    def _set_rope(self) -> None:
        form, values = self._form, self._values
        if form.rope in ("none", "read"):
            return
        # llama.cpp's default, which is not that of every config.
        values["rope_theta"] = float(self._number("rope.freq_base", 10_000.0))
        kind, factor = self._scaling
        values["rope_scaling"] = None if kind == "none" else {"rope_type": kind, "factor": float(factor)}
        if kind == "yarn":
            length = self._number("context_length", 0)
            values["rope_scaling"] |= {
                "original_max_position_embeddings": int(
                    self._number("rope.scaling.original_context_length", length)
                ),
                "beta_fast": float(self._number("rope.scaling.yarn_beta_fast", 32.0)),
                "beta_slow": float(self._number("rope.scaling.yarn_beta_slow", 1.0)),
            }
        if form.rope == "part" and (size := self._head_dim):
            rotated = int(self._number("rope.dimension_count", size))
            values["partial_rotary_factor"] = rotated / size
            if int(size * (rotated / size)) != rotated:
                raise refusal_error(self._path, f"holds {self._name}.rope.dimension_count = {rotated}")

    def _set_rest(self) -> None:
        form, values = self._form, self._values
        if form.rope == "read":
            return
        values["tie_word_embeddings"] = "output.weight" not in self._tensors
        if self._name == "llama":
            values["model_type"] = "llama"  # also where general.name is "mistral"
        if form.head_dim and (size := self._head_dim):
            values["head_dim"] = size
        if values.get("sliding_window") == 0:
            values["sliding_window"] = None
        for switch, layers in zip(form.biases, (r"attn_(q|k|v|output)", r"ffn_(gate|up|down)"), strict=False):
            values[switch] = any(re.fullmatch(rf"blk\.\d+\.{layers}\.bias", name) for name in self._tensors)
        if self._name in ("gemma2", "gemma3") and (size := self._head_dim):
            # The largest of both kinds has another scale; llama.cpp tells them by their layers, too.
            largest = self._keys.get("block_count") == {"gemma2": 46, "gemma3": 62}[self._name]
            values["query_pre_attn_scalar"] = self._head if largest else size
        if self._name == "mamba" and "ssm.inner_size" in self._keys:
            width, size = (int(self._number(name, 1)) for name in ("ssm.inner_size", "embedding_length"))
            if width % size:
                raise refusal_error(self._path, f"holds mamba.ssm.inner_size = {width}")
            values["expand"] = width // size


def _is_sane(value: Value) -> bool:
    """Return whether a value, if it is a number, is finite and none below 0."""
    return not isinstance(value, (int, float)) or 0 <= value < _ENDLESS


def _is_close_to_any(value: Value, allowed: tuple[Any, ...]) -> bool:
    """Return whether a number is one of these, as precisely as 32 bits are."""
    if isinstance(value, (str, tuple, SkippedArray)):
        return False
    return any(isclose(value, each, rel_tol=1e-5) for each in allowed)
