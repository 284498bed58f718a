"""A model in the memory of another process, which started this one and may be training it.

``pytest_touchstone.evaluate(model=...)`` has pytest run in a process of its own, and answers that process's requests
with the model. They talk by a connection that only the two of them have: its number is in ``TOUCHSTONE_LIVE``, and
``live:NAME`` stands for the model.

    info                 -> CheckpointInfo
    fingerprint          -> text
    opened, INFO, ...    -> the most texts that the engine continues together, None where it does not say
    too long, REQUESTS   -> their numbers
    answer, REQUESTS     -> (number, answer), ... and in the end the engine's usage

In place of any of them comes a ``RemoteFault``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo, CheckpointRequest
from pytest_touchstone.core.errors import CheckpointError, HarnessError, ServerError
from pytest_touchstone.core.requests import Answer, Refusal, Request
from pytest_touchstone.engines.base import Done, Engine, EngineFactory
from pytest_touchstone.engines.settings import ModelSettings

VARIABLE: Final = "TOUCHSTONE_LIVE"
TARGET: Final = "live:"
RAISED: Final = "the model's code raised "
"""The beginning of what an item says of an unexpected error of the engine."""


@dataclass(frozen=True, slots=True)
class RemoteFault:
    """A failure at the model's side; ``known``: the message is a line for the user."""

    message: str
    known: bool


class LiveAnswer(NamedTuple):
    """The answer to a request, by its index in the call."""

    number: int
    answer: Answer | Refusal


@dataclass(frozen=True, slots=True)
class AllAnswered:
    """The end of the answers to one call, with the engine's usage so far."""

    usage: dict[str, Any]


# The side of the process that has the model


def serve(model: Any, connection: Connection) -> None:
    """Answer the other process for a model in memory, until that closes the connection, or ends.

    Args:
        model: A ``transformers.live.LiveModel``: it has ``info``, ``fingerprint()`` and ``open(info, settings)``.
        connection: The connection to the process of pytest.

    """
    with suppress(EOFError, ConnectionError), ExitStack() as opened:
        engine: Engine | None = None
        while True:
            name, *arguments = connection.recv()
            try:
                match name:
                    case "info":
                        connection.send(model.info)
                    case "fingerprint":
                        connection.send(model.fingerprint())
                    case "opened":
                        engine = None
                        opened.close()
                        engine = model.open(*arguments)
                        opened.callback(engine.close)
                        connection.send(engine.texts_together)
                    case "too long" if engine is not None:
                        connection.send(engine.too_long(*arguments))
                    case "answer" if engine is not None:
                        _answer(engine, arguments[0], connection.send)
            except (EOFError, ConnectionError):
                raise
            except Exception as error:
                is_expected = isinstance(error, HarnessError)
                connection.send(
                    RemoteFault(
                        str(error) if is_expected else f"{type(error).__name__}: {error}", is_expected
                    )
                )


def _answer(engine: Engine, requests: Sequence[Request], send: Callable[[Any], None]) -> None:
    """Send each answer as soon as it is complete, and the engine's usage at the end."""
    handed: set[int] = set()

    def done(number: int, answer: Answer | Refusal) -> None:
        handed.add(number)
        send(LiveAnswer(number, answer))

    for number, answer in enumerate(engine.answer(requests, done)):
        if number not in handed:
            send(LiveAnswer(number, answer))
    send(AllAnswered(engine.usage))


# The side of pytest


def _connected(source: str) -> Connection:
    """Return the connection to the process that has the model. Raises ``CheckpointError`` if there is none."""
    text = os.environ.get(VARIABLE, "")
    try:
        descriptor = os.dup(int(text))
    except (ValueError, OSError):
        raise CheckpointError(
            f"{source}: only pytest_touchstone.evaluate(model=...) has a model in memory; give a path"
        ) from None
    os.set_inheritable(int(text), False)  # programs that are started here need not have it
    return Connection(descriptor)


def _ask(connection: Connection, *asked: Any) -> Any:
    """Return the next message of the other process; raise its faults, and ``ServerError`` if it has ended."""
    try:
        if asked:
            connection.send(asked)
        reply = connection.recv()
    except (EOFError, OSError):
        raise ServerError("the process that has the model has ended; the same call goes on") from None
    if isinstance(reply, RemoteFault):
        raise CheckpointError(reply.message) if reply.known else RuntimeError(f"{RAISED}{reply.message}")
    return reply


class LiveFactory(EngineFactory):
    """The factory of engines for ``live:NAME``."""

    name = "live"
    targets = (TARGET,)
    listed = False
    """Users do not type the target, so hints about mistakes do not list it."""
    options: Mapping[str, str] = MappingProxyType({})

    def inspect(self, _: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Return the description of the model from the process that has it."""
        with _connected(asked.source) as connection:
            info: CheckpointInfo = _ask(connection, "info")
        return replace(info, seq_len=asked.limited(info.path, info.seq_len))

    def fingerprint(self, info: CheckpointInfo) -> str:
        """Return the identity of the weights in memory."""
        with _connected(info.source) as connection:
            return str(_ask(connection, "fingerprint"))

    def open(self, info: CheckpointInfo, settings: ModelSettings) -> Engine:
        """Return an engine for the model."""
        return LiveEngine(info, _connected(info.source), settings)


class LiveEngine(Engine):
    """An engine whose requests the other process answers."""

    def __init__(self, info: CheckpointInfo, connection: Connection, settings: ModelSettings) -> None:
        self.info = info
        self._connection = connection
        self._texts: int | None = _ask(connection, "opened", info, settings)
        self._usage: dict[str, Any] = {}

    @property
    def usage(self) -> dict[str, Any]:
        """The counts of the cost so far."""
        return self._usage

    @property
    def texts_together(self) -> int | None:
        """The maximum number of texts in a step of the model."""
        return self._texts

    def too_long(self, requests: Sequence[Request]) -> list[int] | None:
        """Return the indices of the requests that are longer than the model takes."""
        numbers: list[int] | None = _ask(self._connection, "too long", list(requests))
        return numbers

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request; each is passed to ``done`` as it arrives.

        An exception of ``done`` is raised after all answers, since the other process computes them anyway.
        """
        answers: dict[int, Answer | Refusal] = {}
        raised: BaseException | None = None
        reply = _ask(self._connection, "answer", list(requests))
        while isinstance(reply, LiveAnswer):
            answers[reply.number] = reply.answer
            try:
                if done is not None and raised is None:
                    done(reply.number, reply.answer)
            except BaseException as error:
                raised = error
            reply = _ask(self._connection)
        self._usage = reply.usage
        if raised is not None:
            raise raised
        return [answers[number] for number in range(len(requests))]

    def close(self) -> None:
        """Leave the model to the other process."""
        self._connection.close()
