"""Adapters as the PEFT library saves them: ``adapter_config.json`` and the adapter's weights.

Plain LoRA is described by its tensors: for every module it changes a pair ``lora_A`` [rank, in] and ``lora_B`` [out,
rank], named ``base_model.model.`` and the module's name in the model. The engine adds these by itself. Whatever else
PEFT restores exactly (``CheckpointInfo.by_peft``) is applied by PEFT; the rest is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints.config_files import AdapterConfig, check_inside, progress_of, read_json
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.checkpoints.formats.content import (
    TOKENIZER,
    Tensors,
    count_parameters,
    file_lines,
    has_tokenizer_of,
    matching_files,
    table_line,
    tensor_lines,
)
from pytest_touchstone.checkpoints.formats.transformers import has_tokenizer
from pytest_touchstone.checkpoints.formats.weights import pickled_tensors, read_tensors
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
PICKLED: Final = "adapter_model.bin"

_NAME: Final = re.compile(r"^base_model\.model\.(.+)\.lora_([AB])\.weight$")
_EXPERT: Final = re.compile(r"\.experts\.\d+\.")
"""In the names of modules that transformers may have merged since; PEFT converts them."""

_ELSEWHERE: Final = ("base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version")
"""Settings of an adapter that name places, and do not affect what it computes."""

_MOST: Final = 6
"""The repetitions in a pattern: the time to match it may grow with the length of a name to that power."""

_PLAIN: Final = (
    *(
        *AdapterConfig.model_fields,
        *_ELSEWHERE,
        "task_type",
        "fan_in_fan_out",
        "lora_dropout",
        "layers_pattern",
    ),
    *("init_lora_weights", "loftq_config", "eva_config", "corda_config", "lora_ga_config", "megatron_core"),
    *("qalora_group_size", "runtime_config"),
)
"""The settings that plain LoRA may have; what initializes tensors does not matter once they are trained."""

_CHANGES_BASE: Final = ("pissa", "olora")
_INITIAL: Final = ("true", "false", "gaussian", "orthogonal", "eva", "mica", *_CHANGES_BASE)
"""The values of ``init_lora_weights`` with which loading an adapter gives the model that was trained."""

_UNREAD: Final = (*_ELSEWHERE, "loftq_config", "eva_config", "corda_config", "lora_ga_config")
"""Settings that PEFT does not read when it loads an adapter of these kinds."""

_REFUSED: Final = {
    "alora_invocation_tokens": "depends on the tokens before it",
    "megatron_config": "names code to run",
    "arrow_config": "needs other adapters",
    "sample_at_inference": "draws random numbers for every text",
}
"""Settings with which an adapter cannot be scored, and why."""

_VIRTUAL: Final = (
    *("PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING", "CPT", "CARTRIDGE"),
)
"""Kinds that put tokens of their own before every text."""

_KINDS: Final = (
    *("LORA", "ADALORA", "ADAPTION_PROMPT", "BEFT", "BOFT", "BONE", "C3A", "DEFT", "DELORA", "FOURIERFT"),
    *("FROD", "GLORA", "GRALORA", "HIRA", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "MISS", "OFT"),
    *("OSF", "PEANUT", "PSOFT", "PVERA", "RANDLORA", "ROAD", "SHIRA", "SUPERTUNING", "TINYLORA"),
    *("TRAINABLE_TOKENS", "UNILORA", "VBLORA", "VERA", "WAVEFT"),
)
"""The kinds of adapters whose scores are those of PEFT's own model."""


class LoraTensors(NamedTuple):
    """The names of a module's two tensors, and the scale of their product."""

    down: str
    up: str
    rank: int
    scale: float


class LoraFormat:
    """A folder with an adapter and no whole model."""

    name = "adapter"

    def detect(self, path: Path) -> bool:
        """Return whether the adapter's config is there alone."""
        return (path / CONFIG).is_file() and not (path / "config.json").is_file()

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Describe the adapter with its base. Raises ``CheckpointError``."""
        check_inside(path)
        config = read_json(path / CONFIG, AdapterConfig)
        _check_supported(path / CONFIG, config)
        tensors = adapter_tensors(path)
        by_peft = not _is_plain(config, tensors)
        kind = config.peft_type.upper()
        pairs = {} if by_peft else pairs_of(path, config, tensors)
        ranks = ", ".join(str(rank) for rank in sorted({pair.rank for pair in pairs.values()}))
        what = f"LoRA (rank {ranks}, {len(pairs)} modules)"
        if by_peft:
            what = f"{'LoRA' if kind == 'LORA' else kind} (by PEFT)"
        base = _base(path, config, asked)
        base_parameters, adapter_parameters = base.weights.parameters, count_parameters(tensors)
        return replace(
            base,
            name=path.resolve().name,
            source=asked.source,
            path=path,
            format=self.name,
            architecture=f"{base.architecture} with {what}",
            base=base,
            weights=replace(
                base.weights,
                parameters=None
                if base_parameters is None or adapter_parameters is None
                else base_parameters + adapter_parameters,
            ),
            tokenizer=path
            if has_tokenizer(path) and not has_tokenizer_of(path, base.path)
            else base.tokenizer,
            extra={"adapter_parameters": str(adapter_parameters)},
            takes_adapters=False,
            by_peft=by_peft,
            training=progress_of(path),
        )

    def files(self, info: CheckpointInfo) -> list[Path]:
        """Return config, weights, and the adapter's own tokenizer files.

        The fingerprint of the base covers the base's files.
        """
        named = (info.path / name for name in (CONFIG, WEIGHTS, PICKLED))
        return [*(path for path in named if path.is_file()), *matching_files(info.path, TOKENIZER)]

    def content(self, info: CheckpointInfo) -> Iterator[str]:
        """Yield the lines of settings (without those that name places), tokenizer and tensors."""
        config = read_json(info.path / CONFIG, AdapterConfig).model_dump()
        yield table_line("adapter", {name: value for name, value in config.items() if name not in _ELSEWHERE})
        yield from file_lines(matching_files(info.path, TOKENIZER))
        yield from tensor_lines(adapter_tensors(info.path))


def adapter_tensors(folder: Path) -> Tensors:
    """Read the adapter's tensors from headers.

    Raises ``CheckpointError`` where the weights are missing or broken.
    """
    if (folder / WEIGHTS).is_file():
        return read_tensors(folder / WEIGHTS)
    if not (folder / PICKLED).is_file():
        raise CheckpointError(f"{folder}: no weights of the adapter ({WEIGHTS} or {PICKLED}); copy it again")
    tensors = pickled_tensors(folder / PICKLED)
    if not tensors:
        raise CheckpointError(f"{folder / PICKLED}: no zip archive of torch.save; save the adapter again")
    return tensors


def pairs_of(folder: Path, config: AdapterConfig, tensors: Tensors) -> dict[str, LoraTensors]:
    """Map each module to its pair of tensors, for plain LoRA.

    Raises ``CheckpointError`` for a tensor without its other half, or a rank that contradicts the config.
    """
    halves: dict[str, dict[str, str]] = {}
    for name in tensors:
        if (match := _NAME.match(name)) is not None:
            halves.setdefault(match[1], {})[match[2]] = name
    pairs = {}
    for module, half in sorted(halves.items()):
        if len(half) < 2:
            (there,) = half.values()
            raise CheckpointError(
                f"{folder}: {there!r} is there without its other half; save the adapter again"
            )
        down, up = tensors[half["A"]].shape, tensors[half["B"]].shape
        rank = _by_pattern(config.rank_pattern, module, config.r, folder / CONFIG)
        if len(down) != 2 or len(up) != 2 or down[0] != rank or up[1] != rank or rank < 1:
            raise CheckpointError(
                f"{folder}: shape mismatch, {module} has lora_A {list(down)} and lora_B {list(up)}, but its rank is "
                f"{rank} by {CONFIG}; save the adapter again with its own config"
            )
        alpha = _by_pattern(config.alpha_pattern, module, config.lora_alpha, folder / CONFIG)
        pairs[module] = LoraTensors(
            half["A"], half["B"], rank, alpha / (rank**0.5 if config.use_rslora else rank)
        )
    return pairs


def _is_plain(config: AdapterConfig, tensors: Tensors) -> bool:
    """Return whether an adapter only adds products of two matrices to linear layers."""
    more = {name for name, value in (config.model_extra or {}).items() if value}
    return (
        config.peft_type.upper() == "LORA"
        and config.bias == "none"
        and more <= {*_PLAIN}
        and _initial(config) not in _CHANGES_BASE
        and all(_NAME.match(name) and not _EXPERT.search(name) for name in tensors)
        and all(len(tensor.shape) == 2 for tensor in tensors.values())
    )


def _initial(config: AdapterConfig) -> str:
    return str((config.model_extra or {}).get("init_lora_weights", True)).lower()


def _check_supported(where: Path, config: AdapterConfig) -> None:
    """Raise ``CheckpointError`` for an unsupported adapter, or a harmful config.

    PEFT reads several settings as patterns, also in lists, so that all texts are checked.
    """
    kind, merge = config.peft_type.upper(), "merge it into its model with PEFT and save that"
    if kind in _VIRTUAL:
        raise CheckpointError(
            f"{where}: peft_type {kind!r} puts virtual tokens before every text, which is not supported; "
            "give an adapter that changes the model's layers"
        )
    if kind not in _KINDS:
        raise CheckpointError(f"{where}: peft_type {config.peft_type[:40]!r} is not supported; {merge}")
    more = config.model_extra or {}
    for name, why in _REFUSED.items():
        if more.get(name):
            raise CheckpointError(f"{where}: {name} {why}, which is not supported")
    if kind == "LORA" and _initial(config) not in _INITIAL:
        raise CheckpointError(
            f"{where}: init_lora_weights={_initial(config)[:40]!r} has changed the base in a way that PEFT cannot "
            f"restore; save it with path_initial_model_for_weight_conversion, or {merge}"
        )
    for text in _texts({name: value for name, value in config.model_dump().items() if name not in _UNREAD}):
        matches_pattern(text, "", where)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts within plain values, names of settings too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _by_pattern(patterns: dict[str, Any] | None, module: str, default: Any, where: Path) -> Any:
    """Return the value of the first pattern that fits a module's name, as PEFT does."""
    for pattern, value in (patterns or {}).items():
        if matches_pattern(rf"(.*\.)?({pattern})$", module, where):
            return value
    return default


def matches_pattern(pattern: str, module: str, where: Path) -> bool:
    """Return whether a pattern from a config matches a module's name.

    Raises ``CheckpointError`` for an invalid pattern, and for one that repeats a group or too much, which can take for
    ever.
    """
    try:
        if not re.search(r"\)[*+{]", pattern) and len(re.findall(r"[*+{]", pattern)) <= _MOST:
            return re.match(pattern, module) is not None
    except re.error:
        pass
    raise CheckpointError(
        f"{where}: the pattern {pattern[:80]!r} cannot be used; write out the modules' names"
    )


def _base(folder: Path, config: AdapterConfig, asked: CheckpointRequest) -> CheckpointInfo:
    named = asked.base_model or config.base_model_name_or_path
    if not named:
        raise CheckpointError(f"{folder / CONFIG}: names no base model; give --eval-base-model PATH")
    try:
        if asked.base_model is None and not Path(named).exists() and (folder / named).is_dir():
            named = str(folder / named)
        if LoraFormat().detect(Path(named)):
            raise CheckpointError(f"{named}: an adapter itself; give the model that it was trained on")
        bases = asked.resolve_base(named)
    except CheckpointError as error:
        option = (
            "--eval-base-model"
            if asked.base_model
            else "its base model; --eval-base-model PATH names another"
        )
        raise CheckpointError(f"{folder}: {option}: {error}") from error
    except OSError as error:  # a name too long, a folder that may not be entered
        raise CheckpointError(
            f"{folder / CONFIG}: its base cannot be looked for ({error.strerror})"
        ) from error
    if len(bases) != 1 or not bases[0].takes_adapters:
        raise CheckpointError(
            f"{folder}: its base {named!r} is not one Transformers or GGUF model; give --eval-base-model PATH"
        )
    return bases[0]
