"""Reads a ``.pt`` file of weights: only tensors and plain values, nothing of its optimizer.

Training scripts save a dict with ``model_state_dict``, ``optimizer_state_dict``, ``epoch``, ``train_metrics``,
``val_metrics`` and ``config``; a file may also hold nothing but the tensors. The file is mapped into memory, so
that tensors are read when they are copied, and those nobody asks for never.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.errors import CheckpointError
from harness.models.mapped import let_go

if TYPE_CHECKING:
    import torch

_STATES: Final = ("model_state_dict", "state_dict")


class PtFile(NamedTuple):
    """The tensors under the names that the file has for them, and its ``config``, perhaps empty."""

    tensors: dict[str, torch.Tensor]
    config: dict[str, Any]


def read_pt(path: Path) -> PtFile:
    """What the file holds. Raises ``CheckpointError`` where it is broken, needs more than tensors and plain
    values, or holds no model."""
    content = _load(path)
    if not isinstance(content, Mapping):
        raise CheckpointError(
            f"{path}: holds a {type(content).__name__}, not a dict; save the model's state_dict()"
        )
    state = next((content[name] for name in _STATES if isinstance(content.get(name), Mapping)), content)
    tensors = {str(name): value for name, value in state.items() if _is_tensor(value)}
    others = [name for name, value in state.items() if not _is_tensor(value)]
    if not tensors:
        raise CheckpointError(f"{path}: holds no tensors of a model; save it with 'model_state_dict'")
    if state is not content and others:
        raise CheckpointError(f"{path}: {others[0]!r} in the weights is no tensor; save a plain state_dict()")
    for name, tensor in tensors.items():
        _check_tensor(path, name, tensor)
    config = content.get("config")
    return PtFile(tensors, dict(config) if isinstance(config, Mapping) else {})


def put(tensor: torch.Tensor, into: torch.Tensor) -> None:
    """Copies a tensor's numbers into another of its shape; the mapped pages of the file are let go of, so that both
    are never in memory as a whole."""
    into.copy_(tensor)
    let_go(tensor)


def _load(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(_refused(path, str(error))) from error
    except Exception as error:  # torch raises whatever its parts raise; a person needs one line
        raise CheckpointError(_broken(path, error)) from error


def _refused(path: Path, message: str) -> str:
    if found := re.search(r"GLOBAL ([\w.]+)", message):
        return (
            f"{path}: needs {found[1]}, which is code and not weights, so it is not loaded; "
            "save it again with nothing in it but tensors, numbers, texts, lists and dicts"
        )
    first = next((line for line in message.splitlines() if "rror" in line), message.partition("\n")[0])
    return f"{path}: cannot be unpickled safely ({first.strip()[:200]}); save the checkpoint again with torch.save"


def _broken(path: Path, error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, OSError):
        return f"{path}: cannot be read ({error.strerror or text}); check the file's rights"
    if "mmap can only be used with files saved with" in text:
        return f"{path}: is in torch's format from before 1.6, or no file of torch's; save it again with torch.save"
    if "central directory" in text or "zip archive" in text:
        return f"{path}: is cut off or no file of torch's ({text[:120]}); copy the checkpoint again"
    return f"{path}: cannot be loaded ({type(error).__name__}: {text[:200]}); save the checkpoint again"


def _check_tensor(path: Path, name: str, tensor: torch.Tensor) -> None:
    """Raises ``CheckpointError`` where a tensor is no plain table of numbers backed by data of its size."""
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or not tensor.is_floating_point():
        raise CheckpointError(
            f"{path}: tensor {name!r} is {tensor.dtype} ({tensor.layout}), not plain floating-point weights; "
            "save the model unquantized"
        )
    if tensor.device.type != "cpu":
        raise CheckpointError(f"{path}: tensor {name!r} has no data (device {tensor.device}); save it again")
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        raise CheckpointError(
            f"{path}: tensor {name!r} claims shape {list(tensor.shape)}, for which its data are too short; "
            "save the checkpoint again"
        )


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
