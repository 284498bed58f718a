"""Loads the model of the checkpoint that comes next, in a thread, while the last items of the one before are answered.

Only where that cannot change an answer, and memory allows it. transformers makes a model's parts under a default
number type that it sets for the whole process: where that is the type which is set anyway (float32, as on a CPU),
nothing changes for the model that computes; of other types the files alone are read, so that loading does not wait
for the disk. To an accelerator the model goes when the one before has left it.

What goes wrong is not said here: the checkpoint is loaded again when it is asked for, and said then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from harness.checkpoints import CheckpointInfo
from harness.models.collector import collector_paused
from harness.models.placement import choose_device, choose_dtype
from harness.models.read_ahead import ReadAhead, available_bytes
from harness.models.settings import ModelSettings

if TYPE_CHECKING:
    from harness.models.loading import Loaded

_SHARE: Final = 0.5
"""Of the available memory: the most that the workers' next models take together."""

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
        self._begun.add(info.model_key)
        if not self._fits(info) or not self._harmless(info):
            self._files.begin(info)
            return False
        self._key = info.model_key
        self._thread = threading.Thread(target=self._load, args=(info,), name="touchstone-load", daemon=True)
        self._thread.start()
        return True

    def take(self, info: CheckpointInfo) -> Loaded | None:
        """The model, once, when it is there; None where it was not loaded. Another's is let go of."""
        if self._thread is not None:
            self._thread.join()
        loaded, key = self._loaded, self._key
        self._thread = self._key = self._loaded = None
        if loaded is None or key != info.model_key:
            return None
        loaded.model.to(choose_device(self._settings.device))
        return loaded

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

    def _harmless(self, info: CheckpointInfo) -> bool:
        """Whether nothing about this process is another while the model is loaded. A checkpoint's own code may do
        anything, and multi-token prediction is made on its device."""
        import torch

        device = choose_device(self._settings.device)
        if info.trust_remote_code or (info.format == "mtp" and device.type != "cpu"):
            return False
        return choose_dtype(info, self._settings, device) == torch.get_default_dtype() == torch.float32

    def _load(self, info: CheckpointInfo) -> None:
        from harness.models import load_weights

        try:
            with collector_paused():
                self._loaded = load_weights(info, self._settings, placed=False)
        except Exception as error:  # whatever it is, it comes again where it can be told
            _drop_frames(error)


def _drop_frames(error: BaseException | None) -> None:
    """Frees what the frames of an error hold: half a model, perhaps."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
