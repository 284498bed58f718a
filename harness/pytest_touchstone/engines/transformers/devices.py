"""The devices of this machine: which of them a process computes on, and copies between them and the host.

Workers of xdist are spread over the GPUs, worker k on GPU k modulo their number, each with weights of its own. With
``--eval-device-map auto`` one process spreads a model over all of them instead, layer after layer.

Neither the host nor the device waits for a copy. On a GPU a copy is asynchronous only where the host's side is pinned
memory. Elsewhere there is nothing to wait for, and the plain way is the fastest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.core.errors import CheckpointError

if TYPE_CHECKING:
    import torch


PINNED: Final = frozenset({"cuda"})
"""The kinds of devices that copy from and to pinned memory while the host goes on."""


def gpu_count() -> int:
    """Return the number of GPUs that torch sees."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def worker_number(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number N of the xdist worker ``gwN`` that this process is, 0 in any other process."""
    named = re.fullmatch(r"gw(\d+)", environ.get("PYTEST_XDIST_WORKER", ""))
    return int(named[1]) if named else 0


def choose_device(wanted: str, environ: Mapping[str, str] = os.environ) -> torch.device:
    """Return the device to load onto; workers of one run are spread over the GPUs when no index is asked for.

    Raises ``CheckpointError`` when the machine does not have that device.
    """
    import torch

    gpus = gpu_count()
    mps = torch.backends.mps.is_available()
    if wanted == "auto":
        wanted = "cuda" if gpus else "mps" if mps else "cpu"
    if wanted.startswith("cuda"):
        index = int(wanted[5:]) if wanted[5:] else worker_number(environ) % max(1, gpus)
        if index >= gpus:
            raise CheckpointError(
                f"--eval-device {wanted}: torch sees {gpus} GPUs here; use cpu or a lower index"
            )
        return torch.device("cuda", index)
    if wanted == "mps" and not mps:
        raise CheckpointError("--eval-device mps: torch does not see it on this machine; use cpu or auto")
    return torch.device(wanted)


def neighbours(wanted: str, device: torch.device, processes: int) -> int:
    """Return how many of the run's processes compute on the device, where ``wanted`` is ``--eval-device``."""
    if device.type != "cuda" or wanted.startswith("cuda:"):
        return max(1, processes)
    return max(1, -(-processes // max(1, gpu_count())))


def copies_notes(wanted: str, device: torch.device, processes: int) -> tuple[str, ...]:
    """Return a note where several processes of the run compute on one GPU, each with weights of its own there."""
    if device.type != "cuda" or (held := neighbours(wanted, device, processes)) < 2:
        return ()
    gpus = gpu_count()
    return (
        f"{held} of the run's {processes} processes compute on {device}, each with its own copy of the weights; "
        f"-n {gpus if wanted in ('auto', 'cuda') else 0} keeps one per GPU",
    )


def check_device_map(device: torch.device) -> None:
    """Raise ``CheckpointError`` where a model cannot be spread over GPUs."""
    if device.type != "cuda":
        raise CheckpointError(
            f"--eval-device-map auto spreads a model over GPUs, and this run computes on {device.type}; leave it out"
        )
    from importlib.util import find_spec

    if find_spec("accelerate") is None:
        raise CheckpointError("--eval-device-map auto needs the package accelerate: pip install accelerate")


def devices_of(model: Any) -> list[str]:
    """Return the accelerators that hold a model's weights, in their order; none of a model on a CPU."""
    parameters = getattr(model, "parameters", tuple)
    return sorted({str(one.device) for one in parameters() if one.device.type not in ("cpu", "meta")})


def to_device(values: Sequence[Any], device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return numbers of the host as a tensor on the device."""
    import torch

    if device.type not in PINNED:
        return torch.tensor(values, dtype=dtype, device=device)
    return moved(torch.tensor(values, dtype=dtype), device)


def all_to_device(
    parts: Sequence[Sequence[Any] | torch.Tensor], device: torch.device
) -> tuple[torch.Tensor, ...]:
    """Return several arrays of whole numbers of the host as tensors on the device, which one copy takes there."""
    import torch

    tensors = [torch.as_tensor(part, dtype=torch.long) for part in parts]
    if device.type not in PINNED:
        return tuple(one.to(device) for one in tensors)
    whole = moved(torch.cat([one.flatten() for one in tensors]), device)
    sent = torch.split(whole, [one.numel() for one in tensors])
    return tuple(one.view(shaped.shape) for one, shaped in zip(sent, tensors, strict=True))


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the host on the device."""
    # torch keeps the pinned memory until the copy is done.
    pinned = device.type in PINNED
    return tensor.pin_memory().to(device, non_blocking=True) if pinned else tensor.to(device)


class Reading:
    """Numbers on their way to the host. Work that is given to the device afterwards does not delay them."""

    def __init__(self, tensor: torch.Tensor) -> None:
        import torch

        self._host = tensor
        self._there: Any = None
        if tensor.device.type in PINNED:
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            event: Any = torch.cuda.Event  # torch has no types for it
            self._there = event()
            self._there.record(torch.cuda.current_stream(tensor.device))

    def numbers(self) -> list[Any]:
        """Wait until they are there, and return them."""
        if self._there is not None:
            self._there.synchronize()
        found: list[Any] = self._host.tolist()
        return found
