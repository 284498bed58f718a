"""Lets go of a weights file's pages while transformers converts it to another number type.

transformers maps the file into memory and copies every tensor out of it as it is converted; the pages that were read
stay, so that at its end the whole file is in memory beside the whole model. Within the block each tensor's pages are
given back when it has been copied; they are the file's own, and whoever reads them again gets them from there.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

_MADV_DONTNEED: Final = 4
"""Linux's, on the machines that it runs on; 4 everywhere but on Alpha."""


@contextmanager
def pages_let_go() -> Iterator[None]:
    """transformers gives pages back in here, on Linux; where it has no such function any more, nothing changes."""
    from transformers import core_model_loading

    copy = getattr(core_model_loading, "_materialize_copy", None)
    if copy is None or sys.platform != "linux":
        yield
        return

    def copied(tensor: Any, device: Any = None, dtype: Any = None) -> Any:
        source = tensor[...]
        made = copy(source, device, dtype)
        if made.data_ptr() != source.data_ptr() and _is_mapped(tensor):
            let_go(source)
        return made

    core_model_loading._materialize_copy = copied
    try:
        yield
    finally:
        core_model_loading._materialize_copy = copy


def _is_mapped(tensor: Any) -> bool:
    """Whether it is a file's: a part of a safetensors file, which is no tensor yet, or one of a pickle that is mapped.
    Memory of another kind must not be given back: it would be zeros afterwards."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return True
    address = tensor.data_ptr()
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        places, _, _, _, inode, *_ = line.split(maxsplit=5)
        begin, end = (int(place, 16) for place in places.split("-"))
        if begin <= address < end:
            return inode != "0"
    return False


def let_go(tensor: torch.Tensor) -> None:
    """Tells Linux that the pages wholly under a mapped tensor are not needed now; elsewhere they go when memory is
    short."""
    if sys.platform != "linux":
        return
    page = mmap.PAGESIZE
    begin, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    first = -(-begin // page) * page
    length = (begin + size) // page * page - first
    if length > 0 and tensor.is_contiguous() and tensor.device.type == "cpu":
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), _MADV_DONTNEED)
