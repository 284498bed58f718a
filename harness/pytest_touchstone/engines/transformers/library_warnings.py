"""Warnings of libraries while a checkpoint is loaded or computes: told as notes, unless they change no number.

A warning goes to every block of ``heard`` that its thread is in; one of a thread without any (transformers' own
threads) goes to all blocks. ``compat.quiet`` brings the warnings here and keeps them from the terminal.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Lock, get_ident
from typing import Final

from pytest_touchstone.core.text import count, one_line

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
    | new\ (embeddings|lm_head\ weights)\ will\ be\ initialized   # ``with_adapter`` tells whether they matter
    | (could\ not\ query|out\ of)\ device\ memory | caching\ allocator   # where memory comes from
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)

_OF_GENERATION: Final = "transformers.generation"
"""Its warnings are about a checkpoint's own way to draw texts, which is not used (``compat.plain_generation``)."""

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


class Heard:
    """The different warnings of a block, in the order heard."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        """Keep a warning, as one line."""
        if len(self._texts) < _MOST_KEPT:
            self._texts[text] = None

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._texts)

    def notes(self, who: object) -> tuple[str, ...]:
        """Return the first warnings as notes on a checkpoint, and the number of the others."""
        texts = list(self._texts)
        rest = len(texts) - _MOST
        more = [f"and {count(rest, 'more warning')} of libraries"] if rest > 0 else []
        return tuple(f"{who}: {text}" for text in (*texts[:_MOST], *more))


_LISTENING: Final[list[tuple[int, Heard]]] = []
_LOCK: Final = Lock()


@contextmanager
def heard() -> Iterator[Heard]:
    """Yield what gathers the warnings of ``quiet`` blocks within that may mean another number.

    Warnings that transformers gives once in a process are given anew.
    """
    from transformers.utils import logging as theirs

    theirs.warning_once.cache_clear()
    mine = (get_ident(), Heard())
    with _LOCK:
        _LISTENING.append(mine)
    try:
        yield mine[1]
    finally:
        with _LOCK:
            _LISTENING.remove(mine)


def listeners() -> list[Heard]:
    """Return those that hear a warning of this thread."""
    with _LOCK:
        known = list(_LISTENING)
    return [heard for thread, heard in known if thread == get_ident()] or [heard for _, heard in known]


class Listener(logging.Handler):
    """Takes log records to those that listen, and transformers' errors to its own handlers, too."""

    def __init__(self, printing: Sequence[logging.Handler]) -> None:
        super().__init__(logging.WARNING)
        self._printing = printing

    def emit(self, record: logging.LogRecord) -> None:
        """Tell the warning, unless it is harmless."""
        library = record.name.partition(".")[0]
        if not record.name.startswith(_OF_GENERATION):
            _tell(library, record.getMessage())
        if library == LIBRARIES[0] and record.levelno >= logging.ERROR:
            for handler in self._printing:
                if record.levelno >= handler.level:
                    handler.handle(record)


def hear_python(message: Warning | str, category: type[Warning], filename: str, *_: object) -> None:
    """Tell a Python warning, unless it is harmless; has the parameters of ``warnings.showwarning``."""
    if not issubclass(category, _OF_TIME):
        parts = Path(filename).parts
        packages = [name for place, name in pairwise(parts) if place == "site-packages"]
        _tell(packages[-1] if packages else "a library", str(message))


def _tell(library: str, message: str) -> None:
    text = one_line(message)
    if not _HARMLESS.search(text):
        shown = "the checkpoint's own code" if library == "transformers_modules" else library
        for each in listeners():
            each.add(f"{shown} warns: {text[:_LONGEST]}")
