"""The engines of one session: checkpoints that are adapters of the same base share one model in memory.

The base stays loaded while its adapters, and itself, are asked one after the other or in turn; another base takes its
place. Before an engine answers, its own adapter is put on, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.checkpoints import CheckpointInfo
from harness.engines import Done, Engine
from harness.errors import CheckpointError
from harness.models import engine_of, load
from harness.models.settings import ModelSettings
from harness.requests import Answer, Refusal, Request

if TYPE_CHECKING:
    from harness.models.adapters import Adapters
    from harness.models.loading import Loaded

SHARED: Final = ("folder", "gguf", "adapter")
"""Formats of checkpoints that can be, or have, a base."""


class Pool:
    """Loads checkpoints, each base once as long as nothing else is loaded in between."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._base: CheckpointInfo | None = None
        self._loaded: Loaded | None = None
        self._adapters: Adapters | None = None
        self._broken: dict[str, str] = {}

    def engine(self, info: CheckpointInfo) -> Engine:
        """The checkpoint, ready to answer. Raises ``CheckpointError`` when its files do not make that model, which is
        tried once."""
        if info.name in self._broken:
            raise CheckpointError(self._broken[info.name])
        try:
            return self._engine(info)
        except CheckpointError as error:
            self._broken[info.name] = str(error)
            raise

    def _engine(self, info: CheckpointInfo) -> Engine:
        if info.format not in SHARED:
            self.close()
            return load(info, self._settings)
        from harness.models.adapters import Adapters
        from harness.models.loading import Loaded, check_vocabulary, load_model, load_tokenizer

        base = info.base or info
        if self._loaded is None or self._adapters is None or not _same(base, self._base):
            self.close()
            self._base, self._loaded = base, load_model(base, self._settings)
            self._adapters = Adapters(self._loaded.model)
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

    def close(self) -> None:
        """Frees the base; engines that were made of it must be closed before."""
        self._base = self._loaded = self._adapters = None


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


def _same(one: CheckpointInfo, other: CheckpointInfo | None) -> bool:
    """Whether two are the same weights in the same form; their names and lengths may differ."""
    if other is None:
        return False
    return _key(one) == _key(other)


def _key(info: CheckpointInfo) -> tuple[Any, ...]:
    return info.path.resolve(), info.format, sorted(info.overrides.items()), info.trust_remote_code
