"""Calls in virtual time: when each is sent, sent again, and how it ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.engines.http.calls import Call, CallLimits, CallReply, Failure
from pytest_touchstone.engines.http.pacing import Circuit, Limiter, Trouble, status_text
from pytest_touchstone.engines.http.transport import CallEnded, CallQueue, Event, Link, Over
from pytest_touchstone.engines.http.wire import Outcome
from tests.support.virtual_time import VirtualClock, VirtualLoop, run

T = TypeVar("T")

REFUSED = Trouble("connection", "connection refused")

GOOD = CallReply("good")


def status(number: int, wait: float | None = None) -> Trouble:
    return Trouble("status", status_text(number), number, wait=wait)


@dataclass
class Script:
    """A sender that follows a script: ``after`` is the seconds of an attempt, ``ends`` its outcome by the place of the
    call, the number of the attempt and the time."""

    ends: Callable[[int, int, float], Outcome[Any]]
    after: float = 1.0
    sent: list[tuple[float, int]] = field(default_factory=list)
    attempts: Counter[int] = field(default_factory=Counter)
    under_way: int = 0
    most: int = 0

    async def send(self, call: Call[Any], seconds: float) -> Outcome[Any]:
        assert call.body is not None
        place, loop = call.body["place"], asyncio.get_running_loop()
        attempt = self.attempts[place]
        self.attempts[place] += 1
        self.sent.append((loop.time(), place))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if seconds < self.after:
                await asyncio.sleep(seconds)
                return Trouble("time", f"no reply within {seconds:.3g} s")
            await asyncio.sleep(self.after)
            return self.ends(place, attempt, loop.time())
        finally:
            self.under_way -= 1


@dataclass
class Played:
    """The events of an asking, and its script after it."""

    events: list[Event]
    script: Script
    link: Link
    seconds: float

    @property
    def ends(self) -> dict[int, CallReply[Any] | Failure]:
        counts = Counter(event.number for event in self.events if isinstance(event, CallEnded))
        assert not counts or max(counts.values()) == 1, "an end is told once"
        return {event.number: event.end for event in self.events if isinstance(event, CallEnded)}

    @property
    def error(self) -> BaseException | None:
        *before, last = self.events
        assert isinstance(last, Over)
        assert not any(isinstance(event, Over) for event in before)
        return last.error


def play(
    script: Script,
    count: int = 1,
    limits: CallLimits | None = None,
    *,
    owners: Sequence[int] | None = None,
    during: Callable[[CallQueue, asyncio.AbstractEventLoop], object] = lambda asking, loop: None,
) -> Played:
    """Ask ``count`` calls in virtual time, each with its own owner unless ``owners`` says otherwise."""
    limits = limits or CallLimits()
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    link = Link(
        base="http://h:1",
        sender=script,
        clock=clock,
        limiter=Limiter(limits.concurrency_most),
        circuit=Circuit(limits.gone_seconds),
        chance=Random(0),
    )
    if limits.run_seconds is not None:
        link.ends = limits.run_seconds
    calls = [
        Call("/", {"place": place}, lambda found: found, owner=owners[place] if owners else place)
        for place in range(count)
    ]
    events: list[Event] = []

    async def main() -> None:
        over = asyncio.Event()

        def note(found: list[Event]) -> None:
            events.extend(found)
            for event in found:
                if isinstance(event, Over):
                    over.set()

        asking = CallQueue(calls, link, limits, note)
        loop.call_soon(asking.pump)
        during(asking, loop)
        await over.wait()
        await asyncio.sleep(0)

    run(loop, main())
    return Played(events, script, link, clock.now())


def kinds(played: Played) -> dict[str, int]:
    return dict(Counter(end.kind if isinstance(end, Failure) else "reply" for end in played.ends.values()))


def test_calls_are_answered_side_by_side_up_to_the_most() -> None:
    played = play(Script(lambda *_: GOOD), 500, CallLimits(concurrency_most=32))
    assert kinds(played) == {"reply": 500}
    assert played.script.most == played.link.stats.most_under_way == 32
    assert played.seconds < 25


def test_a_call_that_fails_is_sent_again_later_and_holds_no_place_meanwhile() -> None:
    played = play(
        Script(lambda place, attempt, _: status(500) if place == 0 and attempt < 3 else GOOD),
        4,
        CallLimits(concurrency_most=1),
    )
    assert kinds(played) == {"reply": 4}
    first = played.ends[0]
    assert isinstance(first, CallReply)
    assert first.attempts == 4
    order = [place for _, place in played.script.sent]
    assert order[:2] == [0, 1], "the second call does not wait for the first one's pause"
    assert played.link.stats.retries == 3


def test_the_whole_wait_that_a_server_asks_for_is_kept_by_all_calls() -> None:
    played = play(
        Script(lambda place, attempt, _: status(429, wait=60.0) if place == 0 and attempt == 0 else GOOD),
        200,
        CallLimits(concurrency_most=4),
    )
    assert kinds(played) == {"reply": 200}
    assert not [at for at, _ in played.script.sent if 1.0 < at < 61.0]


def test_a_wait_past_the_items_deadline_ends_that_call_and_holds_up_no_other() -> None:
    played = play(Script(lambda place, *_: status(429, wait=1e6) if place == 0 else GOOD), 50)
    assert kinds(played) == {"limited": 1, "reply": 49}
    assert played.seconds < 60


def test_a_server_that_limits_every_item_to_its_end_is_not_asked_on() -> None:
    played = play(Script(lambda *_: status(429, wait=1e6)), 10_000)
    assert isinstance(played.error, ServerError)
    assert str(played.error).startswith(
        "http://h:1 answers none of 8 items in a row (HTTP 429 (too many requests)): 9"
    )
    assert len(played.script.sent) < 100


def test_the_deadline_of_an_item_counts_all_its_calls_from_the_first_one_sent() -> None:
    limits = CallLimits(item_seconds=5.5, concurrency_most=1)
    played = play(Script(lambda *_: GOOD), 12, limits, owners=[0] * 8 + [1] * 4)
    assert [type(played.ends[place]) for place in range(12)] == [CallReply] * 5 + [Failure] * 3 + [
        CallReply
    ] * 4
    cut, waiting = played.ends[5], played.ends[6]
    assert isinstance(cut, Failure)
    assert isinstance(waiting, Failure)
    assert cut.reason == "the item's 5.5 s passed before the server replied (--eval-item-timeout)"
    assert (
        waiting.reason == "the item's 5.5 s (--eval-item-timeout) passed while the call waited for its turn"
    )


def test_an_attempt_that_takes_too_long_is_given_up_and_tried_again() -> None:
    played = play(Script(lambda *_: GOOD, after=9.0), 1, CallLimits(attempt_seconds=2.0, attempts=3))
    assert played.ends[0] == Failure(
        "no reply within 2 s, after 3 attempts (--eval-request-timeout)", "deadline"
    )
    assert len(played.script.sent) == 3


def test_when_the_runs_time_is_up_it_stops_with_a_line() -> None:
    played = play(Script(lambda *_: GOOD), 100, CallLimits(run_seconds=10.5, concurrency_most=4))
    assert isinstance(played.error, ServerError)
    assert str(played.error) == (
        "the run's 10 s are over (--eval-run-timeout): 60 calls without an answer; what is done is kept, and the same "
        "command goes on from there"
    )
    assert kinds(played) == {"reply": 40}
    assert played.seconds == 10.5


def test_a_server_that_is_away_for_a_while_costs_no_item() -> None:
    played = play(Script(lambda _place, _attempt, now: REFUSED if 20 < now < 100 else GOOD, after=0.5), 900)
    assert kinds(played) == {"reply": 900}
    probes = [at for at, _ in played.script.sent if 25 < at < 99]
    assert len(probes) < 12, "while it is away it is asked now and then, by one call"


def test_what_holds_up_the_asking_can_be_seen() -> None:
    def look(asking: CallQueue, loop: asyncio.AbstractEventLoop) -> None:
        for at in (5, 60, 131.5, 160, 200.5):
            loop.call_later(at, lambda: seen.append(asking.trouble()))
        loop.call_later(200.4, asking.drain)

    def ends(place: int, attempt: int, now: float) -> Outcome[Any]:
        if place == 0 and attempt == 0:
            return status(429, wait=20.0)
        return REFUSED if 40 < now < 100 else GOOD

    seen: list[str] = []
    play(Script(ends), 9999, CallLimits(concurrency_most=4), during=look)
    assert seen == [
        "the server asks to wait 16 s",
        "no answer for 18 s (of 120)",
        "",
        "",
        "stopping after 4 calls",
    ]


def test_a_server_that_is_gone_ends_the_run_with_one_line() -> None:
    played = play(Script(lambda _place, _attempt, now: REFUSED if now > 3 else GOOD), 900)
    assert isinstance(played.error, ServerError)
    done = len(played.ends)
    assert kinds(played) == {"reply": done}
    assert 0 < done < 900
    assert str(played.error) == (
        f"http://h:1 has not answered for {int(str(played.error).split(' for ')[1].split(' s ')[0])} s (connection "
        f"refused): {900 - done} calls without an answer; what is done is kept, and the same command goes on from there"
    )
    assert 120 < played.seconds < 160


def test_items_that_always_break_the_server_end_as_failures_where_others_are_answered() -> None:
    played = play(Script(lambda place, *_: status(500) if place % 10 == 0 else GOOD), 300)
    assert kinds(played) == {"reply": 270, "server": 30}


def test_a_single_call_to_nobody_is_a_failure_and_no_end_of_the_run() -> None:
    played = play(Script(lambda *_: REFUSED))
    assert played.ends[0] == Failure("connection refused, after 6 attempts", "gone")
    assert played.error is None


def test_draining_sends_nothing_more_and_waits_for_what_is_under_way() -> None:
    played = play(
        Script(lambda place, *_: status(500) if place == 1 else GOOD),
        100,
        CallLimits(concurrency_most=4),
        during=lambda asking, loop: loop.call_later(0.5, asking.drain),
    )
    assert set(played.ends) == {0, 2, 3}, "the second one would have to be sent again"
    assert played.error is None
    assert played.seconds == 1.0


def test_a_mistake_of_ours_ends_the_asking_with_that_error() -> None:
    def wrong(*_: object) -> Outcome[Any]:
        raise RuntimeError("a mistake")

    assert str(play(Script(wrong), 3).error) == "a mistake"


OUTCOMES = st.sampled_from(
    [
        *[GOOD] * 6,
        *(status(429), status(429, wait=2.0), status(429, wait=1e6), status(500), status(503, wait=1.0)),
        *(status(400), REFUSED, Trouble("malformed", "no choices"), Trouble("time", "no reply")),
    ]
)


@settings(max_examples=40, deadline=None)
@given(
    outcomes=st.lists(st.lists(OUTCOMES, min_size=1, max_size=8), min_size=1, max_size=40),
    most=st.integers(1, 64),
)
def test_whatever_the_server_does_every_call_ends_once_or_the_run_says_why(outcomes, most: int) -> None:
    played = play(
        Script(lambda place, attempt, _: outcomes[place][min(attempt, len(outcomes[place]) - 1)]),
        len(outcomes),
        CallLimits(concurrency_most=most, item_seconds=300),
    )
    ends = played.ends
    assert isinstance(played.error, ServerError) or ends.keys() == set(range(len(outcomes)))
    for place, end in ends.items():
        if isinstance(end, CallReply):
            assert outcomes[place][min(end.attempts, len(outcomes[place])) - 1] is GOOD
        else:
            assert end.reason
    assert played.script.most <= most
