"""Adapters that the PEFT library applies to a loaded base: all but plain LoRA.

Each adapter gets modules of its own around the base's weights, which all share, so that PEFT may replace and wrap
modules as it likes. Weights that loading an adapter changes in place are copied before, and afterwards only those that
did change are kept. The base's layers are neither fused nor packed: PEFT knows no such layers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.config_files import AdapterConfig, read_json
from pytest_touchstone.checkpoints.formats.lora import CONFIG, adapter_tensors
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.loading import LoadedModel, one_line_errors

if TYPE_CHECKING:
    import torch

_NAME: Final = "default"
"""PEFT's name for the only adapter of a model."""

_CLOSE: Final = 1e-3
"""The difference between two loads that counts as rounding, relative to the largest logit."""


def check_peft(info: CheckpointInfo) -> None:
    """Raise ``CheckpointError`` where the library is not installed."""
    if find_spec("peft") is None:
        raise CheckpointError(
            f"{info.path}: this adapter needs the package peft; run: pip install 'pytest-touchstone[peft]'"
        )


def with_adapter(info: CheckpointInfo, base: LoadedModel) -> LoadedModel:
    """Return the model that ``PeftModel.from_pretrained`` makes of a base and an adapter; the base stays as it is.

    Raises ``CheckpointError`` where the adapter does not fit, or where loading it twice gives two models.
    """
    place = "none" if info.base is None else info.base.source
    again = f"its base is {place}; --eval-base-model names another"
    with quiet(), one_line_errors(f"{info.path}: PEFT {version('peft')} cannot apply it", again):
        config = _config(info.path)
        own = _changes_base(config)
        model = _applied(info.path, config, base.model, own=own, seed=1)
        if not own:
            first = _logits(model)
            model = _applied(info.path, config, base.model, own=own, seed=2)
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
    if kind not in [known.value for known in PEFT_TYPE_TO_CONFIG_MAPPING]:
        raise CheckpointError(
            f"{folder / CONFIG}: PEFT {version('peft')} does not know peft_type {kind!r}; install another version"
        )
    config: Any = PeftConfig.from_pretrained(str(folder))
    if hasattr(config, "progressbar"):
        config.progressbar = False
    return config


def _changes_base(config: Any) -> bool:
    """Return whether PEFT changes weights of the base when it loads an adapter."""
    initial = str(getattr(config, "init_lora_weights", True)).lower()
    return initial in ("pissa", "olora") or getattr(config, "kasa_config", None) is not None


def _applied(folder: Path, config: Any, base: Any, *, own: bool, seed: int) -> Any:
    """Return modules with the adapter, which share the base's weights but for those that it changes; ``own``: which
    these are is not known before."""
    import torch
    from peft import PeftModel, get_peft_model_state_dict

    tensors = adapter_tensors(folder)
    stored = {name.removeprefix("base_model.model.").replace(".base_layer.", ".") for name in tensors}
    weights = dict(base.named_parameters())
    shared = [one for name, one in weights.items() if not own and name not in stored]
    memo: dict[int, Any] = {id(one): one for one in (*shared, *base.buffers())}
    tree = copy.deepcopy(base, memo)
    device = base.device
    where: dict[str, Any] = {"torch_device": str(device)}
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        try:
            model = PeftModel.from_pretrained(tree, str(folder), _NAME, config=copy.deepcopy(config), **where)
        except KeyError as error:  # of a whole module that the config names
            if (name := error.args[0] if error.args else None) in tensors:
                raise
            _check_all(
                folder, [str(name)], f"missing from the adapter's weights, though {CONFIG} names its module"
            )
        mapping = getattr(tree, "_checkpoint_conversion_mapping", {})
        report = model.load_adapter(str(folder), _NAME, key_mapping=mapping, **where)
    missing = set(report.missing_keys)
    if config.peft_type != "LORA":  # whose tensors alone PEFT misses reliably
        missing = get_peft_model_state_dict(model, save_embedding_layers=False).keys() - tensors.keys()
    _check_all(folder, missing, "missing from the adapter's weights")
    _check_all(folder, report.unexpected_keys, "in the adapter's weights without a place in the model")
    for one in weights.values():
        copied = memo[id(one)]
        if copied is not one and copied.dtype == one.dtype and torch.equal(copied, one):
            copied.data = one.data
    return model.get_base_model().eval()


def _check_all(folder: Path, names: Iterable[str], what: str) -> None:
    if found := sorted(names):
        raise CheckpointError(
            f"{folder}: {count(len(found), 'tensor')} {what}: {listed(found, 5)}; save the adapter again, or name its "
            "own base with --eval-base-model"
        )


def _logits(model: Any) -> torch.Tensor:
    """Return a model's logits of a few tokens."""
    import torch

    rows = int(model.get_input_embeddings().weight.shape[0])
    tokens = torch.tensor([[(7 * number + 3) % rows for number in range(8)]], device=model.device)
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=tokens).logits.float()
    return found


def _notes(folder: Path, config: Any) -> list[str]:
    """Return a note where the adapter has settings that this version of PEFT does not know, and leaves alone."""
    said = read_json(folder / CONFIG, AdapterConfig).model_extra or {}
    unknown = sorted(name for name, value in said.items() if value and not hasattr(config, name))
    if not unknown:
        return []
    return [
        f"{folder}: PEFT {version('peft')} does not know the settings {listed(unknown, 5)}, and ignores them"
    ]
