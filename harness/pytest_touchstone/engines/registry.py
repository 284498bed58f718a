"""The engines: ours first, then those of installed packages; and those that a session has open."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

from pytest_touchstone.checkpoints import ENGINES, CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.hooks import plugins
from pytest_touchstone.engines.base import Engine, EngineFactory
from pytest_touchstone.engines.fake import FakeFactory
from pytest_touchstone.engines.http.engine import HttpFactory
from pytest_touchstone.engines.live import LiveFactory
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import TransformersFactory


def factories() -> tuple[EngineFactory, ...]:
    """Return every engine factory. Raises ``CheckpointError`` for one of a package that is none."""
    added = plugins(ENGINES, CheckpointError)
    for factory in added:
        if not isinstance(factory, EngineFactory):
            raise CheckpointError(
                f"{type(factory).__module__}.{type(factory).__qualname__}, of group {ENGINES}, is no EngineFactory "
                "(pytest_touchstone.engines.base); derive it from that class, or uninstall its package"
            )
    return (TransformersFactory(), FakeFactory(), HttpFactory(), LiveFactory(), *added)


def factory_of(info: CheckpointInfo) -> EngineFactory:
    """Return the factory that the checkpoint names. Raises ``CheckpointError`` where there is none."""
    for factory in factories():
        if factory.name == info.engine:
            return factory
    known = ", ".join(factory.name for factory in factories())
    raise CheckpointError(f"{info.source}: no engine is called {info.engine!r}; there are {known}")


def identity(info: CheckpointInfo) -> str | None:
    """Return the fingerprint of a checkpoint's engine; None where the engine knows none.

    Raises ``CheckpointError`` when a file cannot be read, or changes in the meantime.
    """
    return factory_of(info).fingerprint(info)


def open_engine(info: CheckpointInfo, settings: ModelSettings) -> Engine:
    """Open a single checkpoint, ready to answer. Raises ``CheckpointError`` where it cannot be loaded."""
    return factory_of(info).open(info, settings)


class EnginePool:
    """Opens checkpoints, and keeps those of one ``model_key`` until one of another is asked for."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._key: tuple[str, ...] | None = None
        self._open: Callable[[CheckpointInfo], Engine] | None = None
        self._engines: dict[CheckpointInfo, Engine] = {}
        self._failed: dict[str, str] = {}

    def engine(self, info: CheckpointInfo) -> Engine:
        """Return the checkpoint, ready to answer.

        It is the same engine each time, until a checkpoint of another ``model_key`` is asked for. Raises
        ``CheckpointError`` where it cannot be loaded; loading is tried only once.
        """
        if info.name in self._failed:
            raise CheckpointError(self._failed[info.name])
        try:
            return self._loaded(info)
        except (CheckpointError, ImportError) as error:
            lacks = "" if isinstance(error, CheckpointError) else f"{info.source}: cannot be loaded: "
            remedy = "; install what is missing with pip" if lacks else ""
            self._failed[info.name] = f"{lacks}{error}{remedy}"
            raise CheckpointError(self._failed[info.name]) from None

    def free(self) -> list[Engine]:
        """Close all engines, so that something else has their memory, and return them; each is opened anew when it is
        asked for."""
        closed = list(self._engines.values())
        self.close()
        give_back()
        return closed

    def close(self) -> None:
        """Close all engines and free what they share."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
        self._key = self._open = None

    def _loaded(self, info: CheckpointInfo) -> Engine:
        if info.model_key != self._key:
            opened = bool(self._engines)
            EnginePool.close(self)
            if opened:
                give_back()
        if info not in self._engines:
            self._key = info.model_key
            self._open = self._open or self._opener(info)
            engine = self._open(info)
            if not isinstance(engine, Engine):
                raise CheckpointError(
                    f"{info.source}: the engine {info.engine!r} made a {type(engine).__qualname__}, which is no Engine "
                    "(pytest_touchstone.engines.base)"
                )
            self._engines[info] = engine
        return self._engines[info]

    def _opener(self, info: CheckpointInfo) -> Callable[[CheckpointInfo], Engine]:
        """Return a function that opens the checkpoints of its ``model_key``."""
        return factory_of(info).sharing(self._settings)


def give_back() -> None:
    """Give the memory of what was closed back to the system, so that the next model does not come on top of it."""
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)  # of glibc
