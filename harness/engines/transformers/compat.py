"""Keeps transformers from printing: it shows progress, warns, and logs while models are loaded and run.

Keeps Python's garbage collector away from torch and transformers, and out of the way of models that are loaded.

Importing the two makes some hundred thousand objects that live as long as the process. Left alone, the collector goes
over all of them again and again while they come, whenever it collects afterwards, and several times more when pytest
and Python end, and finds nothing: a third of the time of a run that ends with a checkpoint that cannot be loaded.

Parses a GGUF file once instead of three times while transformers loads it.

transformers reads the header anew for the config, the tokenizer and the weights, and builds the table of
tensor names anew for every module; both are pure Python and take most of the time that a small model needs to
load. Within the block the two functions of the ``gguf`` package remember what they gave.

Lets go of a weights file's pages while transformers converts it to another number type.

transformers maps the file into memory and copies every tensor out of it as it is converted; the pages that were read
stay, so that at its end the whole file is in memory beside the whole model. Within the block each tensor's pages are
given back when it has been copied; they are the file's own, and whoever reads them again gets them from there.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import mmap
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars, no log lines below errors and no warnings from transformers within the block.

    Blocks of several threads may overlap: all is as before when the last one ends. Warnings are left alone outside of
    the main thread, since Python has one list of filters for all threads.
    """
    _SILENCE.enter()
    try:
        with _no_warnings() if current_thread() is main_thread() else nullcontext():
            yield
    finally:
        _SILENCE.leave()


class _Silence:
    """What is the same for all threads, and how many blocks want it silent."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._undo: Callable[[], None] = lambda: None

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                self._undo = _silenced()
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._undo()


_SILENCE = _Silence()


def _silenced() -> Callable[[], None]:
    """Silences transformers; called, what is given back takes that back."""
    from transformers import modeling_gguf_pytorch_utils as gguf_loading
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    gguf_bar = gguf_loading.tqdm

    def undo() -> None:
        gguf_loading.tqdm = gguf_bar
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    gguf_loading.tqdm = partial(gguf_bar, disable=True)
    return undo


@contextmanager
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_LARGE: Final = (
    "torch",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
)
"""With what these import they are nearly all that loading a model imports."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing is collected within the block."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@functools.cache
def import_libraries() -> None:
    """Imports them; whatever there is by then the collector leaves alone from now on. Done before any model is there,
    since a model that it leaves alone may never be freed."""
    with collector_paused():
        for name in _LARGE:
            import_module(name)
    gc.freeze()


@contextmanager
def gguf_parsed_once() -> Iterator[None]:
    """``gguf.GGUFReader`` and ``gguf.get_tensor_name_map`` give the same object for the same arguments."""
    import gguf

    reader, name_map = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader = functools.cache(reader)
    gguf.get_tensor_name_map = functools.cache(name_map)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = reader, name_map


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
