"""The engines of one session: checkpoints that share a model stay open together."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.base import Engine, SharedEngine, SharingFactory
from pytest_touchstone.engines.registry import factory_of, identity
from pytest_touchstone.engines.settings import ModelSettings

if TYPE_CHECKING:
    from pytest_touchstone.engines.replicas.engine import ReplicatedSeries


class EnginePool:
    """Opens checkpoints, and keeps those of one ``model_key`` until one of another is asked for."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._key: tuple[str, ...] | None = None
        self._open: Callable[[CheckpointInfo], Engine] | None = None
        self._engines: dict[CheckpointInfo, Engine] = {}
        self._failed: dict[str, str] = {}
        self._beside: dict[CheckpointInfo, SharedEngine] = {}
        self._series: ReplicatedSeries | None = None

    def engine(self, info: CheckpointInfo) -> Engine:
        """Return the checkpoint, ready to answer.

        It is the same engine each time, until a checkpoint of another ``model_key`` is asked for. Raises
        ``CheckpointError`` where it cannot be loaded; loading is tried only once.
        """
        if info.name in self._failed:
            raise CheckpointError(self._failed[info.name])
        if self._replicated(info):
            return self._loaded(info)
        if info.model_key != self._key:
            opened = bool(self._engines)
            self.close()
            if opened:
                _give_back()
        try:
            if info not in self._engines:
                self._key = info.model_key
                self._open = self._open or self._opener(info)
                self._engines[info] = self._open(info)
        except CheckpointError as error:
            self._failed[info.name] = str(error)
            raise
        return self._engines[info]

    def beside(self, info: CheckpointInfo) -> SharedEngine | None:
        """Return the checkpoint at once, to be loaded beside others; None where this process holds the model itself.

        Raises ``CheckpointError`` where its files cannot be read.
        """
        if not self._replicated(info):
            return None
        if self._series is None:
            from pytest_touchstone.engines.replicas import open_replicas

            self._series = open_replicas(self._settings)
        if (found := self._beside.get(info)) is None:
            found = self._beside[info] = self._series.open(info, identity(info))
        return found

    def _replicated(self, info: CheckpointInfo) -> bool:
        return self._settings.engine is not None and not info.served  # a server has its own replicas

    def _loaded(self, info: CheckpointInfo) -> Engine:
        try:
            found = self.beside(info)
            assert found is not None
            found.load()
        except CheckpointError as error:
            self._failed[info.name] = str(error)
            raise
        return found

    def close(self) -> None:
        """Close all engines and free what they share."""
        for one in self._beside.values():
            one.close()
        self._beside.clear()
        if self._series is not None:
            self._series.close()
            self._series = None
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
        self._key = self._open = None

    def _opener(self, info: CheckpointInfo) -> Callable[[CheckpointInfo], Engine]:
        factory = factory_of(info)
        if isinstance(factory, SharingFactory):
            return factory.sharing(self._settings)
        return lambda one: factory.open(one, self._settings)


def _give_back() -> None:
    """Give the memory of what was closed back to the system, so that the next model does not come on top of it."""
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)  # of glibc
