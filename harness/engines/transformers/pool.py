"""The engines of one session: checkpoints that are adapters of the same base share one model in memory.

The base stays loaded, and every engine that was made of it, while its adapters, and itself, are asked one after the
other or in turn; another base takes its place. Before an
engine answers, its own adapter is put on, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.checkpoints import CheckpointInfo
from harness.core.errors import CheckpointError
from harness.core.requests import Answer, Refusal, Request
from harness.engines.base import Done, Engine
from harness.engines.settings import ModelSettings
from harness.engines.transformers.compat import collector_paused, import_libraries
from harness.engines.transformers.factory import engine_of, load, load_weights

if TYPE_CHECKING:
    from harness.engines.transformers.loading import Loaded
    from harness.engines.transformers.lora import Adapters

SHARED: Final = ("folder", "gguf", "adapter")
"""Formats of checkpoints that can be, or have, a base."""


class EnginePool:
    """Loads checkpoints, and keeps all of one base until one of another base is asked for."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._key: tuple[str, ...] | None = None
        self._loaded: Loaded | None = None
        self._adapters: Adapters | None = None
        self._engines: dict[CheckpointInfo, Engine] = {}
        self._broken: dict[str, str] = {}

    def engine(self, info: CheckpointInfo) -> Engine:
        """The checkpoint, ready to answer: the same engine each time until another base is asked for, when it is
        closed. Raises ``CheckpointError`` when its files do not make that model, which is tried once."""
        if info.name in self._broken:
            raise CheckpointError(self._broken[info.name])
        try:
            with collector_paused():
                return self._engine(info)
        except CheckpointError as error:
            self._broken[info.name] = str(error)
            raise

    def close(self) -> None:
        """Closes all engines and frees the base."""
        self._let_go()

    def _engine(self, info: CheckpointInfo) -> Engine:
        if info.model_key != self._key:
            self._let_go()
        engine = self._engines.get(info)
        if engine is None:
            engine = self._engines[info] = self._made(info)
            self._key = info.model_key
        return engine

    def _made(self, info: CheckpointInfo) -> Engine:
        if info.format == "fake":
            return load(info, self._settings)
        import_libraries()
        if info.format in SHARED:
            return self._switched(info)
        return engine_of(info, load_weights(info, self._settings), self._settings)

    def _let_go(self) -> None:
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
        self._key = self._loaded = self._adapters = None

    def _switched(self, info: CheckpointInfo) -> Engine:
        from harness.engines.transformers.loading import Loaded, check_vocabulary, load_tokenizer
        from harness.engines.transformers.lora import Adapters

        if self._loaded is None or self._adapters is None:
            self._loaded = load_weights(info.base or info, self._settings)
            self._adapters = Adapters(self._loaded.model)
            self._key = info.model_key
        adapters, loaded = self._adapters, self._loaded
        name = None
        if info.base is not None:
            name = adapters.add(info)
            if info.tokenizer == info.path:
                tokenizer = load_tokenizer(info)
                check_vocabulary(info, loaded.model, tokenizer)
                loaded = Loaded(loaded.model, tokenizer)
        adapters.put_on(name)
        try:
            return Switched(engine_of(info, loaded, self._settings), adapters, name)
        except BaseException:
            if name is not None:
                adapters.drop(name)
            raise


class Switched:
    """An engine that puts its own adapter on before it answers."""

    def __init__(self, engine: Engine, adapters: Adapters, name: str | None) -> None:
        self._engine, self._adapters, self._name = engine, adapters, name

    @property
    def info(self) -> CheckpointInfo:
        """What the checkpoint is."""
        return self._engine.info

    @property
    def effort(self) -> dict[str, Any]:
        """What answering has cost so far."""
        return self._engine.effort

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """One answer a request, in the order asked."""
        self._adapters.put_on(self._name)
        return self._engine.answer(requests, done)

    def prepare(self, requests: Sequence[Request]) -> None:
        """What can be done without the model; no adapter matters to it."""
        self._engine.prepare(requests)

    def close(self) -> None:
        """Frees the adapter; the base stays for others."""
        self._engine.close()
        if self._name is not None:
            self._adapters.drop(self._name)
        del self._adapters
