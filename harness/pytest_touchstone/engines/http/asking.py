"""The asking of many calls at once, in the thread of an event loop: when each is sent, sent again, and how it ends.

A call waits in the sequence it was given in; no more than the limiter allows are sent, and so serialized, at a time.
A call that is to be sent again waits for its moment without holding a place. ``Asking`` ends when every call has ended,
or when it is drained, stopped or given up. It tells the other thread of each event, in order.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.http.calls import Call, Failure, Limits, Reply
from pytest_touchstone.engines.http.circuit import Circuit
from pytest_touchstone.engines.http.clock import Clock
from pytest_touchstone.engines.http.limiter import Limiter, work_of
from pytest_touchstone.engines.http.retry import LIMITED, Trouble, decide, overdue
from pytest_touchstone.engines.http.wire import Outcome

T = TypeVar("T")

MOST_UNREAD: Final = 1024
"""The ends of calls that may wait for the other thread before no more are sent."""

SHORTEST_SLEEP: Final = 0.001

RUN_OPTION: Final = "--eval-run-timeout"


@dataclass(slots=True)
class Stats:
    """Counts of what asking has cost.

    ``requests`` were sent, ``retries`` of them again, and took ``seconds`` together; ``most_under_way`` at a time.
    Tokens are as the server counts them, those of replies that were of no use left out. ``troubles`` counts attempts
    that failed, by their status or kind.
    """

    requests: int = 0
    retries: int = 0
    seconds: float = 0.0
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


class Ended(NamedTuple):
    """The event that a call has ended."""

    number: int
    end: Reply[Any] | Failure


class Over(NamedTuple):
    """The last event; ``error`` says why, where not all calls have ended."""

    error: BaseException | None = None


Event: TypeAlias = Ended | Over


@dataclass(slots=True)
class _Open(Generic[T]):
    """A call without an end. Of the attempts ``sent`` those are ``counted`` that met a server, or might have."""

    number: int
    call: Call[T]
    sent: int = 0
    counted: int = 0
    trouble: Trouble | None = None


class Asking:
    """The calls of one ``Transport.run``; all methods are called in the loop's thread, but for ``take`` and
    ``trouble``."""

    def __init__(
        self, calls: Sequence[Call[Any]], link: Link, limits: Limits, events: Callable[[list[Event]], None]
    ) -> None:
        """``events`` is called with those of a moment together: waking a thread costs more than an event."""
        self._calls, self._link, self._limits, self._events = calls, link, limits, events
        self._new: list[Event] = []
        self._fresh = 0
        self._again: list[tuple[float, int, _Open[Any]]] = []
        self._deadlines: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._draining = self._over = False
        self._ended = self._taken = 0
        self._stalled = False

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

    def take(self) -> bool:
        """Note, in the other thread, that it has taken an end; return whether ``pump`` is waiting for that."""
        self._taken += 1
        return self._stalled

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
        while self._may_send(now) and (one := self._next(now)) is not None:
            self._send(one, now)
        if not self._tasks and (self._draining or not self._left):
            self._finish()
        elif not self._over:
            self._sleep(now)

    @property
    def _left(self) -> bool:
        return bool(self._again) or self._fresh < len(self._calls)

    def _may_send(self, now: float) -> bool:
        link = self._link
        if self._draining or self._over or len(self._tasks) >= link.limiter.limit or self._unread():
            return False
        allowed = link.circuit.wait_until()
        return allowed is not None and now >= max(allowed, link.limiter.held_until)

    def _unread(self) -> bool:
        """Return whether the other thread must take ends before more calls are sent."""
        if self._ended - self._taken < MOST_UNREAD:
            self._stalled = False
            return False
        self._stalled = True
        # It may have taken the last one before it could see that.
        return self._ended - self._taken >= MOST_UNREAD

    def _next(self, now: float) -> _Open[Any] | None:
        """Return the next call to send: one whose moment to be sent again has come, else the first of the others."""
        while self._left:
            if self._again and self._again[0][0] <= now:
                one = heapq.heappop(self._again)[2]
            elif self._fresh < len(self._calls):
                one = _Open(self._fresh, self._calls[self._fresh])
                self._fresh += 1
            else:
                return None
            if now < self._deadlines.setdefault(one.call.owner, now + self._limits.item_seconds):
                return one
            self._end(one, overdue(one.trouble, self._limits))
        return None

    def _send(self, one: _Open[Any], now: float) -> None:
        self._link.circuit.sent()
        task = asyncio.get_running_loop().create_task(self._attempt(one, now))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        stats = self._link.stats
        stats.most_under_way = max(stats.most_under_way, len(self._tasks))
        stats.requests += 1
        stats.retries += one.sent > 0
        one.sent += 1

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._over:
            return
        if (error := task.exception()) is not None:
            self._finish(error)
        else:
            self.pump()

    async def _attempt(self, one: _Open[Any], begun: float) -> None:
        link = self._link
        deadline = self._deadlines[one.call.owner]
        seconds = min(self._limits.attempt_seconds, deadline - begun, link.ends - begun)
        outcome = await link.sender.send(one.call, seconds)
        now = link.clock.now()
        link.stats.seconds += now - begun
        if isinstance(outcome, Trouble):
            self._troubled(one, outcome, begun, now)
            return
        for name, tokens in outcome.usage.items():
            setattr(link.stats, name, getattr(link.stats, name) + tokens)
        link.limiter.answered(begun, now, work_of(outcome.usage))
        link.circuit.answered()
        self._end(
            one,
            Reply(
                value=outcome.value,
                seconds=now - begun,
                attempts=one.sent,
                usage=outcome.usage,
                fingerprint=outcome.fingerprint,
                model=outcome.model,
            ),
        )

    def _troubled(self, one: _Open[Any], trouble: Trouble, begun: float, now: float) -> None:
        link, deadline = self._link, self._deadlines[one.call.owner]
        link.stats.troubles[trouble.text if trouble.what == "status" else trouble.what] += 1
        one.counted += not (trouble.away and link.circuit.open)
        one.trouble = trouble
        if trouble.overload:
            wait = trouble.wait
            hold = None if wait is None or now + wait >= deadline else now + wait
            link.limiter.overloaded(begun, now, hold=hold)
        if trouble.down:
            link.circuit.failed(begun, now, trouble.text)
        else:
            link.circuit.answered(limited=trouble.status == LIMITED)
        decided = decide(trouble, max(one.counted, 1), now, deadline, self._limits, chance=link.chance.random)
        if isinstance(decided, Failure):
            if decided.kind == "limited":
                link.circuit.limited(trouble.text)
            self._end(one, decided)
        else:
            heapq.heappush(self._again, (decided, one.number, one))
        if link.circuit.verdict is not None and not self._draining:
            self._give_up(f"{link.base} {link.circuit.verdict}")

    def _end(self, one: _Open[Any], end: Reply[Any] | Failure) -> None:
        self._ended += 1
        self._tell(Ended(one.number, end))

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
        if self._left and allowed is not None and len(self._tasks) < link.limiter.limit and not self._stalled:
            ready = now if self._fresh < len(self._calls) else self._again[0][0]
            wake = min(wake, max(ready, allowed, link.limiter.held_until))
        if wake < float("inf"):
            seconds = max(link.clock.real(wake - now), SHORTEST_SLEEP)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.pump)
