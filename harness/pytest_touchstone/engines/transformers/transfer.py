"""Copies between the host and the model's device that neither of them waits for.

On a GPU a copy is asynchronous only where the host's side is pinned memory. Elsewhere there is nothing to wait for, and
the plain way is the fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def to_device(values: Sequence[Any], device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return numbers of the host as a tensor on the device."""
    import torch

    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return moved(torch.tensor(values, dtype=dtype), device)


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the host on the device."""
    # torch keeps the pinned memory until the copy is done.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Reading:
    """Numbers on their way to the host. Work that is given to the device afterwards does not delay them."""

    def __init__(self, tensor: torch.Tensor) -> None:
        import torch

        self._host = tensor
        self._there: Any = None
        if tensor.device.type == "cuda":
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
