"""Tensors in pages of their own, for what lives long beside a model's passes on a CPU.

Keys and values stay for many passes. In the heap, where a pass's own tensors come and go, they leave holes that
nothing fits in. And a buffer that grows there is copied. Here a buffer is laid out for more rows and columns than it
has: on Linux a page takes memory only once it is written to, and may be given back while the buffer stays.
"""

from __future__ import annotations

import mmap
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

_PAGES: Final = "touchstone_pages"
"""The attribute of a tensor that has the mapping of its pages."""


def can_be_apart(device: torch.device) -> bool:
    """Return whether tensors of a device can lie in pages of their own, of which only those written to take memory."""
    return device.type == "cpu" and sys.platform == "linux"


def zeros_apart(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return zeros of the type of ``like``, in pages of their own where its device has them."""
    import torch

    size = torch.Size(shape).numel() * like.element_size()
    if not can_be_apart(like.device) or size < mmap.PAGESIZE:
        return like.new_zeros(shape)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # One huge page would be taken for a few rows of many that lie apart.
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    except OSError:  # no address space left for it, or a kernel without huge pages
        return like.new_zeros(shape)
    found = torch.frombuffer(pages, dtype=like.dtype).view(shape)
    setattr(found, _PAGES, pages)
    return found


def give_back(tensor: torch.Tensor, first: int) -> None:
    """Make a dense tensor's rows from ``first`` on zeros, and return the pages of which nothing is left."""
    pages: mmap.mmap | None = getattr(tensor, _PAGES, None)
    if pages is None:
        tensor[first:] = 0
        return
    numbers, size = tensor.view(-1), tensor.element_size()
    begin = first * tensor.stride(0)
    page = -(-begin * size // mmap.PAGESIZE) * mmap.PAGESIZE
    numbers[begin : page // size] = 0
    if page < len(pages):
        pages.madvise(mmap.MADV_DONTNEED, page)
