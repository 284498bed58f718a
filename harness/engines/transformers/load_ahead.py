"""Loads the model of the checkpoint that comes next, in a thread, while the last items of the one before are answered.

Where memory allows it, and an accelerator computes: the model goes there when the one before has left it. Where the CPU
computes, loading beside takes more from the model that answers than it saves (``perf/load_ahead.py``), and the
files alone are read, so that loading does not wait for the disk.

What goes wrong is not said here: the checkpoint is loaded again when it is asked for, and said then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from harness.checkpoints import CheckpointInfo
from harness.engines.settings import ModelSettings
from harness.engines.transformers.compat import collector_paused
from harness.engines.transformers.loading import choose_device
from harness.engines.transformers.read_ahead import ReadAhead, available_bytes
from harness.engines.transformers.thread_dtype import as_made, for_this_thread

if TYPE_CHECKING:
    from harness.engines.transformers.loading import Loaded

_SHARE: Final = 0.5
"""Of the available memory: the most that the workers' next models take together."""

BESIDE: Final = ("cuda", "mps")
"""Devices whose work a thread that loads takes nothing from."""

_FLOAT: Final = 4
"""Bytes of a number of float32."""


class LoadAhead:
    """Loads one model at a time, each checkpoint's once."""

    def __init__(
        self,
        settings: ModelSettings,
        available: Callable[[], int | None] = available_bytes,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._settings = settings
        self._available = available
        self._workers = int(environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        self._files = ReadAhead(available)
        self._begun: set[tuple[str, ...]] = set()
        self._thread: threading.Thread | None = None
        self._key: tuple[str, ...] | None = None
        self._loaded: Loaded | None = None

    def begin(self, info: CheckpointInfo) -> bool:
        """Returns at once; whether the model is being loaded, rather than its files read at most."""
        if info.format == "fake" or info.model_key in self._begun or self._thread is not None:
            return False
        if not self._allowed(info) or not self._fits(info):
            self._files.begin(info)
            return False
        self._begun.add(info.model_key)
        self._key = info.model_key
        self._thread = threading.Thread(target=self._load, args=(info,), name="touchstone-load", daemon=True)
        self._thread.start()
        return True

    def take(self, info: CheckpointInfo) -> Loaded | None:
        """The model, once, when it is there; None where it was not loaded. Another's is let go of. Raises
        ``CheckpointError`` where it does not fit on its device."""
        from harness.engines.transformers.loading import Loaded, place

        if self._thread is not None:
            self._thread.join()
        loaded, key = self._loaded, self._key
        self._thread = self._key = self._loaded = None
        if loaded is None or key != info.model_key or not _usual(loaded):
            return None
        return Loaded(place(info, loaded.model, choose_device(self._settings.device)), loaded.tokenizer)

    def close(self) -> None:
        """Ends what is under way, and lets go of what was loaded."""
        self._files.close()
        if self._thread is not None:
            self._thread.join()
        self._thread = self._key = self._loaded = None

    def _fits(self, info: CheckpointInfo) -> bool:
        free = self._available()
        needed = None if info.parameters is None else info.parameters * _FLOAT
        return free is not None and needed is not None and needed * self._workers <= _SHARE * free

    def _allowed(self, info: CheckpointInfo) -> bool:
        """Not where a checkpoint's own code would run beside another model; and multi-token prediction is made on its
        device."""
        beside = choose_device(self._settings.device).type in BESIDE
        return beside and not info.trust_remote_code and info.format != "mtp"

    def _load(self, info: CheckpointInfo) -> None:
        import torch

        from harness.engines.transformers.factory import load_weights

        before = torch.get_num_threads()
        # One thread: the others are at work for the model that computes. What torch is told here counts for this
        # thread, and for new ones, so that it is taken back.
        alone = replace(self._settings, threads=1)
        try:
            with collector_paused(), for_this_thread():
                self._loaded = load_weights(info, alone, placed=False)
        except Exception as error:  # whatever it is, it comes again where it can be told
            _drop_frames(error)
        finally:
            torch.set_num_threads(before)


def _usual(loaded: Loaded) -> bool:
    try:
        return as_made(loaded.model)
    except Exception:  # a model that cannot be made once more is loaded again
        return False


def _drop_frames(error: BaseException | None) -> None:
    """Frees what the frames of an error hold: half a model, perhaps."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
