"""The engines: ours first, then those of installed packages; and those that a session has open.

Texts may be written by vLLM: a server that the run starts for a checkpoint's weights writes them, and this process
scores. The server is that of ``--checkpoint vllm:PATH``. It starts before the weights are loaded here, with a share of
the memory that is free by then, and ends with the engine. Requests are planned for it by the same tokenizer, and greedy
texts in float32 are those of this process.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from pytest_touchstone.checkpoints import ENGINES, CheckpointInfo
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest, CheckpointResources
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.hooks import load_plugins
from pytest_touchstone.core.requests import Answer, Generate, Refusal, Request, Turn
from pytest_touchstone.engines.answers.engine import AnswersFactory
from pytest_touchstone.engines.base import Done, Engine, EngineFactory, EngineProgress
from pytest_touchstone.engines.fake import FakeFactory
from pytest_touchstone.engines.http.engine import HttpFactory
from pytest_touchstone.engines.http.managed_servers import LocalServers
from pytest_touchstone.engines.live import LiveFactory
from pytest_touchstone.engines.settings import ModelSettings, finds_vllm
from pytest_touchstone.engines.transformers import TransformersFactory


def factories() -> tuple[EngineFactory, ...]:
    """Return every engine factory. Raises ``CheckpointError`` for an entry point that is not a factory."""
    added = load_plugins(ENGINES, CheckpointError)
    for factory in added:
        if not isinstance(factory, EngineFactory):
            raise CheckpointError(
                f"{type(factory).__module__}.{type(factory).__qualname__}, of group {ENGINES}, is no EngineFactory "
                "(pytest_touchstone.engines.base); derive it from that class, or uninstall its package"
            )
    return (TransformersFactory(), FakeFactory(), HttpFactory(), LiveFactory(), AnswersFactory(), *added)


def factory_of(info: CheckpointInfo) -> EngineFactory:
    """Return the factory that the checkpoint names. Raises ``CheckpointError`` if there is none."""
    for factory in factories():
        if factory.name == info.engine:
            return factory
    names = ", ".join(factory.name for factory in factories())
    raise CheckpointError(f"{info.source}: no engine is called {info.engine!r}; there are {names}")


def identity(info: CheckpointInfo) -> str | None:
    """Return the fingerprint of a checkpoint by its engine, or None.

    Raises ``CheckpointError`` when a file cannot be read, or changes in the meantime.
    """
    return factory_of(info).fingerprint(info)


def open_engine(info: CheckpointInfo, settings: ModelSettings) -> Engine:
    """Open a single checkpoint, ready to answer. Raises ``CheckpointError`` if it cannot be loaded."""
    return factory_of(info).open(info, settings)


class EnginePool:
    """A pool of engines for the checkpoints of one ``model_key``; another key evicts them."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._key: tuple[str, ...] | None = None
        self._open: Callable[[CheckpointInfo], Engine] | None = None
        self._engines: dict[CheckpointInfo, Engine] = {}
        self._failed: dict[str, str] = {}

    def engine(self, info: CheckpointInfo) -> Engine:
        """Return the engine of a checkpoint, ready to answer.

        It is the same engine each time, until a checkpoint of another ``model_key`` is requested. Raises
        ``CheckpointError`` if it cannot be loaded; loading is tried only once.
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
        """Close all engines to free their memory, and return them; each is opened again when it is needed."""
        closed = list(self._engines.values())
        self.close()
        release_host_memory()
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
                release_host_memory()
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


def release_host_memory() -> None:
    """Return the memory of closed engines to the system, so that the next model does not come on top of it."""
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)  # of glibc


# Texts by vLLM

_SERVER_MEMORY_SHARE: Final = 0.4
"""The share of the free memory that the server may take, with its weights; the rest is for the same weights here."""


def choose_text_engine(
    wanted: str, infos: Callable[[], Sequence[CheckpointInfo]], *, alone: bool, cuda: bool
) -> Literal["vllm"] | None:
    """Return "vllm" if a vLLM server writes a run's texts, None if this process does.

    Args:
        wanted: The value of ``--eval-set texts``.
        infos: The checkpoints of the run.
        alone: Whether the run is one process on one device.
        cuda: Whether that device is a GPU.

    Raises:
        CheckpointError: If vLLM is demanded and cannot be used.

    """
    if wanted == "own" or (wanted == "auto" and not (alone and cuda and finds_vllm())):
        return None
    writers = [info for info in infos() if _generates_texts(info)]
    others = [info.source for info in writers if info.format != "folder" or info.base is not None]
    if writers and not others and alone:
        return "vllm"
    if wanted == "auto":
        return None
    why = f"{others[0]} is none" if others else "no checkpoint of this run is one"
    raise CheckpointError(
        "--eval-set texts=vllm: vLLM is started for folders of Transformers, in runs of one process on one device, "
        f"and {why if alone else 'this run is of several processes or devices'}; give --eval-set texts=own"
    )


def _generates_texts(info: CheckpointInfo) -> bool:
    return info.engine == "transformers" and info.kind == "causal"


class VllmTextsPool(EnginePool):
    """A pool of checkpoints whose texts are written by a vLLM server for each; the others are opened as usual.

    ``arguments`` are additional ones for the servers, and ``run`` holds the resources of the run.
    """

    def __init__(self, settings: ModelSettings, arguments: str, run: CheckpointResources) -> None:
        super().__init__(settings)
        self._arguments, self._run = arguments, run

    def _opener(self, info: CheckpointInfo) -> Callable[[CheckpointInfo], Engine]:
        return functools.partial(self._opened, super()._opener(info))

    def _opened(self, open_weights: Callable[[CheckpointInfo], Engine], info: CheckpointInfo) -> Engine:
        if not _generates_texts(info):
            return open_weights(info)
        from pytest_touchstone.engines.transformers.devices import free_share

        settings = self._settings
        device, free = free_share(settings.device)
        options = {
            "dtype": "float32" if device == "cpu" and settings.dtype == "auto" else settings.dtype,
            "args": f"--gpu-memory-utilization {_SERVER_MEMORY_SHARE * free:.2f} {self._arguments}",
        }
        held = CheckpointResources(self._run.say, self._run.logs)
        try:
            asked = CheckpointRequest(f"vllm:{info.path}", info.seq_len, options=options, lasting=held)
            served = replace(LocalServers().inspect(info.path, asked), name=info.name)
            return VllmTextsEngine(open_weights(info), HttpFactory().open(served, settings), held)
        except BaseException as error:
            held.close()
            if isinstance(error, CheckpointError):
                raise CheckpointError(f"--eval-set texts=vllm: {error}") from None
            raise


class VllmTextsEngine(Engine):
    """An engine that sends texts to a server, and all other requests to the engine of this process."""

    def __init__(self, weights_engine: Engine, server: Engine, held: CheckpointResources) -> None:
        self.info = weights_engine.info
        self._own, self._server, self._held = weights_engine, server, held
        version = server.info.served["version"]
        self._note = f"{self.info.name}: vLLM {version} writes the texts (--eval-set texts=vllm)"

    @property
    def usage(self) -> dict[str, Any]:
        """The cost of both engines, and a note on who writes the texts."""
        own_usage, server_usage = self._own.usage, self._server.usage
        return {
            **own_usage,
            **server_usage,
            "notes": [*own_usage["notes"], self._note, *server_usage["notes"]],
        }

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in order; scores are complete before texts."""
        answers: dict[int, Answer | Refusal] = {}
        for engine, texts in ((self._own, False), (self._server, True)):
            numbers = [at for at, request in enumerate(requests) if isinstance(request, Generate) == texts]

            def passed(at: int, answer: Answer | Refusal, numbers: Sequence[int] = numbers) -> None:
                if done is not None:
                    done(numbers[at], answer)

            if numbers:
                asked = [requests[number] for number in numbers]
                answers.update(zip(numbers, engine.answer(asked, passed), strict=True))
        return [answers[number] for number in range(len(requests))]

    def prepare(self, requests: Sequence[Request]) -> None:
        """Tokenize coming texts that are scored."""
        self._own.prepare([request for request in requests if not isinstance(request, Generate)])

    def progress(self) -> EngineProgress:
        """Return the progress of both engines."""
        own_progress, server_progress = self._own.progress(), self._server.progress()
        return EngineProgress(
            tokens=own_progress.tokens + server_progress.tokens, trouble=server_progress.trouble
        )

    def too_long(self, requests: Sequence[Request]) -> list[int] | None:
        """Return the indices of the requests whose contexts would be cut."""
        return self._own.too_long(requests)

    def conversation(self, turns: Sequence[Turn]) -> str | Refusal | None:
        """Render turns with the chat template."""
        return self._own.conversation(turns)

    @property
    def marks(self) -> frozenset[str]:
        """The texts that are special tokens."""
        return self._own.marks

    def expect_traces(self, *, opened: bool) -> None:
        """Tell the server's side that texts have shown a trace."""
        self._server.expect_traces(opened=opened)

    def check(self) -> None:
        """Send the canary requests to the server again."""
        self._server.check()

    def close(self) -> None:
        """Free the weights of this process, and end the server."""
        self._own.close()
        self._server.close()
        self._held.close()
