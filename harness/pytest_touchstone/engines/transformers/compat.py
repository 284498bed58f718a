"""All workarounds for other libraries, in one place.

Each was checked with the version named; ``tests/engines/transformers/test_compat.py`` has a test per line that fails
when the library has changed what is patched, or does by itself what the workaround is for.

    name                  library, version      reason
    import_libraries      torch 2.13            the garbage collector scans what its import makes, again and again
    quiet                 transformers 5.23     bars, logs and warnings go to the terminal, GGUF's bar past its setting
    gguf_parsed_once      transformers 5.23     a GGUF file is parsed for config, tokenizer and weights anew
    pages_let_go          transformers 5.23     pages of a mapped file stay in memory beside the converted model
    MISMATCHES            transformers 5.23     tensors of other shapes are printed, and the error does not name them
    no_length_limit       transformers 5.23     a text longer than the tokenizer's own limit causes a warning
    layer_values          transformers 5.23     a config whose layers differ refuses to be asked for the setting of all
    no_look_for_padding   transformers 5.23     models that get no mask look at the tokens, and so wait for the device
    cache_argument        transformers 5.24     models call the argument for keys and values by one of two names
    plain_generation      transformers 5.23     a model's own settings are added to those that ``generate`` is given
    check_sentencepiece   transformers 5.23     without sentencepiece its files are mistaken for tiktoken's
    is_panic              tokenizers 0.23       a panic in Rust is no ``Exception``
    refused_global        torch 2.13            the name that ``weights_only`` refuses is only in the message
    is_out_of_memory      torch 2.13            main memory that runs out is a ``RuntimeError`` like any other
"""

from __future__ import annotations

import functools
import gc
import inspect
import logging as standard_logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.library_warnings import (
    LIBRARIES,
    Listener,
    hear_python,
    listeners,
)

if TYPE_CHECKING:
    pass


_LARGE: Final = (
    "torch",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.generation.utils",
)
"""Together with what these import, they are nearly everything that loading a model imports."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector within the block."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@functools.cache
def import_libraries() -> None:
    """Import the libraries, and exempt everything that exists by then from garbage collection.

    The imports make some hundred thousand objects that live as long as the process. Scanning them took a third of the
    time of a run that ends with a checkpoint that cannot be loaded. It is done before any model is there, since a
    model that is exempt from collection may never be freed.
    """
    with collector_paused():
        for name in _LARGE:
            import_module(name)
        gc.freeze()  # before the collector looks at them


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from the terminal within the block: no progress bars, no log lines below errors, no warnings.

    The log lines and warnings go to those that listen (``library_warnings.heard``). Blocks of several threads may
    overlap: everything is restored when the last one ends. Python's warnings are left alone outside the main thread,
    since Python has one list of filters for all threads.
    """
    _SILENCE.enter()
    try:
        with _python_warnings() if current_thread() is main_thread() else nullcontext():
            yield
    finally:
        _SILENCE.leave()


@contextmanager
def _python_warnings() -> Iterator[None]:
    """Give Python's warnings to those that listen."""
    with warnings.catch_warnings(action="always" if listeners() else "ignore"):
        warnings.showwarning = hear_python  # type: ignore[assignment]
        yield


class _Silence:
    """The state that all threads share, and the number of blocks that want silence."""

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
    """Silence transformers; return a function that undoes it."""
    from transformers import modeling_gguf_pytorch_utils as gguf_loading
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    gguf_bar = gguf_loading.tqdm
    theirs, *others = (standard_logging.getLogger(name) for name in LIBRARIES)
    printing, propagates = list(theirs.handlers), theirs.propagate
    listener = Listener(printing)

    def undo() -> None:
        gguf_loading.tqdm = gguf_bar
        for each in (theirs, *others):
            each.removeHandler(listener)
        for handler in printing:
            theirs.addHandler(handler)
        theirs.propagate = propagates
        _set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()

    _set_verbosity(logging.WARNING)
    theirs.propagate = False
    for handler in printing:
        theirs.removeHandler(handler)
    for each in (theirs, *others):
        each.addHandler(listener)
    logging.disable_progress_bar()
    gguf_loading.tqdm = partial(gguf_bar, disable=True)
    return undo


def _set_verbosity(level: int) -> None:
    """Set the level of transformers' logger where it is another: that clears the caches of all loggers, which takes
    milliseconds."""
    from transformers.utils import logging

    if logging.get_verbosity() != level:
        logging.set_verbosity(level)


@contextmanager
def gguf_parsed_once() -> Iterator[None]:
    """Make ``gguf.GGUFReader`` and ``gguf.get_tensor_name_map`` return the same object for the same arguments.

    Both are pure Python, and take most of the time that a small model needs to load.
    """
    import gguf

    reader, name_map = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader = functools.cache(reader)
    gguf.get_tensor_name_map = functools.cache(name_map)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = reader, name_map


@contextmanager
def pages_let_go() -> Iterator[None]:
    """Release each tensor's pages once transformers has copied it, on Linux.

    They are the file's own, so anyone who reads them again gets them from there. If transformers no longer has such a
    function, nothing changes.
    """
    from transformers import core_model_loading

    copy = getattr(core_model_loading, "_materialize_copy", None)
    if copy is None or sys.platform != "linux":
        yield
        return

    def copied(tensor: Any, device: Any = None, dtype: Any = None) -> Any:
        source = tensor[...]
        made = copy(source, device, dtype)
        if made.data_ptr() != source.data_ptr() and _is_mapped(tensor):
            cpu.let_go(source)
        return made

    core_model_loading._materialize_copy = copied
    try:
        yield
    finally:
        core_model_loading._materialize_copy = copy


def _is_mapped(tensor: Any) -> bool:
    """Return whether its memory is that of a file.

    That is a slice of a safetensors file, which is no tensor yet, or a tensor of a mapped pickle. Memory of another
    kind must not be released: it would be zeros afterwards.
    """
    import torch

    return not isinstance(tensor, torch.Tensor) or cpu.MappedFiles().hold(tensor)


MISMATCHES: Final[dict[str, bool]] = {"ignore_mismatched_sizes": True}
"""Options of ``from_pretrained`` with which its report names tensors of other shapes (``loading.check_report``)."""


def no_length_limit(tokenizer: Any) -> Any:
    """Make the tokenizer truncate nothing and warn of nothing: the engines truncate texts themselves."""
    tokenizer.model_max_length = int(1e30)
    return tokenizer


def no_look_for_padding(model: Any) -> None:
    """Keep a model that gets no mask from looking at its tokens for padding."""
    for module in model.modules():
        if hasattr(module, "warn_if_padding_and_no_attention_mask"):
            module.warn_if_padding_and_no_attention_mask = lambda *_: None


def layer_values(config: Any, name: str) -> list[Any]:
    """Return the values that the layers of a model have for a setting, each once; None where they have none."""
    try:
        return [getattr(config, name, None)]
    except RuntimeError:
        return list(dict.fromkeys(getattr(layer, name, None) for layer in config.per_layer_config))


_CACHE_ARGUMENTS: Final[WeakKeyDictionary[type[Any], str]] = WeakKeyDictionary()


def cache_argument(kind: type[Any]) -> str:
    """Return the name by which a class of models or layers takes the cache of keys and values.

    transformers 5.24 renamed it; a model with code of its own may have either name with any version.
    """
    if (name := _CACHE_ARGUMENTS.get(kind)) is None:
        taken = inspect.signature(getattr(kind, "forward", kind.__call__)).parameters
        name = _CACHE_ARGUMENTS[kind] = "cache" if "cache" in taken else "past_key_values"
    return name


@contextmanager
def plain_generation(model: Any) -> Iterator[None]:
    """Remove the model's own generation settings, which could change logits (such as a repetition penalty)."""
    from transformers import GenerationConfig

    before = getattr(model, "generation_config", None)
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = before


def check_sentencepiece(path: Path) -> None:
    """Raise ``CheckpointError`` if a package is missing that transformers needs for sentencepiece files."""
    for module, package in (("sentencepiece", "sentencepiece"), ("google.protobuf", "protobuf")):
        try:
            import_module(module)
        except ImportError as error:
            raise CheckpointError(
                f"{path}: reading it needs the package {package}; run: pip install 'pytest-touchstone[llama]'"
            ) from error


def is_panic(error: BaseException) -> bool:
    """Return whether the error is a panic of the tokenizers library."""
    return not isinstance(error, Exception) and type(error).__name__ == "PanicException"


def refused_global(error: BaseException) -> str | None:
    """Return the name that torch refuses to take from a pickle, since it may run code; None for another error."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return None if found is None else found[1]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether torch raised the error because memory ran out, on an accelerator or in main memory."""
    import torch

    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("t allocate memory" in text or "out of memory" in text)
