"""``HttpTransport``: asks a server many things at once, and brings every call to its end.

The event loop has a thread of its own, which sends and reads; ends are handed over in the thread that asks. So
benchmarks, the journal and pytest see no other thread, and an answer is scored while others are on their way.

A call waits in the sequence it was given in; no more than the limiter allows are sent, and so serialized, at a time.
A call that is to be sent again waits for its moment without holding a place.

Ctrl-C: the first one sends nothing more and waits for what is under way, whose ends are handed over; then
``KeyboardInterrupt`` is raised. The second one waits for nothing. In neither case does it strike while an end is being
handed over, where it could cost a record; the third one does.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from random import Random
from types import FrameType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.http.calls import Call, CallLimits, CallReply, Failure, Receiver
from pytest_touchstone.engines.http.pacing import LIMITED, Circuit, Limiter, Trouble, decide, overdue, work_of
from pytest_touchstone.engines.http.server import Key, key_of
from pytest_touchstone.engines.http.wire import Clock, Outcome, Wire

T = TypeVar("T")

SHORTEST_SLEEP: Final = 0.001

RUN_OPTION: Final = "--eval-run-timeout"


@dataclass(slots=True)
class Stats:
    """Counts of what asking has cost.

    ``requests`` were sent, ``retries`` of them again; ``most_under_way`` at a time.
    Tokens are as the server counts them, those of replies that were of no use left out. ``troubles`` counts attempts
    that failed, by their status or kind.
    """

    requests: int = 0
    retries: int = 0
    most_under_way: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    troubles: Counter[str] = field(default_factory=Counter)


class Sender(Protocol):
    """The sender of a call: ``wire.Wire``."""

    async def send(self, call: Call[T], seconds: float) -> Outcome[T]:
        """Return what came of sending a call once."""


@dataclass(slots=True, kw_only=True)
class Link:
    """Everything about a server that outlives one asking. ``ends`` is when the run's time is up."""

    base: str
    sender: Sender
    clock: Clock
    limiter: Limiter
    circuit: Circuit
    chance: Random
    stats: Stats = field(default_factory=Stats)
    ends: float = float("inf")


class CallEnded(NamedTuple):
    """The event that a call has ended."""

    number: int
    end: CallReply[Any] | Failure


class Over(NamedTuple):
    """The last event; ``error`` says why, where not all calls have ended."""

    error: BaseException | None = None


Event: TypeAlias = CallEnded | Over


@dataclass(slots=True)
class _Pending(Generic[T]):
    """A call without an end. Of the attempts ``sent`` those are ``counted`` that met a server, or might have."""

    number: int
    call: Call[T]
    sent: int = 0
    counted: int = 0
    trouble: Trouble | None = None


class CallQueue:
    """The calls of one ``HttpTransport.run``; all methods but ``trouble`` are called in the loop's thread."""

    def __init__(
        self,
        calls: Sequence[Call[Any]],
        link: Link,
        limits: CallLimits,
        events: Callable[[list[Event]], None],
    ) -> None:
        """``events`` is called with those of a moment together: waking a thread costs more than an event."""
        self._calls, self._link, self._limits, self._events = calls, link, limits, events
        self._new: list[Event] = []
        self._fresh = 0
        self._again: list[tuple[float, int, _Pending[Any]]] = []
        self._deadlines: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._draining = self._over = False
        self._ended = 0

    def trouble(self) -> str:
        """Return in a few words what holds up the asking now, nothing where it goes on; called by any thread."""
        link, now = self._link, self._link.clock.now()
        if self._draining:
            return f"stopping after {count(len(self._tasks), 'call')}"
        if away := link.circuit.away(now):
            return f"no answer for {away:.0f} s (of {self._limits.gone_seconds:.0f})"
        if (held := link.limiter.held_until - now) > 0:
            return f"the server asks to wait {held:.0f} s"
        return ""

    def drain(self) -> None:
        """Send nothing more, and wait for what is under way."""
        self._draining = True
        self.pump()

    def stop(self) -> None:
        """Give up what is under way, at once and without an end."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._link.circuit.withdrawn()

    def pump(self) -> None:
        """Send what may be sent now, and come back when more may be."""
        if self._over:
            return
        try:
            self._pump()
        except Exception as error:  # a mistake of ours: the other thread would wait for ever
            self._finish(error)

    def _pump(self) -> None:
        now = self._link.clock.now()
        if now >= self._link.ends and not self._draining:
            self._give_up(f"the run's {self._limits.run_seconds:.0f} s are over ({RUN_OPTION})")
            return
        while self._may_send(now) and (pending := self._next(now)) is not None:
            self._send(pending, now)
        if not self._tasks and (self._draining or not self._left):
            self._finish()
        elif not self._over:
            self._sleep(now)

    @property
    def _left(self) -> bool:
        return bool(self._again) or self._fresh < len(self._calls)

    def _may_send(self, now: float) -> bool:
        link = self._link
        if self._draining or self._over or len(self._tasks) >= link.limiter.limit:
            return False
        allowed = link.circuit.wait_until()
        return allowed is not None and now >= max(allowed, link.limiter.held_until)

    def _next(self, now: float) -> _Pending[Any] | None:
        """Return the next call to send: one whose moment to be sent again has come, else the first of the others."""
        while self._left:
            if self._again and self._again[0][0] <= now:
                pending = heapq.heappop(self._again)[2]
            elif self._fresh < len(self._calls):
                pending = _Pending(self._fresh, self._calls[self._fresh])
                self._fresh += 1
            else:
                return None
            if now < self._deadlines.setdefault(pending.call.owner, now + self._limits.item_seconds):
                return pending
            self._end(pending, overdue(pending.trouble, self._limits))
        return None

    def _send(self, pending: _Pending[Any], now: float) -> None:
        self._link.circuit.sent()
        task = asyncio.get_running_loop().create_task(self._attempt(pending, now))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        stats = self._link.stats
        stats.most_under_way = max(stats.most_under_way, len(self._tasks))
        stats.requests += 1
        stats.retries += pending.sent > 0
        pending.sent += 1

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._over:
            return
        if (error := task.exception()) is not None:
            self._finish(error)
        else:
            self.pump()

    async def _attempt(self, pending: _Pending[Any], begun: float) -> None:
        link = self._link
        deadline = self._deadlines[pending.call.owner]
        seconds = min(self._limits.attempt_seconds, deadline - begun, link.ends - begun)
        outcome = await link.sender.send(pending.call, seconds)
        now = link.clock.now()
        if isinstance(outcome, Trouble):
            self._troubled(pending, outcome, begun, now)
            return
        for name, tokens in outcome.usage.items():
            setattr(link.stats, name, getattr(link.stats, name) + tokens)
        link.limiter.answered(begun, now, work_of(outcome.usage))
        link.circuit.answered()
        self._end(pending, replace(outcome, attempts=pending.sent))

    def _troubled(self, pending: _Pending[Any], trouble: Trouble, begun: float, now: float) -> None:
        link, deadline = self._link, self._deadlines[pending.call.owner]
        link.stats.troubles[trouble.text if trouble.what == "status" else trouble.what] += 1
        pending.counted += not (trouble.away and link.circuit.open)
        pending.trouble = trouble
        if trouble.overload:
            wait = trouble.wait
            hold = None if wait is None or now + wait >= deadline else now + wait
            link.limiter.overloaded(begun, now, hold=hold)
        if trouble.down:
            link.circuit.failed(begun, now, trouble.text)
        else:
            link.circuit.answered(limited=trouble.status == LIMITED)
        decided = decide(
            trouble, max(pending.counted, 1), now, deadline, self._limits, chance=link.chance.random
        )
        if isinstance(decided, Failure):
            if decided.kind == "limited":
                link.circuit.limited(trouble.text)
            self._end(pending, decided)
        else:
            heapq.heappush(self._again, (decided, pending.number, pending))
        if link.circuit.verdict is not None and not self._draining:
            self._give_up(f"{link.base} {link.circuit.verdict}")

    def _end(self, pending: _Pending[Any], end: CallReply[Any] | Failure) -> None:
        self._ended += 1
        self._tell(CallEnded(pending.number, end))

    def _tell(self, event: Event) -> None:
        if not self._new:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._new.append(event)

    def _hand_over(self) -> None:
        events, self._new = self._new, []
        if events:
            self._events(events)

    def _give_up(self, why: str) -> None:
        missing = count(len(self._calls) - self._ended, "call")
        self._finish(
            ServerError(
                f"{why}: {missing} without an answer; what is done is kept, and the same command goes on from there"
            )
        )

    def _finish(self, error: BaseException | None = None) -> None:
        self.stop()
        self._tell(Over(error))

    def _sleep(self, now: float) -> None:
        """Come back when the next call may be sent for all that is known now."""
        if self._timer is not None:
            self._timer.cancel()
        link, wake = self._link, self._link.ends
        allowed = link.circuit.wait_until()
        if self._left and allowed is not None and len(self._tasks) < link.limiter.limit:
            ready = now if self._fresh < len(self._calls) else self._again[0][0]
            wake = min(wake, max(ready, allowed, link.limiter.held_until))
        if wake < float("inf"):
            seconds = max(link.clock.real(wake - now), SHORTEST_SLEEP)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.pump)


LOOK_EVERY: Final = 5.0
"""The seconds after which the thread that asks looks whether the other is alive."""

CLOSE_SECONDS: Final = 5.0


Events: TypeAlias = "SimpleQueue[list[Event] | None]"
"""None stands for Ctrl-C."""


class HttpTransport:
    """The connection to a server; used by one thread at a time."""

    def __init__(
        self,
        base: str,
        limits: CallLimits | None = None,
        key: Key | None = None,
        *,
        clock: Clock | None = None,
        chance: Random | None = None,
    ) -> None:
        """``base`` is the address below which paths are; ``key`` is the environment's where it is None.

        Raises ``CheckpointError`` where the environment's key or proxy cannot be used.
        """
        self._limits = limits or CallLimits()
        clock = clock or Clock()
        self._wire = Wire(base, key_of(os.environ) if key is None else key, clock)
        self._link = Link(
            base=base,
            sender=self._wire,
            clock=clock,
            limiter=Limiter(self._limits.concurrency_most),
            circuit=Circuit(self._limits.gone_seconds),
            chance=chance or Random(),
        )
        self._asking: CallQueue | None = None
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
        if not calls:
            return
        loop = self._started()
        events: Events = SimpleQueue()
        asking = self._asking = CallQueue(calls, self._link, self._limits, events.put)
        with _Interrupts(events, lambda: loop.call_soon_threadsafe(asking.drain)) as interrupts:
            try:
                loop.call_soon_threadsafe(asking.pump)
                self._deliver(events, done)
            except BaseException:
                loop.call_soon_threadsafe(asking.stop)
                raise
            finally:
                self._asking = None
        interrupts.pass_on()

    def ask(self, call: Call[T]) -> CallReply[T] | Failure:
        """Return the end of a single call."""
        ends: list[CallReply[T] | Failure] = []
        self.run([call], lambda _, end: ends.append(end))
        return ends[0]

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

    def _started(self) -> asyncio.AbstractEventLoop:
        """Return the loop, with its thread running; the run's time begins with the first call."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="touchstone-http", daemon=True
            )
            self._thread.start()
            if (seconds := self._limits.run_seconds) is not None and self._link.ends == float("inf"):
                self._link.ends = self._link.clock.now() + seconds
        return self._loop

    def _deliver(self, events: Events, done: Receiver[T]) -> None:
        """Hand over ends until the last event, or the second interrupt."""
        pressed = 0
        while True:
            batch = self._next(events)
            if batch is None:
                pressed += 1
                if pressed > 1:
                    _hand_over_rest(events, done)
                    raise KeyboardInterrupt
                continue
            for event in batch:
                if isinstance(event, CallEnded):
                    done(event.number, event.end)
                elif event.error is not None:
                    raise event.error
                else:
                    return

    def _next(self, events: Events) -> list[Event] | None:
        """Return the next events, None for Ctrl-C."""
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
        self._events.put(None)


def _hand_over_rest(events: Events, done: Receiver[T]) -> None:
    """Hand over the ends that are there already."""
    with suppress(Empty):
        while True:
            batch = events.get_nowait()
            for event in batch or ():
                if isinstance(event, CallEnded):
                    done(event.number, event.end)
