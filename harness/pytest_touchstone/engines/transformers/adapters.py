"""Adapters on a loaded base, never merged into it: plain LoRA by hooks, all others as the PEFT library applies them.

Of plain LoRA at most one adapter is on at any time. A module's output becomes W x + scale * B (A x) (Hu et al. 2021,
arXiv 2106.09685), as PEFT computes it. The low-rank part is in float32 where the adapter is stored in half precision,
and the sum in the type of the module's own output. A hook on the module adds it, so that every caller gets it, also one
that passes only some of the rows. With no adapter on there are no hooks, and the base is unchanged.

Each of the others gets modules of its own around the base's weights, which all share, so that PEFT may replace and wrap
modules as it likes. Weights that loading an adapter changes in place are copied before, and afterwards only those that
did change are kept. The base's layers are neither fused nor packed: PEFT knows no such layers.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.config_files import AdapterConfig, read_json
from pytest_touchstone.checkpoints.formats.lora import (
    CONFIG,
    PICKLED,
    WEIGHTS,
    adapter_tensors,
    matches_pattern,
    pairs_of,
)
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.loading import LoadedModel, one_line_errors

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
        """Load an adapter's tensors, unless they are loaded, and return the name for ``put_on``.

        Raises ``CheckpointError`` where it does not fit the model.
        """
        name = str(info.path)
        if name not in self._known:
            self._known[name] = _load_low_ranks(info, self._model)
        return name

    def put_on(self, name: str | None) -> None:
        """Make the model the base with that adapter, or with None the base alone."""
        if name == self._on:
            return
        for hook in self._hooks:
            hook.remove()
        pairs = [] if name is None else self._known[name]
        self._hooks = [pair.module.register_forward_hook(partial(_add_low_rank, pair)) for pair in pairs]
        self._on = name

    def drop(self, name: str) -> None:
        """Free an adapter's tensors."""
        if name == self._on:
            self.put_on(None)
        self._known.pop(name, None)


def _add_low_rank(pair: _LowRank, _module: Any, given: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
    """Return the module's output with the low-rank part added."""
    import torch

    down = torch.nn.functional.linear(given[0].to(pair.down.dtype), pair.down)
    low = torch.nn.functional.linear(down, pair.up).mul_(pair.scale)
    return output.add_(low) if output.dtype == low.dtype else (output + low).to(output.dtype)


def scale_adapter(model: Any, factor: float) -> bool:
    """Multiply the output of the active adapter by a factor; return whether there is one.

    Its hooks are replaced, not changed.
    """
    hooks = [
        (module, key, hook.args[0])
        for module in model.modules()
        for key, hook in module._forward_hooks.items()
        if isinstance(hook, partial) and hook.func is _add_low_rank
    ]
    for module, key, pair in hooks:
        module._forward_hooks[key] = partial(_add_low_rank, pair._replace(scale=factor * pair.scale))
    return bool(hooks)


def _load_low_ranks(info: CheckpointInfo, model: Any) -> list[_LowRank]:
    """Return every low-rank pair with its module, checked."""
    import torch

    config = read_json(info.path / CONFIG, AdapterConfig)
    headers = adapter_tensors(info.path)
    pairs = pairs_of(info.path, config, headers)
    modules = dict(model.named_modules())
    if absent := sorted(set(pairs) - set(modules)):
        base = info.base.source if info.base is not None else "none"
        raise CheckpointError(
            f"{info.path}: {len(absent)} modules of the adapter are not in its base ({base}): "
            f"{', '.join(absent[:5])}; name its own base with --eval-base-model"
        )
    if left_out := sorted(_targeted_modules(info.path / CONFIG, config, modules) - set(pairs)):
        raise CheckpointError(
            f"{info.path}: {CONFIG} targets {len(left_out)} modules for which there are no tensors: "
            f"{', '.join(left_out[:5])}; save the adapter again, or name its own base with --eval-base-model"
        )
    wrong = []
    for name, pair in pairs.items():
        takes, gives = _linear_shape(modules[name])
        down, up = headers[pair.down].shape, headers[pair.up].shape
        if (down[1], up[0]) != (takes, gives):
            wrong.append(f"{name} {[up[0], down[1]]} in the adapter, {[gives, takes]} in the base")
    if wrong:
        raise CheckpointError(
            f"{info.path}: shape mismatch: {', '.join(wrong[:5])}; name its own base with --eval-base-model"
        )
    tensors = _tensors(info.path)
    low_ranks = []
    for name, pair in pairs.items():
        down, up = tensors[pair.down], tensors[pair.up]
        is_half = down.dtype in (torch.float16, torch.bfloat16)
        where = {"device": modules[name].weight.device, "dtype": torch.float32 if is_half else down.dtype}
        low_ranks.append(_LowRank(modules[name], down.to(**where), up.to(**where), pair.scale))
    return low_ranks


def _tensors(folder: Path) -> dict[str, Any]:
    import torch

    with one_line_errors(f"{folder}: its weights cannot be loaded", "save the adapter again"):
        if (folder / WEIGHTS).is_file():
            from safetensors.torch import load_file

            return dict(load_file(folder / WEIGHTS))
        return dict(torch.load(folder / PICKLED, map_location="cpu", weights_only=True))


def _linear_shape(module: Any) -> tuple[int, int]:
    """Return the sizes of a linear module's input and output; (0, 0) for another module."""
    import torch
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, torch.nn.Linear):
        return module.in_features, module.out_features
    if isinstance(module, Conv1D):
        return tuple(module.weight.shape)
    return 0, 0


def _targeted_modules(where: Path, config: AdapterConfig, modules: dict[str, Any]) -> set[str]:
    """Return the modules that the config names, which must all have tensors.

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
        if _linear_shape(module) != (0, 0) and not hasattr(module, "merges")  # whose parts are modules too
    }
    if isinstance(targets, str):
        return {name for name in linear if matches_pattern(rf"(?:{targets})\Z", name, where)}
    ends = re.compile(rf"(?:.*\.)?(?:{'|'.join(map(re.escape, targets))})")
    return {name for name in linear if ends.fullmatch(name)}


_NAME: Final = "default"
"""PEFT's name for the only adapter of a model."""

_WRAPPED: Final = re.compile(r"\.(?:base_layer|token_adapter|original_module|modules_to_save)(?=\.)")
"""What PEFT puts into the names of a base's tensors that an adapter stores."""

_CLOSE: Final = 1e-3
"""The difference between two loads that counts as rounding, relative to the largest logit."""


def check_peft(info: CheckpointInfo) -> None:
    """Raise ``CheckpointError`` where the library is not installed."""
    if find_spec("peft") is None:
        raise CheckpointError(
            f"{info.path}: this adapter needs the package peft; run: pip install 'pytest-touchstone[peft]'"
        )


def apply_peft_adapter(info: CheckpointInfo, base: LoadedModel) -> LoadedModel:
    """Return a model with an adapter applied by PEFT; the base stays unchanged.

    ``base`` has the tokenizer of the adapter, if that has one: its added tokens get embeddings.

    Raises:
        CheckpointError: If the adapter does not fit, or loading it twice gives two models.

    """
    base_source = "none" if info.base is None else info.base.source
    again = f"its base is {base_source}; --eval-base-model names another"
    with quiet(), one_line_errors(f"{info.path}: PEFT {version('peft')} cannot apply it", again):
        config = _config(info.path)
        # PEFT changes weights of the base when it loads such an adapter.
        initial = str(getattr(config, "init_lora_weights", True)).lower()
        changes_base = initial in ("pissa", "olora") or getattr(config, "kasa_config", None) is not None
        rows = _embedding_rows(info, base)
        model = _load_peft_model(info.path, config, base.model, changes_base=changes_base, rows=rows, seed=1)
        if not changes_base:
            first = _logits(model)
            model = _load_peft_model(
                info.path, config, base.model, changes_base=changes_base, rows=rows, seed=2
            )
            if not bool(((_logits(model) - first).abs() <= _CLOSE * first.abs().max()).all()):
                raise CheckpointError(
                    f"{info.path}: PEFT draws random numbers when it loads this adapter, so that the trained model "
                    "cannot be restored; merge it into its model after training and save that"
                )
    return replace(base, model=model, notes=(*base.notes, *_notes(info.path, config)))


def _config(folder: Path) -> Any:
    """Return PEFT's own config of an adapter, which shows no progress."""
    from peft import PeftConfig
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    kind = read_json(folder / CONFIG, AdapterConfig).peft_type.upper()
    if kind not in [peft_type.value for peft_type in PEFT_TYPE_TO_CONFIG_MAPPING]:
        raise CheckpointError(
            f"{folder / CONFIG}: PEFT {version('peft')} does not know peft_type {kind!r}; install another version"
        )
    config: Any = PeftConfig.from_pretrained(str(folder))
    if hasattr(config, "progressbar"):
        config.progressbar = False
    return config


def _embedding_rows(info: CheckpointInfo, base: LoadedModel) -> int:
    """Return the number of embeddings of the model that was trained.

    They are those of the base. Where the adapter has a tokenizer of its own, they are the embeddings that it stores,
    else as many as its tokenizer has tokens, if the base has fewer.
    """
    table = base.model.get_input_embeddings()
    rows = int(table.weight.shape[0])
    if info.tokenizer != info.path:
        return rows
    name = next(name for name, module in base.model.named_modules() if module is table)
    for stored, tensor in adapter_tensors(info.path).items():
        if _WRAPPED.sub("", stored) == f"base_model.model.{name}.weight":
            return tensor.shape[0]
    return max(rows, len(base.tokenizer))


def _load_peft_model(
    folder: Path, config: Any, base: Any, *, changes_base: bool, rows: int, seed: int
) -> Any:
    """Return modules with the adapter, which share the unchanged weights of the base.

    With ``changes_base``, PEFT may change any weight of the base, so all are copied first. The model gets ``rows``
    embeddings; ``seed`` determines the random values of those that neither base nor adapter has.
    """
    import torch
    from peft import PeftModel, get_peft_model_state_dict

    tensors = adapter_tensors(folder)
    stored = {_WRAPPED.sub("", name.removeprefix("base_model.model.")) for name in tensors}
    weights = dict(base.named_parameters())
    shared = [weight for name, weight in weights.items() if not changes_base and name not in stored]
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*shared, *base.buffers())}
    tree = copy.deepcopy(base, memo)
    device = base.device
    where: dict[str, Any] = {"torch_device": str(device)}
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        if rows != int(tree.get_input_embeddings().weight.shape[0]):
            tree.resize_token_embeddings(rows)
        try:
            model = PeftModel.from_pretrained(tree, str(folder), _NAME, config=copy.deepcopy(config), **where)
        except KeyError as error:  # of a whole module that the config names
            if (name := error.args[0] if error.args else None) in tensors:
                raise
            _check_none(
                folder, [str(name)], f"missing from the adapter's weights, though {CONFIG} names its module"
            )
        mapping = getattr(tree, "_checkpoint_conversion_mapping", {})
        report = model.load_adapter(str(folder), _NAME, key_mapping=mapping, **where)
    missing = set(report.missing_keys)
    if config.peft_type != "LORA":  # whose tensors alone PEFT misses reliably
        missing = get_peft_model_state_dict(model, save_embedding_layers=False).keys() - tensors.keys()
    _check_none(folder, missing, "missing from the adapter's weights")
    _check_none(
        folder, _unused_tensors(folder, report), "in the adapter's weights without a place in the model"
    )
    for weight in weights.values():
        copied = memo[id(weight)]
        if copied is not weight and copied.dtype == weight.dtype and torch.equal(copied, weight):
            copied.data = weight.data
    return model.get_base_model().eval()


def _unused_tensors(folder: Path, report: Any) -> list[str]:
    """Return the tensors that PEFT leaves out, except copies of tensors that it uses under another name."""
    import torch

    unexpected = set(report.unexpected_keys)
    tensors = _tensors(folder) if unexpected else {}
    taken = [tensor for name, tensor in tensors.items() if name not in unexpected]
    return [name for name in unexpected if not any(torch.equal(tensors[name], tensor) for tensor in taken)]


def _check_none(folder: Path, names: Iterable[str], what: str) -> None:
    if sorted_names := sorted(names):
        raise CheckpointError(
            f"{folder}: {count(len(sorted_names), 'tensor')} {what}: {join_names(sorted_names, 5)}; "
            "save the adapter again, or name its own base with --eval-base-model"
        )


def _logits(model: Any) -> torch.Tensor:
    """Return a model's logits of a few tokens."""
    import torch

    rows = int(model.get_input_embeddings().weight.shape[0])
    first = ((7 * number + 3) % rows for number in range(8))
    tokens = torch.tensor(
        [[*first, *range(max(0, rows - 8), rows)]], device=model.device
    )  # added ones are last
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=tokens).logits.float()
    return logits


def _notes(folder: Path, config: Any) -> list[str]:
    """Return a note on settings of the adapter that this version of PEFT ignores."""
    settings = read_json(folder / CONFIG, AdapterConfig).model_extra or {}
    unknown = sorted(name for name, value in settings.items() if value and not hasattr(config, name))
    if not unknown:
        return []
    return [
        f"{folder}: PEFT {version('peft')} does not know the settings {join_names(unknown, 5)}, and ignores them"
    ]
