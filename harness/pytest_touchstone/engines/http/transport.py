"""``Transport``: asks a server many things at once, and brings every call to its end.

The event loop has a thread of its own, which sends and reads; ends are handed over in the thread that asks. So
benchmarks, the journal and pytest see no other thread, and an answer is scored while others are on their way.

Ctrl-C: the first one sends nothing more and waits for what is under way, whose ends are handed over; then
``KeyboardInterrupt`` is raised. The second one waits for nothing. In neither case does it strike while an end is being
handed over, where it could cost a record; the third one does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from random import Random
from types import FrameType
from typing import Any, Final, TypeAlias, TypeVar

from pytest_touchstone.engines.http.asking import Asking, Ended, Event, Link, Stats
from pytest_touchstone.engines.http.calls import Call, Failure, Limits, Receiver, Reply, Server
from pytest_touchstone.engines.http.circuit import Circuit
from pytest_touchstone.engines.http.clock import Clock
from pytest_touchstone.engines.http.keys import Key, key_of
from pytest_touchstone.engines.http.limiter import Limiter
from pytest_touchstone.engines.http.wire import Wire

T = TypeVar("T")

LOOK_EVERY: Final = 5.0
"""The seconds after which the thread that asks looks whether the other is alive."""

CLOSE_SECONDS: Final = 5.0


class Interrupt:
    """The event that a person pressed Ctrl-C."""


Events: TypeAlias = "SimpleQueue[list[Event] | Interrupt]"


class Transport:
    """The connection to a server; used by one thread at a time."""

    def __init__(
        self,
        server: Server,
        limits: Limits | None = None,
        key: Key | None = None,
        *,
        clock: Clock | None = None,
        chance: Random | None = None,
    ) -> None:
        """``key`` is the environment's where it is None.

        Raises ``CheckpointError`` where aiohttp is missing, or the environment's key or proxy cannot be used.
        """
        self._limits = limits or Limits()
        clock = clock or Clock()
        self._wire = Wire(server, key_of(os.environ) if key is None else key, clock)
        self._link = Link(
            base=server.base,
            sender=self._wire,
            clock=clock,
            limiter=Limiter(self._limits.concurrency_most),
            circuit=Circuit(self._limits.gone_seconds),
            chance=chance or Random(),
        )
        self._asking: Asking | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def stats(self) -> Stats:
        """The counts so far; may be read by any thread."""
        now = self._link.stats
        return replace(now, troubles=now.troubles.copy())

    @property
    def trouble(self) -> str:
        """The obstacle to asking now, in a few words; empty where there is none. May be read by any thread."""
        asking = self._asking
        return "" if asking is None else asking.trouble()

    def run(self, calls: Sequence[Call[T]], done: Receiver[T]) -> None:
        """Ask all calls; call ``done`` once for each, in this thread and in any order, and return after the last.

        Raises ``ServerError`` where the server is not asked on, and ``KeyboardInterrupt``: then ``done`` has been
        called for all that had been answered. What ``done`` raises is passed on, and the others are given up.
        """
        self._run(calls, done, self._limits)

    def one(self, call: Call[T], attempts: int | None = None) -> Reply[T] | Failure:
        """Return the end of a single call; ``attempts`` in place of those of the limits."""
        limits = self._limits if attempts is None else replace(self._limits, attempts=attempts)
        ends: list[Reply[T] | Failure] = []
        self._run([call], lambda _, end: ends.append(end), limits)
        return ends[0]

    def get(self, path: str, attempts: int | None = None) -> Reply[Any] | Failure:
        """Return the JSON at a path below the server's address."""
        return self.one(Call(path, None, lambda found: found), attempts)

    def close(self) -> None:
        """Close the connections and end the thread; calling it again does nothing."""
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        closing = asyncio.run_coroutine_threadsafe(self._wire.close(), loop)
        with suppress(Exception):
            closing.result(CLOSE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_SECONDS)
        if not thread.is_alive():
            loop.close()

    def _run(self, calls: Sequence[Call[T]], done: Receiver[T], limits: Limits) -> None:
        if not calls:
            return
        loop = self._started(limits)
        events: Events = SimpleQueue()
        asking = self._asking = Asking(calls, self._link, limits, events.put)
        with _Interrupts(events, lambda: loop.call_soon_threadsafe(asking.drain)) as interrupts:
            try:
                loop.call_soon_threadsafe(asking.pump)
                self._deliver(asking, events, loop, done)
            except BaseException:
                loop.call_soon_threadsafe(asking.stop)
                raise
            finally:
                self._asking = None
        interrupts.pass_on()

    def _started(self, limits: Limits) -> asyncio.AbstractEventLoop:
        """Return the loop, with its thread running; the run's time begins with the first call."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="touchstone-http", daemon=True
            )
            self._thread.start()
            if limits.run_seconds is not None and self._link.ends == float("inf"):
                self._link.ends = self._link.clock.now() + limits.run_seconds
        return self._loop

    def _deliver(
        self, asking: Asking, events: Events, loop: asyncio.AbstractEventLoop, done: Receiver[T]
    ) -> None:
        """Hand over ends until the last event, or the second interrupt."""
        pressed = 0
        while True:
            found = self._next(events)
            if isinstance(found, Interrupt):
                pressed += 1
                if pressed > 1:
                    _hand_over_rest(events, done)
                    raise KeyboardInterrupt
                continue
            for event in found:
                if isinstance(event, Ended):
                    done(event.number, event.end)
                    if asking.take():
                        loop.call_soon_threadsafe(asking.pump)
                elif event.error is not None:
                    raise event.error
                else:
                    return

    def _next(self, events: Events) -> list[Event] | Interrupt:
        """Return the next events, or an interrupt."""
        while True:
            try:
                return events.get(timeout=LOOK_EVERY)
            except Empty:
                if self._thread is None or not self._thread.is_alive():
                    raise RuntimeError("the thread that asks the server has died") from None


class _Interrupts:
    """Ctrl-C as an event, in place of an exception anywhere, while a main thread asks; then it is passed on to the
    handler that there was.

    Where the signal is ignored or ends the process, nothing is changed.
    """

    def __init__(self, events: Events, drain: Callable[[], object]) -> None:
        self._events, self._drain = events, drain
        self._before: Callable[[int, FrameType | None], object] | None = None
        self._pressed = 0

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._before = before
                signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def pass_on(self) -> None:
        """Raise ``KeyboardInterrupt``, or what the former handler raises, if Ctrl-C was pressed."""
        if self._pressed:
            if self._before is not None:
                self._before(signal.SIGINT, None)
            raise KeyboardInterrupt

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self._pressed += 1
        if self._pressed > 2:
            raise KeyboardInterrupt
        # Both may be done in a handler of signals. Nothing more is sent, even while ends are being handed over.
        self._drain()
        self._events.put(Interrupt())


def _hand_over_rest(events: Events, done: Receiver[T]) -> None:
    """Hand over the ends that are there already."""
    with suppress(Empty):
        while True:
            found = events.get_nowait()
            for event in () if isinstance(found, Interrupt) else found:
                if isinstance(event, Ended):
                    done(event.number, event.end)
