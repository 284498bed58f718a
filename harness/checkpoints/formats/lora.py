"""LoRA adapters as the PEFT library saves them: ``adapter_config.json`` and the adapter's weights.

An adapter is described by its tensors: for every module it changes a pair ``lora_A`` [rank, in] and ``lora_B`` [out,
rank], named ``base_model.model.`` and the module's name in the model. What plain LoRA does not have (DoRA, biases,
whole modules, embeddings) is refused by name: an adapter that is applied in part answers wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.checkpoints.formats.base import Asked
from harness.checkpoints.formats.config_files import AdapterConfig, read_json
from harness.checkpoints.formats.content import (
    TOKENIZER,
    file_lines,
    has_tokenizer_of,
    matching,
    table_line,
    tensor_lines,
)
from harness.checkpoints.formats.paths import check_inside
from harness.checkpoints.formats.safetensors import read_tensors
from harness.checkpoints.formats.tensors import Tensors, count_parameters
from harness.checkpoints.formats.transformers import has_tokenizer
from harness.checkpoints.formats.weights import pickled_tensors
from harness.checkpoints.info import CheckpointInfo
from harness.checkpoints.training_state import progress_of
from harness.core.errors import CheckpointError

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
PICKLED: Final = "adapter_model.bin"

_NAME: Final = re.compile(r"^base_model\.model\.(.+)\.lora_([AB])\.weight$")
_COPY: Final = re.compile(r"^base_model\.model\.(.+?)(?:\.base_layer)?\.weight$")
"""Embeddings that PEFT saves along where an adapter changes the output layer; loading finds out whether they are the
base's own."""

_ELSEWHERE: Final = ("base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version")
"""Settings of an adapter that name places, and do not affect what it computes."""

_BEYOND: Final = (
    *("use_dora", "modules_to_save", "trainable_token_indices", "target_parameters", "layer_replication"),
    *("alora_invocation_tokens", "use_qalora", "lora_bias", "megatron_config", "arrow_config"),
)
"""Settings with which PEFT computes something other than plain LoRA."""


class Pair(NamedTuple):
    """The two tensors of a module, by their names in the file, and the factor of their product."""

    down: str
    up: str
    rank: int
    scale: float


class Lora:
    """A folder with an adapter and no whole model."""

    name = "adapter"

    def detect(self, path: Path) -> bool:
        """Return whether the adapter's config is there alone."""
        return (path / CONFIG).is_file() and not (path / "config.json").is_file()

    def inspect(self, path: Path, asked: Asked) -> CheckpointInfo:
        """Describe the adapter with its base. Raises ``CheckpointError``."""
        check_inside(path)
        config = read_json(path / CONFIG, AdapterConfig)
        tensors = adapter_tensors(path)
        pairs = pairs_of(path, config, tensors)
        base = _base(path, config, asked)
        own = count_parameters(tensors)
        ranks = ", ".join(str(rank) for rank in sorted({pair.rank for pair in pairs.values()}))
        return replace(
            base,
            name=path.resolve().name,
            source=asked.source,
            path=path,
            format=self.name,
            architecture=f"{base.architecture} with LoRA (rank {ranks}, {len(pairs)} modules)",
            base=base,
            parameters=None if base.parameters is None or own is None else base.parameters + own,
            tokenizer=path
            if has_tokenizer(path) and not has_tokenizer_of(path, base.path)
            else base.tokenizer,
            extra={"adapter_parameters": str(own)},
            takes_adapters=False,
            **asdict(progress_of(path)),
        )

    def files(self, info: CheckpointInfo) -> list[Path]:
        """Config, weights, and a tokenizer of its own; the base's fingerprint is added to theirs."""
        named = (info.path / name for name in (CONFIG, WEIGHTS, PICKLED))
        return [*(path for path in named if path.is_file()), *matching(info.path, TOKENIZER)]

    def content(self, info: CheckpointInfo) -> Iterator[str]:
        """Settings (but those that name places), tokenizer and tensors."""
        config = read_json(info.path / CONFIG, AdapterConfig).model_dump()
        yield table_line("adapter", {name: one for name, one in config.items() if name not in _ELSEWHERE})
        yield from file_lines(matching(info.path, TOKENIZER))
        yield from tensor_lines(adapter_tensors(info.path))


def adapter_tensors(folder: Path) -> Tensors:
    """The adapter's tensors, from headers. Raises ``CheckpointError`` where the weights are missing or broken."""
    if (folder / WEIGHTS).is_file():
        return read_tensors(folder / WEIGHTS)
    if not (folder / PICKLED).is_file():
        raise CheckpointError(f"{folder}: no weights of the adapter ({WEIGHTS} or {PICKLED}); copy it again")
    tensors = pickled_tensors(folder / PICKLED)
    if not tensors:
        raise CheckpointError(f"{folder / PICKLED}: no zip archive of torch.save; save the adapter again")
    return tensors


def pairs_of(folder: Path, config: AdapterConfig, tensors: Tensors) -> dict[str, Pair]:
    """Module name -> its pair. Raises ``CheckpointError`` for what is not plain LoRA, a tensor without its other
    half, or a rank that is not the config's."""
    where = folder / CONFIG
    if config.peft_type.upper() != "LORA":
        raise CheckpointError(
            f"{where}: peft_type {config.peft_type!r} is not supported, only LORA is; merge it"
        )
    beyond = [name for name in _BEYOND if (config.model_extra or {}).get(name)]
    if config.bias != "none" or beyond:
        said = f"bias={config.bias!r}" if config.bias != "none" else beyond[0]
        raise CheckpointError(
            f"{where}: {said} goes beyond plain LoRA; merge it into the model and save that"
        )
    halves: dict[str, dict[str, str]] = {}
    for name in tensors:
        found = _NAME.match(name)
        if found is None and _COPY.match(name) and "lora_" not in name:
            continue
        if found is None:
            raise CheckpointError(f"{folder}: tensor {name!r} is not part of plain LoRA; merge the adapter")
        halves.setdefault(found[1], {})[found[2]] = name
    if not halves:
        raise CheckpointError(f"{folder}: the adapter holds no tensors; save it again with save_pretrained")
    return {module: _pair(folder, config, module, tensors, half) for module, half in sorted(halves.items())}


def copies_of(tensors: Tensors) -> dict[str, str]:
    """Name of a tensor in the file -> the module of the base that it says it is a copy of."""
    copies = {name: _COPY.match(name) for name in tensors if not _NAME.match(name)}
    return {name: found[1] for name, found in copies.items() if found is not None}


def _pair(folder: Path, config: AdapterConfig, module: str, tensors: Tensors, half: dict[str, str]) -> Pair:
    if len(half) < 2:
        (there,) = half.values()
        raise CheckpointError(f"{folder}: {there!r} is there without its other half; save the adapter again")
    down, up = tensors[half["A"]].shape, tensors[half["B"]].shape
    rank = _by_pattern(config.rank_pattern, module, config.r, folder / CONFIG)
    if len(down) != 2 or len(up) != 2 or down[0] != rank or up[1] != rank or rank < 1:
        raise CheckpointError(
            f"{folder}: shape mismatch, {module} has lora_A {list(down)} and lora_B {list(up)}, but its rank is "
            f"{rank} by {CONFIG}; save the adapter again with its own config"
        )
    alpha = _by_pattern(config.alpha_pattern, module, config.lora_alpha, folder / CONFIG)
    return Pair(half["A"], half["B"], rank, alpha / (rank**0.5 if config.use_rslora else rank))


def _by_pattern(patterns: dict[str, Any] | None, module: str, default: Any, where: Path) -> Any:
    """The value of the first pattern that fits the end of the module's name, as PEFT matches them."""
    for pattern, value in (patterns or {}).items():
        if fits(rf"(.*\.)?({pattern})$", module, where):
            return value
    return default


def fits(pattern: str, module: str, where: Path) -> bool:
    """Return whether a pattern from a config matches a module's name.

    Raises ``CheckpointError`` for an invalid pattern, and for one that repeats a group, which can take for ever.
    """
    try:
        if not re.search(r"\)[*+{]", pattern):
            return re.match(pattern, module) is not None
    except re.error:
        pass
    raise CheckpointError(
        f"{where}: the pattern {pattern[:80]!r} cannot be used; write out the modules' names"
    )


def _base(folder: Path, config: AdapterConfig, asked: Asked) -> CheckpointInfo:
    named = asked.base_model or config.base_model_name_or_path
    if not named:
        raise CheckpointError(f"{folder / CONFIG}: names no base model; give --eval-base-model PATH")
    if asked.base_model is None and not Path(named).exists() and (folder / named).is_dir():
        named = str(folder / named)
    try:
        if Lora().detect(Path(named).expanduser()):
            raise CheckpointError(f"{named}: an adapter itself; give the model that it was trained on")
        found = asked.resolve_base(named)
    except CheckpointError as error:
        told = (
            "--eval-base-model"
            if asked.base_model
            else "its base model; --eval-base-model PATH names another"
        )
        raise CheckpointError(f"{folder}: {told}: {error}") from error
    if len(found) != 1 or not found[0].takes_adapters:
        raise CheckpointError(
            f"{folder}: its base {named!r} is not one Transformers or GGUF model; give --eval-base-model PATH"
        )
    return found[0]
