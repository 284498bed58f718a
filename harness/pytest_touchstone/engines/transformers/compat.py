"""All workarounds for other libraries, in one place.

Each was checked with the version named; ``tests/engines/transformers/test_compat.py`` has a test per line that fails
when the library has changed what is patched, or does by itself what the workaround is for.

    name                  library, version      reason
    import_libraries      torch 2.13            the garbage collector scans what its import makes, again and again
    quiet                 transformers 5.23     bars, logs and warnings go to the terminal, GGUF's bar past its setting
    heard                 transformers 5.23     a warning that may mean another number is given once, and to nobody
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

Warnings of libraries while a checkpoint is loaded or computes are told as notes, unless they change no number. Each
goes to every block of ``heard`` that its thread is in; one of a thread without any (transformers' own threads) goes to
all blocks. ``quiet`` keeps it from the terminal.
"""

from __future__ import annotations

import functools
import gc
import inspect
import logging as standard_logging
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from threading import Lock, current_thread, get_ident, main_thread
from typing import Any, Final
from weakref import WeakKeyDictionary

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import count, one_line
from pytest_touchstone.engines.transformers import cpu

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

    The log lines and warnings go to those that listen (``heard``). Blocks of several threads may
    overlap: everything is restored when the last one ends. Python's warnings are left alone outside the main thread,
    since Python has one list of filters for all threads.
    """
    with _QUIET_LOCK:
        _QUIET.append(_QUIET[0] if _QUIET else _silence_transformers())
    try:
        with _python_warnings() if current_thread() is main_thread() else nullcontext():
            yield
    finally:
        with _QUIET_LOCK:
            undo = _QUIET.pop()
            if not _QUIET:
                undo.close()


_QUIET: Final[list[ExitStack]] = []
"""What restores everything, once for each ``quiet`` block of any thread."""

_QUIET_LOCK: Final = Lock()


@contextmanager
def _python_warnings() -> Iterator[None]:
    """Give Python's warnings to those that listen."""
    with warnings.catch_warnings(action="always" if _listeners() else "ignore"):
        warnings.showwarning = _hear_python  # type: ignore[assignment]
        yield


def _silence_transformers() -> ExitStack:
    """Silence transformers; return what undoes it when it is closed."""
    from transformers import modeling_gguf_pytorch_utils as gguf_loading
    from transformers.utils import logging

    undo = ExitStack()
    theirs, *others = (standard_logging.getLogger(name) for name in LIBRARIES)
    printing = list(theirs.handlers)
    listener = _Listener(printing)
    undo.callback(_set_verbosity, logging.get_verbosity())
    _set_verbosity(logging.WARNING)
    undo.callback(setattr, theirs, "propagate", theirs.propagate)
    theirs.propagate = False
    for handler in reversed(printing):
        undo.callback(theirs.addHandler, handler)
        theirs.removeHandler(handler)
    for logger in (theirs, *others):
        undo.callback(logger.removeHandler, listener)
        logger.addHandler(listener)
    if logging.is_progress_bar_enabled():
        undo.callback(logging.enable_progress_bar)
        logging.disable_progress_bar()
    undo.callback(setattr, gguf_loading, "tqdm", gguf_loading.tqdm)
    gguf_loading.tqdm = partial(gguf_loading.tqdm, disable=True)
    return undo


def _set_verbosity(level: int) -> None:
    """Set the level of transformers' logger if it differs.

    Setting it clears the caches of all loggers, which takes milliseconds.
    """
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
    import torch
    from transformers import core_model_loading

    copy = getattr(core_model_loading, "_materialize_copy", None)
    if copy is None or sys.platform != "linux":
        yield
        return

    def copied(tensor: Any, device: Any = None, dtype: Any = None) -> Any:
        source = tensor[...]
        result = copy(source, device, dtype)
        # Memory that is no file's must not be released: it would be zeros afterwards. A slice of a safetensors file
        # is no tensor yet, and a tensor may be of a mapped pickle.
        is_mapped = not isinstance(tensor, torch.Tensor) or cpu.MappedFiles().hold(tensor)
        if result.data_ptr() != source.data_ptr() and is_mapped:
            cpu.release_pages(source)
        return result

    core_model_loading._materialize_copy = copied
    try:
        yield
    finally:
        core_model_loading._materialize_copy = copy


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
    """Return the distinct values of a setting over the layers of a model; None without any."""
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
    """Return the name that torch refuses to unpickle because it may run code; None for another error."""
    match = re.search(r"GLOBAL ([\w.]+)", str(error))
    return None if match is None else match[1]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether torch raised the error because memory ran out, on an accelerator or in main memory."""
    import torch

    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("t allocate memory" in text or "out of memory" in text)


LIBRARIES: Final = ("transformers", "transformers_modules", "tokenizers", "torch", "accelerate", "peft")
"""The loggers that are heard; the second is that of a checkpoint's own code."""

_HARMLESS: Final = re.compile(
    r"""
      deprecat | will\ be\ removed\ in         # names that will change; they mean the same until then
    | \btorch_dtype\b | \buse_fast\b           # the type of numbers is --eval-dtype, and tokenizers are fast
    | LOAD\ REPORT                             # ``loading.check_report`` refuses what matters in it
    | checkpoint\ seem\ corrupted.*tied        # the same: tensors that are missing
    | Model\ config:\ \w+_token_id\ must\ be   # a token that no text has, nor any answer
    | \bloss_type\b | gradient\ checkpointing | `labels`   # training
    | num_labels | id2label                    # heads of classifiers
    | without\ passing\ (a\ )?`layer_idx`      # caches are tried before they are used
    | fast\ path | causal.conv1d | mamba.ssm | flash.linear.attention | Falling\ back\ to\ (the\ )?naive   # speed
    | does\ not\ support\ `output_attentions   # nothing reads attentions
    | attention\ implementation\ dynamically   # then the probe tells, and it stays as it is
    | pass(ing)?\ (in\ )?an\ `attention_mask`  # no text is padded without one
    | automatically\ padded\ (from|to)         # and cut again, by the model itself
    | Ignoring\ clean_up_tokenization_spaces   # which would destroy texts
    | tokenizer\.json`\ is\ ByteLevel          # the file decides, as it should
    | legacy\ value\ of\ the\ official         # Gemma's activation, which is corrected
    | use\ of\ this\ field\ over\ `original_max_position   # another way to write the same factor
    | longer\ than\ the\ specified\ maximum    # texts are cut by the harness, which counts them
    | new\ (embeddings|lm_head\ weights)\ will\ be\ initialized   # ``apply_peft_adapter`` tells whether they matter
    | (could\ not\ query|out\ of)\ device\ memory | caching\ allocator   # where memory comes from
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)

_OF_GENERATION: Final = "transformers.generation"
"""Its warnings are about a checkpoint's own way to draw texts, which is not used (``plain_generation``)."""

_OF_TIME: Final = (
    DeprecationWarning,
    PendingDeprecationWarning,
    FutureWarning,
    ImportWarning,
    ResourceWarning,
)

_LONGEST: Final = 300
_MOST: Final = 10
_MOST_KEPT: Final = 1000


class _Heard:
    """The different warnings of a block, in the order heard."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        """Keep a warning, as one line."""
        if len(self._texts) < _MOST_KEPT:
            self._texts[text] = None

    def notes(self, who: object) -> tuple[str, ...]:
        """Return the first warnings as notes on a checkpoint, and the number of the others."""
        texts = list(self._texts)
        rest = len(texts) - _MOST
        more = [f"and {count(rest, 'more warning')} of libraries"] if rest > 0 else []
        return tuple(f"{who}: {text}" for text in (*texts[:_MOST], *more))


_LISTENING: Final[list[tuple[int, _Heard]]] = []
_LOCK: Final = Lock()


@contextmanager
def heard() -> Iterator[_Heard]:
    """Yield what gathers the warnings of ``quiet`` blocks within that may mean another number.

    Warnings that transformers gives once in a process are given anew.
    """
    from transformers.utils import logging as theirs

    theirs.warning_once.cache_clear()
    entry = (get_ident(), _Heard())
    with _LOCK:
        _LISTENING.append(entry)
    try:
        yield entry[1]
    finally:
        with _LOCK:
            _LISTENING.remove(entry)


def _listeners() -> list[_Heard]:
    """Return those that hear a warning of this thread."""
    with _LOCK:
        listening = list(_LISTENING)
    return [heard for thread, heard in listening if thread == get_ident()] or [
        heard for _, heard in listening
    ]


class _Listener(standard_logging.Handler):
    """Takes log records to those that listen, and transformers' errors to its own handlers, too."""

    def __init__(self, printing: Sequence[standard_logging.Handler]) -> None:
        super().__init__(standard_logging.WARNING)
        self._printing = printing

    def emit(self, record: standard_logging.LogRecord) -> None:
        """Tell the warning, unless it is harmless."""
        library = record.name.partition(".")[0]
        if not record.name.startswith(_OF_GENERATION):
            _tell(library, record.getMessage())
        if library == LIBRARIES[0] and record.levelno >= standard_logging.ERROR:
            for handler in self._printing:
                if record.levelno >= handler.level:
                    handler.handle(record)


def _hear_python(message: Warning | str, category: type[Warning], filename: str, *_: object) -> None:
    """Tell a Python warning, unless it is harmless; has the parameters of ``warnings.showwarning``."""
    if not issubclass(category, _OF_TIME):
        packages = [name for folder, name in pairwise(Path(filename).parts) if folder == "site-packages"]
        _tell(packages[-1] if packages else "a library", str(message))


def _tell(library: str, message: str) -> None:
    text = one_line(message)
    if not _HARMLESS.search(text):
        shown = "the checkpoint's own code" if library == "transformers_modules" else library
        for each in _listeners():
            each.add(f"{shown} warns: {text[:_LONGEST]}")
