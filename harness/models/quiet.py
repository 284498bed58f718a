"""Keeps transformers from printing: it shows progress, warns, and logs while models are loaded and run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import Lock, current_thread, main_thread


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
