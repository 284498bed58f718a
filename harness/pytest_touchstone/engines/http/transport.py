"""``HttpTransport``: sends concurrent requests to a server, and brings every call to its end.

The event loop has a thread of its own, which sends and reads; ends are handed over in the thread that asks. So
benchmarks, the journal and pytest see no other thread, and an answer is scored while others are on their way.

Calls are sent in the sequence they were given in, ``CallLimits.concurrency_most`` at a time. One that is to be sent
again keeps its place until then, so a server that fails or refuses is asked less. Where nobody answers at a server,
calls wait for it, and after ``CallLimits.gone_seconds`` the asking ends.

Ctrl-C: the first one sends nothing more and waits for what is under way, whose ends are handed over; then
``KeyboardInterrupt`` is raised. The second one waits for nothing. In neither case does it strike while an end is being
handed over, where it could cost a record; the third one does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.http.calls import (
    Call,
    CallFailure,
    CallLimits,
    CallReply,
    FailedAttempt,
    Receiver,
    deadline_failure,
    failure_after,
    pause_after,
)
from pytest_touchstone.engines.http.http_client import HttpClient, Outcome
from pytest_touchstone.engines.http.server import ApiKey, key_from_environment

T = TypeVar("T")

End: TypeAlias = CallReply[Any] | CallFailure

RUN_OPTION: Final = "--eval-set run_timeout"

MAX_UNANSWERED_ITEMS: Final = 8
"""The number of consecutive items without an answer after which the run stops."""

ALIVE_SECONDS: Final = 15.0
"""The seconds in which a live server replies."""

CLOSE_SECONDS: Final = 5.0


@dataclass(slots=True, kw_only=True)
class ServerConnection:
    """The state of a server that outlives a single call of ``run``; times are those of the loop.

    Attributes:
        base: The address before all paths.
        wire: The HTTP client.
        limits: The limits of time, concurrency and retries.
        counts: The ``requests`` sent, their ``retries``, and tokens as the server counts them in usable replies.
        troubles: The number of failed attempts by status or kind.
        ends: The time at which the run's limit is reached, None before the first call.
        held_until: The time before which the server wants no call.
        silent_since: The time of the first failed attempt since the server last answered, None if it answers.
        answered: The time of the last reply to a call.
        unanswered: The items that have begun and failed since then.

    """

    base: str
    wire: HttpClient
    limits: CallLimits
    counts: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)
    ends: float | None = None
    held_until: float = 0.0
    silent_since: float | None = None
    answered: float = float("-inf")
    unanswered: set[object] = field(default_factory=set)

    def silent(self, now: float) -> float:
        """Return the seconds since the server last answered, 0 if it answers."""
        return 0.0 if self.silent_since is None else now - self.silent_since

    def trouble(self, now: float) -> str:
        """Describe what holds up the calls; empty if nothing does. Called by any thread."""
        if (held := self.held_until - now) > 0:
            return f"the server asks to wait {held:.0f} s"
        if (silent := self.silent(now)) >= 1:
            return f"no answer for {silent:.0f} s (of {self.limits.gone_seconds or 0:.0f})"
        return ""


class CallQueue:
    """The calls of one ``HttpTransport.run``; used in the loop's thread.

    ``hand_over`` receives the index of each call and its end. After ``draining`` is set, nothing more is sent.
    """

    def __init__(
        self,
        calls: Sequence[Call[Any]],
        link: ServerConnection,
        hand_over: Callable[[tuple[int, End]], object],
    ) -> None:
        self._calls, self._link, self._hand_over = calls, link, hand_over
        self._left = len(calls)
        self._deadlines: dict[int, float] = {}
        self.draining = asyncio.Event()

    async def run(self) -> None:
        """Run all calls to their end; while draining, only those in flight. Raises ``ServerError``."""
        link, waiting = self._link, iter(enumerate(self._calls))
        try:
            async with asyncio.timeout_at(link.ends), asyncio.TaskGroup() as workers:
                for _ in range(min(link.limits.concurrency_most, len(self._calls))):
                    workers.create_task(self._work(waiting))
        except TimeoutError:
            raise self._server_error(
                f"the run's {link.limits.run_seconds:.0f} s are over ({RUN_OPTION})"
            ) from None
        except ExceptionGroup as group:  # the others have ended for the first one
            raise group.exceptions[0] from None

    async def _work(self, waiting: Iterator[tuple[int, Call[Any]]]) -> None:
        for number, call in waiting:
            if (end := await self._send_until_end(call)) is None:
                return
            self._left -= 1
            self._hand_over((number, end))

    async def _send_until_end(self, call: Call[Any]) -> End | None:
        """Send a call until it ends and return the end; None if the queue drains before."""
        link, limits, now = self._link, self._link.limits, asyncio.get_running_loop().time
        trouble: FailedAttempt | None = None
        sent = counted = 0
        wake = begun = now()
        while await self._wait_until(wake):
            deadline = self._deadlines.setdefault(call.owner, now() + limits.item_seconds)
            if now() >= deadline:
                return deadline_failure(trouble, limits)
            link.counts["retries"] += sent > 0
            sent, counted = sent + 1, counted + 1
            outcome = await self._attempt(call, min(limits.attempt_seconds, deadline - now()))
            if isinstance(outcome, CallReply):
                return replace(outcome, attempts=sent)
            trouble = outcome
            counted -= await self._is_server_gone(trouble, begun, last=counted >= limits.attempts)
            pause = pause_after(trouble, sent)
            failure = failure_after(trouble, counted, pause, deadline - now(), limits)
            if failure is not None:
                self._note_failure(failure, call.owner, begun)
                return failure
            wake = now() + pause
            if trouble.wait:
                link.held_until = max(link.held_until, wake)
        return None

    async def _wait_until(self, wake: float) -> bool:
        """Wait until a time, longer if the server asks for it; return whether calls may still be sent then."""
        now = asyncio.get_running_loop().time
        while not self.draining.is_set() and (seconds := max(wake, self._link.held_until) - now()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.draining.wait(), seconds)
        return not self.draining.is_set()

    async def _attempt(self, call: Call[T], seconds: float) -> Outcome[T]:
        link = self._link
        link.counts["requests"] += 1
        outcome = await link.wire.send(call, seconds)
        if isinstance(outcome, CallReply):
            link.counts.update(outcome.usage)
            link.unanswered.clear()
            link.answered = asyncio.get_running_loop().time()
        else:
            link.troubles[outcome.text if outcome.kind == "status" else outcome.kind] += 1
        if not (isinstance(outcome, FailedAttempt) and outcome.away):
            link.silent_since = None
        elif link.silent_since is None:
            link.silent_since = asyncio.get_running_loop().time()
        return outcome

    async def _is_server_gone(self, trouble: FailedAttempt, begun: float, *, last: bool) -> bool:
        """Return whether an attempt does not count, since the server is away or has just come back.

        It is checked before the ``last`` attempt of a call, since some servers drop calls that they do not understand.
        A call that found no connection for as long as a server may be away fails, although the server answers others.
        Raises ``ServerError`` if the server has been away for too long.
        """
        link, gone = self._link, self._link.limits.gone_seconds
        now = asyncio.get_running_loop().time()
        silent = link.silent(now)
        if gone is None or not trouble.away or not (last or silent >= gone):
            return False
        there = await link.wire.send(Call("/", None, bool, text=True), ALIVE_SECONDS)
        if not (isinstance(there, FailedAttempt) and there.away):
            link.silent_since = None
            return trouble.unsent and now - begun < gone
        if silent >= gone:
            raise self._server_error(f"{link.base} has not answered for {silent:.0f} s ({trouble.text})")
        return True

    def _note_failure(self, failure: CallFailure, owner: int, begun: float) -> None:
        """Raise ``ServerError`` if too many consecutive items have no answer."""
        link = self._link
        if failure.kind in ("refused", "malformed"):
            link.unanswered.clear()
        elif begun > link.answered:
            link.unanswered.add((self, owner))
        if link.limits.gone_seconds is not None and len(link.unanswered) >= MAX_UNANSWERED_ITEMS:
            items = len(link.unanswered)
            raise self._server_error(f"{link.base} answers none of {items} items in a row ({failure.reason})")

    def _server_error(self, why: str) -> ServerError:
        missing = count(self._left, "call")
        return ServerError(
            f"{why}: {missing} without an answer; what is done is kept, and the same command goes on from there"
        )


class HttpTransport:
    """A transport of calls to one server; used by one thread at a time.

    ``counts`` and ``troubles`` are those of ``ServerConnection``.
    """

    def __init__(self, base: str, limits: CallLimits | None = None, key: ApiKey | None = None) -> None:
        """Create a transport; ``base`` is the address before all paths, ``key`` defaults to the environment's.

        Raises ``CheckpointError`` if the environment's key or proxy cannot be used.
        """
        wire = HttpClient(base, key_from_environment(os.environ) if key is None else key)
        self._link = ServerConnection(base=base, wire=wire, limits=limits or CallLimits())
        self.counts, self.troubles = self._link.counts, self._link.troubles
        self._queue: CallQueue | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def trouble(self) -> str:
        """The reason why calls wait now; empty if they do not. May be read by any thread."""
        queue = self._queue
        if queue is None:
            return ""
        return (
            "stopping after the calls under way"
            if queue.draining.is_set()
            else self._link.trouble(time.monotonic())
        )

    def run(self, calls: Sequence[Call[T]], done: Receiver[T]) -> None:
        """Send all calls; call ``done`` once for each, in this thread and in any order.

        Raises ``ServerError`` if the server is given up, and ``KeyboardInterrupt``: then ``done`` has been called for
        all calls that were answered. An exception of ``done`` is passed on, and the other calls are dropped.
        """
        if not calls:
            return
        loop = self._start_loop()
        ends: SimpleQueue[tuple[int, End] | None] = SimpleQueue()
        queue = self._queue = CallQueue(calls, self._link, ends.put)
        asking = asyncio.run_coroutine_threadsafe(queue.run(), loop)
        asking.add_done_callback(lambda _: ends.put(None))

        def press(pressed: int) -> None:  # in a handler of signals
            if pressed == 1:
                loop.call_soon_threadsafe(queue.draining.set)
            else:
                asking.cancel()

        try:
            with _interrupts(press):
                while (event := ends.get()) is not None:
                    done(*event)
                asking.result()
        except CancelledError:
            raise KeyboardInterrupt from None
        finally:
            asking.cancel()
            self._queue = None

    def ask(self, calls: Sequence[Call[T]]) -> list[CallReply[T] | CallFailure]:
        """Return the ends of calls, in order."""
        ends: dict[int, CallReply[T] | CallFailure] = {}
        self.run(calls, ends.__setitem__)
        return [ends[number] for number in range(len(calls))]

    def close(self) -> None:
        """Close the connections and end the thread; calling it again does nothing."""
        loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._link.wire.close(), loop).result(CLOSE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, with its thread running; the run's time begins with the first call."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="touchstone-http", daemon=True
            )
            self._thread.start()
            if (seconds := self._link.limits.run_seconds) is not None and self._link.ends is None:
                self._link.ends = self._loop.time() + seconds
        return self._loop


@contextmanager
def _interrupts(press: Callable[[int], object]) -> Iterator[None]:
    """Call ``press`` at the first and the second Ctrl-C, in place of an exception anywhere.

    Afterwards the signal goes to the previous handler. Nothing is changed outside the main thread, or if the signal is
    ignored or ends the process.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    pressed = 0

    def handler(_number: int, _frame: object) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 2:
            raise KeyboardInterrupt
        press(pressed)

    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        before(signal.SIGINT, None)
        raise KeyboardInterrupt
