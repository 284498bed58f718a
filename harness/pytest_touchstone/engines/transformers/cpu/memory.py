"""The memory of a process that computes on a CPU: its pages, its heap, and mapped files.

Keys and values stay for many passes. In the heap, where a pass's own tensors come and go, they leave holes that
nothing fits in. And a buffer that grows there is copied. Here a buffer is laid out for more rows and columns than it
has: on Linux a page takes memory only once it is written to, and may be given back while the buffer stays.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.settings import resident_bytes
from pytest_touchstone.engines.transformers.cpu.processor import is_open

if TYPE_CHECKING:
    import torch

_PAGES: Final = "touchstone_pages"
"""The attribute of a tensor that has the mapping of its pages."""

_GROWN: Final = 2**26
"""The bytes by which a process may grow before its heap is trimmed. Trimming takes milliseconds, and the memory of the
next passes is taken from the system again."""

_MADV_DONTNEED: Final = 4
"""Linux's number on the machines that it runs on: 4 everywhere but on Alpha."""


def supports_paged_tensors(device: torch.device) -> bool:
    """Return whether tensors of a device can have pages of their own, which take memory once written to."""
    return is_open() and device.type == "cpu" and sys.platform == "linux"


def paged_zeros(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return zeros of the type of ``like``, in pages of their own where its device supports that."""
    import torch

    size = torch.Size(shape).numel() * like.element_size()
    if not supports_paged_tensors(like.device) or size < mmap.PAGESIZE:
        return like.new_zeros(shape)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # One huge page would be taken for a few rows of many that lie apart.
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    except OSError:  # no address space left for it, or a kernel without huge pages
        return like.new_zeros(shape)
    zeros = torch.frombuffer(pages, dtype=like.dtype).view(shape)
    setattr(zeros, _PAGES, pages)
    return zeros


def release_rows(tensor: torch.Tensor, first: int) -> None:
    """Zero a dense tensor's rows from ``first`` on, and return the pages that hold nothing else."""
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


def trim_heap(device: Any) -> None:
    """Return freed memory to Linux, on a CPU.

    Tensors of up to 32 MiB come from a heap that glibc keeps; larger ones never use what lies free in it.
    """
    if supports_paged_tensors(device):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)


class GrowingHeap:
    """Trims the heap of a process on a CPU whenever the process has grown.

    Passes of many sizes leave holes between what stays: in a trial with 500 sizes 1.4 GB of 1.7 were free.
    """

    def __init__(self, device: Any) -> None:
        self._device, self._least = device, sys.maxsize
        self._watched = supports_paged_tensors(device)

    def trim(self) -> None:
        """Return freed memory to Linux if the process has grown much since the last time."""
        if not self._watched:
            return
        now = resident_bytes()
        self._least = min(self._least, now)
        if now - self._least > _GROWN:
            trim_heap(self._device)
            self._least = resident_bytes()


class MappedFiles:
    """The address ranges of files mapped into this process, read once.

    Valid for tensors that exist when this is made, as long as they exist.
    """

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []
        if sys.platform != "linux":
            return
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            places, _, _, _, inode, *_ = line.split(maxsplit=5)
            if inode != "0":
                begin, end = places.split("-")
                self._places.append((int(begin, 16), int(end, 16)))

    def hold(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor's memory is a mapped file."""
        address = tensor.data_ptr()
        return any(begin <= address < end for begin, end in self._places)

    def let_go(self, tensor: torch.Tensor) -> None:
        """Release the pages of a tensor whose memory is a mapped file; do nothing for another."""
        if self.hold(tensor):
            release_pages(tensor)


def release_pages(tensor: torch.Tensor) -> None:
    """Tell Linux that the pages wholly under a mapped tensor are not needed now.

    On other systems they go when memory is short.
    """
    if sys.platform != "linux":
        return
    page = mmap.PAGESIZE
    begin, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    first = -(-begin // page) * page
    length = (begin + size) // page * page - first
    if length > 0 and tensor.is_contiguous() and tensor.device.type == "cpu":
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), _MADV_DONTNEED)
