"""Plain LoRA on a loaded base, never merged into it: one model in memory, and at most one adapter on at any time.

A module's output becomes W x + scale * B (A x) (Hu et al. 2021, arXiv 2106.09685), as PEFT computes it. The low-rank
part is in float32 where the adapter is stored in half precision, and the sum in the type of the module's own output.
A hook on the module adds it, so that every caller gets it, also one that passes only some of the rows. With no
adapter on there are no hooks, and the base is unchanged.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.config_files import AdapterConfig, read_json
from pytest_touchstone.checkpoints.formats.lora import (
    CONFIG,
    PICKLED,
    WEIGHTS,
    adapter_tensors,
    fits,
    pairs_of,
)
from pytest_touchstone.core.errors import CheckpointError

if TYPE_CHECKING:
    import torch


class _LowRank(NamedTuple):
    """A [rank, in] and B [out, rank] of one module, on its device."""

    module: Any
    down: torch.Tensor
    up: torch.Tensor
    scale: float


class Adapters:
    """The adapters of one loaded model, by the paths of their folders."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known: dict[str, list[_LowRank]] = {}
        self._hooks: list[Any] = []
        self._on: str | None = None

    @property
    def none(self) -> bool:
        """Return whether no adapter is there."""
        return not self._known

    def add(self, info: CheckpointInfo) -> str:
        """Load an adapter's tensors, unless they are there already, and return the name by which to put it on.

        Raises ``CheckpointError`` where it does not fit the model.
        """
        name = str(info.path)
        if name not in self._known:
            self._known[name] = _low_ranks(info, self._model)
        return name

    def put_on(self, name: str | None) -> None:
        """Make the model the base with that adapter, or with None the base alone."""
        if name == self._on:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks = (
            [one.module.register_forward_hook(partial(_add, one)) for one in self._known[name or ""]]
            if name is not None
            else []
        )
        self._on = name

    def drop(self, name: str) -> None:
        """Free an adapter's tensors."""
        if name == self._on:
            self.put_on(None)
        self._known.pop(name, None)


def _add(one: _LowRank, _module: Any, given: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
    """Return the module's output with the low-rank part added."""
    import torch

    down = torch.nn.functional.linear(given[0].to(one.down.dtype), one.down)
    low = torch.nn.functional.linear(down, one.up).mul_(one.scale)
    return output.add_(low) if output.dtype == low.dtype else (output + low).to(output.dtype)


def _low_ranks(info: CheckpointInfo, model: Any) -> list[_LowRank]:
    """Return every pair with the module it is for, checked."""
    import torch

    config = read_json(info.path / CONFIG, AdapterConfig)
    headers = adapter_tensors(info.path)
    pairs = pairs_of(info.path, config, headers)
    modules = dict(model.named_modules())
    absent = sorted(set(pairs) - set(modules))
    if absent:
        base = info.base.source if info.base is not None else "none"
        raise CheckpointError(
            f"{info.path}: {len(absent)} modules of the adapter are not in its base ({base}): "
            f"{', '.join(absent[:5])}; name its own base with --eval-base-model"
        )
    if left_out := sorted(_wanted(info.path / CONFIG, config, modules) - set(pairs)):
        raise CheckpointError(
            f"{info.path}: {CONFIG} targets {len(left_out)} modules for which there are no tensors: "
            f"{', '.join(left_out[:5])}; save the adapter again, or name its own base with --eval-base-model"
        )
    wrong = []
    for name, pair in pairs.items():
        takes, gives = _sides(modules[name])
        down, up = headers[pair.down].shape, headers[pair.up].shape
        if (down[1], up[0]) != (takes, gives):
            wrong.append(f"{name} {[up[0], down[1]]} in the adapter, {[gives, takes]} in the base")
    if wrong:
        raise CheckpointError(
            f"{info.path}: shape mismatch: {', '.join(wrong[:5])}; name its own base with --eval-base-model"
        )
    tensors = _tensors(info.path)
    half = (torch.float16, torch.bfloat16)
    found = []
    for name, pair in pairs.items():
        weight = modules[name].weight
        down, up = tensors[pair.down], tensors[pair.up]
        where = {"device": weight.device, "dtype": torch.float32 if down.dtype in half else down.dtype}
        found.append(_LowRank(modules[name], down.to(**where), up.to(**where), pair.scale))
    return found


def _tensors(folder: Path) -> dict[str, Any]:
    import torch

    if (folder / WEIGHTS).is_file():
        from safetensors.torch import load_file

        return dict(load_file(folder / WEIGHTS))
    return dict(torch.load(folder / PICKLED, map_location="cpu", weights_only=True))


def _sides(module: Any) -> tuple[int, int]:
    """Return the sizes of a linear module's input and output; (0, 0) for another module."""
    import torch
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, torch.nn.Linear):
        return module.in_features, module.out_features
    if isinstance(module, Conv1D):
        return tuple(module.weight.shape)
    return 0, 0


def _wanted(where: Path, config: AdapterConfig, modules: dict[str, Any]) -> set[str]:
    """Return the modules that the config names, all of which must have tensors.

    None are named by a config that takes all linear modules, excludes some, or chooses layers.
    """
    targets = config.target_modules
    if (
        targets is None
        or targets == "all-linear"
        or config.exclude_modules
        or config.layers_to_transform is not None
    ):
        return set()
    linear = {
        name
        for name, module in modules.items()
        if _sides(module) != (0, 0) and not hasattr(module, "merges")  # whose parts are modules too
    }
    if isinstance(targets, str):
        return {name for name in linear if fits(rf"(?:{targets})\Z", name, where)}
    ends = re.compile(rf"(?:.*\.)?(?:{'|'.join(map(re.escape, targets))})")
    return {name for name in linear if ends.fullmatch(name)}
