"""The engines: ours first, then those of installed packages."""

from __future__ import annotations

from pytest_touchstone.checkpoints import ENGINES, CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.plugins import plugins
from pytest_touchstone.engines.base import Engine, EngineFactory
from pytest_touchstone.engines.fake import FakeFactory
from pytest_touchstone.engines.http.factory import HttpFactory
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import TransformersFactory


def factories() -> tuple[EngineFactory, ...]:
    """Return every engine factory."""
    return (TransformersFactory(), FakeFactory(), HttpFactory(), *plugins(ENGINES, CheckpointError))


def factory_of(info: CheckpointInfo) -> EngineFactory:
    """Return the factory that the checkpoint names. Raises ``CheckpointError`` where there is none."""
    for one in factories():
        if one.name == info.engine:
            return one
    known = ", ".join(one.name for one in factories())
    raise CheckpointError(f"{info.source}: no engine is called {info.engine!r}; there are {known}")


def identity(info: CheckpointInfo) -> str | None:
    """Return the fingerprint of a checkpoint's engine; None where the engine knows none.

    Raises ``CheckpointError`` when a file cannot be read, or changes in the meantime.
    """
    return factory_of(info).fingerprint(info)


def open_engine(info: CheckpointInfo, settings: ModelSettings) -> Engine:
    """Open a single checkpoint, ready to answer. Raises ``CheckpointError`` where it cannot be loaded."""
    return factory_of(info).open(info, settings)
