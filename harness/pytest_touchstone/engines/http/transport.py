"""``HttpTransport``: asks a server many things at once, and brings every call to its end.

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
    CallLimits,
    CallReply,
    FailedAttempt,
    Failure,
    Receiver,
    deadline_failure,
    failure_after,
    pause_after,
)
from pytest_touchstone.engines.http.http_client import HttpClient, Outcome
from pytest_touchstone.engines.http.server import Key, key_from_environment

T = TypeVar("T")

End: TypeAlias = CallReply[Any] | Failure

RUN_OPTION: Final = "--eval-set run_timeout"

MAX_UNANSWERED_ITEMS: Final = 8
"""The number of items in a row without an answer after which a server is not asked on."""

ALIVE_SECONDS: Final = 15.0
"""The seconds in which a server replies, if anybody answers there."""

CLOSE_SECONDS: Final = 5.0


@dataclass(slots=True, kw_only=True)
class ServerConnection:
    """Everything about a server that outlives one asking; times are those of the loop.

    ``counts`` say what asking has cost: ``requests`` that were sent, ``retries`` of them again, and tokens as the
    server counts them, those of replies that were of no use left out. ``troubles`` counts attempts that failed, by
    their status or kind.

    ``ends`` is when the run's time is up, and ``held_until`` the time before which the server wants no call.
    ``silent_since`` is when the first attempt failed of those since somebody answered there, None where none has.
    ``answered`` is when the last call had a reply; ``unanswered`` are the items that have begun and ended since then.
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
        """Return for how many seconds nobody has answered at the server."""
        return 0.0 if self.silent_since is None else now - self.silent_since

    def trouble(self, now: float) -> str:
        """Return in a few words what holds up the asking, nothing where it goes on; called by any thread."""
        if (held := self.held_until - now) > 0:
            return f"the server asks to wait {held:.0f} s"
        if (silent := self.silent(now)) >= 1:
            return f"no answer for {silent:.0f} s (of {self.limits.gone_seconds or 0:.0f})"
        return ""


class CallQueue:
    """The calls of one ``HttpTransport.run``; used in the loop's thread.

    ``hand_over`` is called with the number of each call and its end. Once ``draining`` is set nothing more is sent.
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
        """Bring all calls to their end, or those under way where it drains. Raises ``ServerError``."""
        link, waiting = self._link, iter(enumerate(self._calls))
        try:
            async with asyncio.timeout_at(link.ends), asyncio.TaskGroup() as workers:
                for _ in range(min(link.limits.concurrency_most, len(self._calls))):
                    workers.create_task(self._work(waiting))
        except TimeoutError:
            raise self._given_up(
                f"the run's {link.limits.run_seconds:.0f} s are over ({RUN_OPTION})"
            ) from None
        except ExceptionGroup as group:  # the others have ended for the first one
            raise group.exceptions[0] from None

    async def _work(self, waiting: Iterator[tuple[int, Call[Any]]]) -> None:
        for number, call in waiting:
            if (end := await self._end_of(call)) is None:
                return
            self._left -= 1
            self._hand_over((number, end))

    async def _end_of(self, call: Call[Any]) -> End | None:
        """Send a call until it has its end; return that, and None where it drains before."""
        link, limits, now = self._link, self._link.limits, asyncio.get_running_loop().time
        trouble: FailedAttempt | None = None
        sent = counted = 0
        wake = begun = now()
        while await self._waited_until(wake):
            deadline = self._deadlines.setdefault(call.owner, now() + limits.item_seconds)
            if now() >= deadline:
                return deadline_failure(trouble, limits)
            link.counts["retries"] += sent > 0
            sent, counted = sent + 1, counted + 1
            outcome = await self._attempt(call, min(limits.attempt_seconds, deadline - now()))
            if isinstance(outcome, CallReply):
                return replace(outcome, attempts=sent)
            trouble = outcome
            counted -= await self._nobody_answers(trouble, last=counted >= limits.attempts)
            pause = pause_after(trouble, sent)
            failure = failure_after(trouble, counted, pause, deadline - now(), limits)
            if failure is not None:
                self._note_failure(failure, call.owner, begun)
                return failure
            wake = now() + pause
            if trouble.wait:
                link.held_until = max(link.held_until, wake)
        return None

    async def _waited_until(self, wake: float) -> bool:
        """Wait until a time, longer where the server asks for it; return whether calls may still be sent then."""
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

    async def _nobody_answers(self, trouble: FailedAttempt, *, last: bool) -> bool:
        """Return whether nobody answers at the server, which is looked at where this would be a call's ``last``
        attempt: some break off the calls that they do not understand, but none that found no connection.
        Raises ``ServerError`` where it is gone."""
        link, gone = self._link, self._link.limits.gone_seconds
        silent = link.silent(asyncio.get_running_loop().time())
        if gone is None or not trouble.away or not (last or silent >= gone):
            return False
        there = await link.wire.send(Call("/", None, bool, text=True), ALIVE_SECONDS)
        if not (isinstance(there, FailedAttempt) and there.away):
            link.silent_since = None
            return trouble.unsent  # it has just come back
        if silent >= gone:
            raise self._given_up(f"{link.base} has not answered for {silent:.0f} s ({trouble.text})")
        return True

    def _note_failure(self, failure: Failure, owner: int, begun: float) -> None:
        """Raise ``ServerError`` where too many items in a row have no answer."""
        link = self._link
        if failure.kind in ("refused", "malformed"):
            link.unanswered.clear()
        elif begun > link.answered:
            link.unanswered.add((self, owner))
        if link.limits.gone_seconds is not None and len(link.unanswered) >= MAX_UNANSWERED_ITEMS:
            items = len(link.unanswered)
            raise self._given_up(f"{link.base} answers none of {items} items in a row ({failure.reason})")

    def _given_up(self, why: str) -> ServerError:
        missing = count(self._left, "call")
        return ServerError(
            f"{why}: {missing} without an answer; what is done is kept, and the same command goes on from there"
        )


class HttpTransport:
    """The connection to a server; used by one thread at a time.

    ``counts`` and ``troubles`` are those of ``ServerConnection``.
    """

    def __init__(self, base: str, limits: CallLimits | None = None, key: Key | None = None) -> None:
        """``base`` is the address below which paths are; ``key`` is the environment's where it is None.

        Raises ``CheckpointError`` where the environment's key or proxy cannot be used.
        """
        wire = HttpClient(base, key_from_environment(os.environ) if key is None else key)
        self._link = ServerConnection(base=base, wire=wire, limits=limits or CallLimits())
        self.counts, self.troubles = self._link.counts, self._link.troubles
        self._queue: CallQueue | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def trouble(self) -> str:
        """The obstacle to asking now, in a few words; empty where there is none. May be read by any thread."""
        queue = self._queue
        if queue is None:
            return ""
        return (
            "stopping after the calls under way"
            if queue.draining.is_set()
            else self._link.trouble(time.monotonic())
        )

    def run(self, calls: Sequence[Call[T]], done: Receiver[T]) -> None:
        """Ask all calls; call ``done`` once for each, in this thread and in any order, and return after the last.

        Raises ``ServerError`` where the server is not asked on, and ``KeyboardInterrupt``: then ``done`` has been
        called for all that had been answered. What ``done`` raises is passed on, and the others are given up.
        """
        if not calls:
            return
        loop = self._started()
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

    def ask(self, calls: Sequence[Call[T]]) -> list[CallReply[T] | Failure]:
        """Return the ends of calls, in order."""
        ends: dict[int, CallReply[T] | Failure] = {}
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

    def _started(self) -> asyncio.AbstractEventLoop:
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
    """Call ``press`` at the first and the second Ctrl-C, in place of an exception anywhere, while a main thread asks;
    then pass it on to the handler that there was.

    Where the signal is ignored or ends the process, nothing is changed.
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
