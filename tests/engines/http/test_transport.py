"""Calls in virtual time: when each is sent, sent again, and how it ends; and a real server, threads and Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.engines.http import calls
from pytest_touchstone.engines.http.calls import (
    Call,
    CallFailure,
    CallLimits,
    CallReply,
    FailedAttempt,
    MalformedReplyError,
    status_text,
)
from pytest_touchstone.engines.http.http_client import Outcome
from pytest_touchstone.engines.http.server import ApiKey
from pytest_touchstone.engines.http.transport import CallQueue, HttpTransport, ServerConnection
from tests.support.asking import ends_of, mixed
from tests.support.fault_server import FaultServer
from tests.support.lines import naming, numbers
from tests.support.virtual_time import VirtualLoop, run

REFUSED = FailedAttempt("connection", "connection refused")

SLOW = FailedAttempt("time", "no reply")

GOOD = CallReply("good")


def status(number: int, wait: float | None = None) -> FailedAttempt:
    return FailedAttempt("status", status_text(number), number, wait=wait)


@dataclass
class Script:
    """What comes of each attempt, by the place of the call, the number of the attempt and the time; ``after`` is the
    seconds that it takes. From ``away`` to ``back`` nobody answers, whatever is sent."""

    ends: Callable[[int, int, float], Outcome[Any]] = lambda *_: GOOD
    after: float = 1.0
    away: float = float("inf")
    back: float = float("inf")
    sent: list[tuple[float, int]] = field(default_factory=list)
    attempts: Counter[int] = field(default_factory=Counter)
    under_way: int = 0
    most: int = 0

    async def send(self, call: Call[Any], seconds: float) -> Outcome[Any]:
        loop = asyncio.get_running_loop()
        if call.body is None:  # a look whether anybody answers
            return REFUSED if self.away < loop.time() < self.back else GOOD
        place = call.body["place"]
        attempt = self.attempts[place]
        self.attempts[place] += 1
        self.sent.append((loop.time(), place))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(min(seconds, self.after))
            if seconds < self.after:
                return FailedAttempt("time", f"no reply within {seconds:.3g} s")
            return REFUSED if self.away < loop.time() < self.back else self.ends(place, attempt, loop.time())
        finally:
            self.under_way -= 1


@dataclass
class Played:
    """The ends of an asking, and what it ended with."""

    ends: dict[int, CallReply[Any] | CallFailure]
    error: Exception | None
    link: ServerConnection
    seconds: float


def play(
    script: Script,
    count: int = 1,
    limits: CallLimits | None = None,
    *,
    owners: Sequence[int] | None = None,
    during: Callable[[CallQueue, ServerConnection, asyncio.AbstractEventLoop], object] = lambda *_: None,
) -> Played:
    """Ask ``count`` calls in virtual time, each with its own owner unless ``owners`` says otherwise."""
    loop = VirtualLoop()
    link = ServerConnection(base="http://h:1", wire=script, limits=limits or CallLimits())  # type: ignore[arg-type]
    link.ends = link.limits.run_seconds
    calls = [
        Call("/", {"place": place}, lambda found: found, owner=owners[place] if owners else place)
        for place in range(count)
    ]
    ends: dict[int, CallReply[Any] | CallFailure] = {}

    def note(event: tuple[int, CallReply[Any] | CallFailure]) -> None:
        assert event[0] not in ends, "an end is told once"
        ends[event[0]] = event[1]

    async def main() -> Exception | None:
        queue = CallQueue(calls, link, note)
        during(queue, link, loop)
        try:
            await queue.run()
        except Exception as error:
            return error
        return None

    seconds = 0.0

    async def timed() -> Exception | None:
        nonlocal seconds
        error = await main()
        seconds = loop.time()
        return error

    error = run(loop, timed())
    return Played(ends, error, link, seconds)


def kinds(played: Played) -> dict[str, int]:
    return dict(
        Counter(end.kind if isinstance(end, CallFailure) else "reply" for end in played.ends.values())
    )


def test_calls_are_answered_side_by_side_up_to_the_most() -> None:
    script = Script()
    played = play(script, 500, CallLimits(concurrency_most=32))
    assert kinds(played) == {"reply": 500}
    assert script.most == 32
    assert played.seconds == pytest.approx(16)
    assert [place for _, place in script.sent] == list(range(500))


def test_a_call_that_fails_is_sent_again_later_and_holds_its_place_meanwhile() -> None:
    script = Script(lambda place, attempt, _: status(500) if place == 0 and attempt < 3 else GOOD)
    played = play(script, 4, CallLimits(concurrency_most=1))
    assert kinds(played) == {"reply": 4}
    assert played.ends[0] == replace(GOOD, attempts=4)
    assert [place for _, place in script.sent] == [0, 0, 0, 0, 1, 2, 3]
    assert played.link.counts == {"requests": 7, "retries": 3}
    assert played.link.troubles == {"HTTP 500 (internal server error)": 3}


def test_a_server_that_refuses_is_asked_less() -> None:
    script = Script(lambda *_: status(429), after=0.1)
    play(script, 10_000, CallLimits(item_seconds=400))
    assert len([at for at, _ in script.sent if 100 < at < 200]) < 64 * 100 / 15


def test_the_whole_wait_that_a_server_asks_for_is_kept_by_all_calls() -> None:
    waits = {(0, 0): 60.0, (1, 0): 70.0}

    def ends(place: int, attempt: int, _: float) -> Outcome[Any]:
        wait = waits.get((place, attempt))
        return GOOD if wait is None else status(429, wait=wait)

    script = Script(ends)
    played = play(script, 200, CallLimits(concurrency_most=4))
    assert kinds(played) == {"reply": 200}
    assert not [at for at, _ in script.sent if 1.0 < at < 71.0]


def test_a_wait_past_the_items_deadline_ends_that_call_and_holds_up_no_other() -> None:
    played = play(Script(lambda place, *_: status(429, wait=1e6) if place == 0 else GOOD), 50)
    assert kinds(played) == {"limited": 1, "reply": 49}
    assert played.seconds < 60


@pytest.mark.parametrize("trouble", [status(429, wait=1e6), status(500), SLOW])
def test_a_server_that_answers_no_item_in_a_row_is_not_asked_on(trouble: FailedAttempt) -> None:
    script = Script(lambda *_: trouble)
    played = play(script, 10_000)
    assert isinstance(played.error, ServerError)
    unanswered = f"{10_000 - len(played.ends)} calls"
    assert naming("http://h:1", "8 items", unanswered, "kept").search(str(played.error))
    assert trouble.text in str(played.error)
    assert len(played.ends) == 7
    assert len(script.sent) < 500


def test_the_deadline_of_an_item_counts_all_its_calls_from_the_first_one_sent() -> None:
    limits = CallLimits(item_seconds=5.5, concurrency_most=1)
    played = play(Script(), 12, limits, owners=[0] * 8 + [1] * 4)
    types = [type(played.ends[place]) for place in range(12)]
    assert types == [CallReply] * 5 + [CallFailure] * 3 + [CallReply] * 4
    cut, waiting = played.ends[5], played.ends[6]
    assert isinstance(cut, CallFailure)
    assert isinstance(waiting, CallFailure)
    assert naming("5.5 s", "--eval-set item_timeout", "replied").search(cut.reason)
    assert naming("5.5 s", "--eval-set item_timeout", "turn").search(waiting.reason)


def test_an_attempt_that_takes_too_long_is_given_up_and_tried_again() -> None:
    script = Script(after=9.0)
    played = play(script, 1, CallLimits(attempt_seconds=2.0, attempts=3))
    reason = "no reply within 2 s, after 3 attempts (--eval-set request_timeout)"
    assert played.ends[0] == CallFailure(reason, "deadline")
    assert len(script.sent) == 3


def test_when_the_runs_time_is_up_it_stops_with_a_line() -> None:
    played = play(Script(), 100, CallLimits(run_seconds=10.5, concurrency_most=4))
    assert isinstance(played.error, ServerError)
    assert naming("10 s", "--eval-set run_timeout", "60 calls", "kept", "same command").search(
        str(played.error)
    )
    assert kinds(played) == {"reply": 40}
    assert played.seconds == 10.5


@pytest.mark.parametrize("most", [1, 64])
def test_a_server_that_is_away_for_a_while_costs_no_item(most: int) -> None:
    script = Script(after=0.5, away=20, back=100)
    played = play(script, 200 * most, CallLimits(concurrency_most=most))
    assert kinds(played) == {"reply": 200 * most}
    assert len([at for at, _ in script.sent if 60 < at < 100]) < 5 * most, (
        "meanwhile it is asked now and then"
    )


@pytest.mark.parametrize("most", [1, 64])
def test_a_server_that_is_gone_ends_the_run_with_one_line(most: int) -> None:
    played = play(Script(away=3), 900, CallLimits(concurrency_most=most))
    assert isinstance(played.error, ServerError)
    done = len(played.ends)
    assert kinds(played) == {"reply": done}
    assert 0 < done < 900
    why, _, left = str(played.error).partition(" s (connection refused): ")
    assert 120 <= int(why.removeprefix("http://h:1 has not answered for ")) < 150
    assert naming(f"{900 - done} calls", "kept", "same command").search(left)
    assert 120 < played.seconds < 155


@pytest.mark.parametrize(
    ("trouble", "kind"), [(status(500), "server"), (REFUSED, "gone"), (status(502), "server")]
)
def test_items_that_always_break_the_server_end_as_failures_where_it_is_there(
    trouble: FailedAttempt, kind: str
) -> None:
    played = play(Script(lambda place, *_: trouble if place % 10 == 0 else GOOD), 300)
    assert kinds(played) == {"reply": 270, kind: 30}
    alone = play(Script(lambda *_: trouble))
    assert kinds(alone) == {kind: 1}
    assert alone.seconds < 30


def test_no_attempt_counts_that_found_no_connection_to_a_server_that_is_back_when_looked_at() -> None:
    unsent = replace(REFUSED, unsent=True)
    played = play(
        Script(lambda _, attempt, __: GOOD if attempt == 9 else unsent), limits=CallLimits(attempts=3)
    )
    assert kinds(played) == {"reply": 1}


def test_a_call_that_finds_no_connection_fails_soon_although_the_server_answers_others() -> None:
    unsent = replace(REFUSED, unsent=True)
    played = play(Script(lambda place, *_: unsent if place == 0 else GOOD), 300)
    assert kinds(played) == {"reply": 299, "gone": 1}
    assert 120 < played.seconds < 400  # of the 1,800 that an item has


def test_who_asks_once_is_told_at_once_that_nobody_answers() -> None:
    played = play(Script(away=-1), limits=CallLimits(gone_seconds=None, attempts=3))
    assert played.ends[0] == CallFailure("connection refused, after 3 attempts", "gone")
    assert played.error is None
    assert played.seconds < 5


def test_what_holds_up_the_asking_can_be_seen() -> None:
    def look(_: CallQueue, link: ServerConnection, loop: asyncio.AbstractEventLoop) -> None:
        for at in (5, 60, 160):
            loop.call_later(at, lambda: seen.append(link.trouble(loop.time())))

    def ends(place: int, attempt: int, _: float) -> Outcome[Any]:
        return status(429, wait=20.0) if place == 0 and attempt == 0 else GOOD

    seen: list[str] = []
    play(Script(ends, away=40, back=100), 999, CallLimits(concurrency_most=4), during=look)
    assert [numbers(line) for line in seen] == [[16], [19, 120], []]


def test_draining_sends_nothing_more_and_waits_for_what_is_under_way() -> None:
    played = play(
        Script(lambda place, *_: status(500) if place == 1 else GOOD),
        100,
        CallLimits(concurrency_most=4),
        during=lambda queue, _, loop: loop.call_later(0.5, queue.draining.set),
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
        *(status(400), REFUSED, FailedAttempt("malformed", "no choices"), SLOW),
    ]
)


@settings(max_examples=40, deadline=None)
@given(
    outcomes=st.lists(st.lists(OUTCOMES, min_size=1, max_size=8), min_size=1, max_size=40),
    most=st.integers(1, 64),
)
def test_whatever_the_server_does_every_call_ends_once_or_the_run_says_why(outcomes, most: int) -> None:
    script = Script(lambda place, attempt, _: outcomes[place][min(attempt, len(outcomes[place]) - 1)])
    played = play(script, len(outcomes), CallLimits(concurrency_most=most, item_seconds=300))
    assert isinstance(played.error, ServerError) or played.ends.keys() == set(range(len(outcomes)))
    for place, end in played.ends.items():
        if isinstance(end, CallReply):
            assert outcomes[place][min(end.attempts, len(outcomes[place])) - 1] is GOOD
        else:
            assert end.reason
    assert script.most <= most


# A real server


@contextmanager
def transport(server: FaultServer, limits: CallLimits | None = None) -> Iterator[HttpTransport]:
    asking = HttpTransport(server.base, limits, ApiKey())
    try:
        yield asking
    finally:
        asking.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are short."""
    monkeypatch.setattr(calls, "FIRST_PAUSE", 0.01)


def told(end: CallReply[Any] | CallFailure) -> object:
    """The value of an end, or the kind of its failure."""
    return end.value if isinstance(end, CallReply) else end.kind


def check_story(count: int, at: tuple[int, ...]) -> None:
    """Ask many calls while a fifth of the attempts fails, at several concurrencies: all end right or as a named
    failure."""
    calls, right = mixed(count)
    found = {}
    for most in at:
        with (
            FaultServer(rate=0.2, seed=16, slow_seconds=20) as server,
            transport(server, CallLimits(attempt_seconds=2, concurrency_most=most)) as asking,
        ):
            ends = ends_of(asking, calls)
            requests = asking.counts["requests"]
            assert requests == sum(server.asked.values()) == count + asking.counts["retries"]
        wrong = [
            number
            for number, end in enumerate(ends)
            if isinstance(end, CallReply) and end.value != right[number]
        ]
        assert not wrong
        failures = [end for end in ends if isinstance(end, CallFailure)]
        assert all(end.reason and "\n" not in end.reason for end in failures)
        assert 0 < len(failures) < count / 50
        assert len(server.faults) > 18
        found[most] = [told(end) for end in ends]
    assert len(set(map(str, found.values()))) == 1, "the same at every concurrency"


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_hundreds_of_calls_end_right_or_named_at_any_concurrency_while_a_fifth_of_attempts_fails() -> None:
    check_story(600, (4, 64))


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_ten_thousand_calls_end_right_or_named_while_a_fifth_of_attempts_fails() -> None:
    check_story(10_000, (64,))


def test_connections_are_kept_for_the_next_calls() -> None:
    with FaultServer() as server, transport(server, CallLimits(concurrency_most=4)) as asking:
        calls, _ = mixed(60)
        ends_of(asking, calls)
        ends_of(asking, calls)
        assert server.connections <= 4
        assert asking.counts["prompt_tokens"] > asking.counts["completion_tokens"] > 0


@pytest.mark.usefixtures("hasty")
def test_a_server_that_comes_back_is_asked_on_and_nothing_is_lost() -> None:
    calls, right = mixed(400)
    with FaultServer(delay=0.002) as server, transport(server) as asking:
        ends: dict[int, object] = {}

        def done(number: int, end: CallReply[Any] | CallFailure) -> None:
            ends[number] = told(end)
            if len(ends) == 100:
                server.vanish()
                threading.Timer(0.5, server.listen).start()

        asking.run(calls, done)
    assert [ends[number] for number in range(400)] == right


# Ctrl-C


def pressing(asking: HttpTransport, calls: list[Call[Any]], presses: dict[int, int]) -> dict[int, object]:
    """Ask calls, with Ctrl-C pressed after so many ends; return the ends."""
    ends: dict[int, object] = {}

    def done(number: int, end: CallReply[Any] | CallFailure) -> None:
        for _ in range(presses.get(len(ends), 0)):
            signal.raise_signal(signal.SIGINT)
        assert number not in ends
        ends[number] = told(end)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            asking.run(calls, done)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    return ends


def test_the_first_interrupt_hands_over_all_that_was_asked() -> None:
    calls, right = mixed(300)
    with FaultServer(delay=0.05) as server, transport(server) as asking:
        ends = pressing(asking, calls, {50: 1})
        assert len(ends) == sum(server.asked.values())
        assert all(ends[number] == right[number] for number in ends)
        assert asking.trouble == ""
        assert [told(end) for end in ends_of(asking, calls)] == right, "it can ask on"


def test_the_second_interrupt_waits_for_nothing_but_keeps_what_has_come() -> None:
    calls, right = mixed(40)

    def late(body: Any, attempt: int) -> str | None:
        return "slow" if "question 3" in str(body) else None

    with FaultServer(always=late, slow_seconds=30) as server:
        with transport(server) as asking:
            began = time.monotonic()
            ends = pressing(asking, calls, {8: 2})
            assert time.monotonic() - began < 20
        assert 8 < len(ends) < 40
        assert all(ends[number] == right[number] for number in ends)


def test_another_handler_of_the_interrupt_gets_it_when_all_is_handed_over() -> None:
    class StopError(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise StopError(len(ends))

    calls, right = mixed(300)
    ends: dict[int, object] = {}

    def done(number: int, end: CallReply[Any] | CallFailure) -> None:
        if len(ends) == 40:
            signal.raise_signal(signal.SIGINT)
        ends[number] = told(end)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with FaultServer(delay=0.02) as server, transport(server) as asking:
            with pytest.raises(StopError) as raised:
                asking.run(calls, done)
            assert raised.value.args == (sum(server.asked.values()),)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert all(ends[number] == right[number] for number in ends)


def test_what_done_raises_is_passed_on_and_the_next_run_is_as_always() -> None:
    calls, right = mixed(100)

    def done(number: int, end: object) -> None:
        raise MalformedReplyError("a fault of the receiver")

    with FaultServer() as server, transport(server) as asking:
        with pytest.raises(MalformedReplyError, match="a fault of the receiver"):
            asking.run(calls, done)
        assert [told(end) for end in ends_of(asking, calls)] == right


def test_a_thread_that_is_not_the_main_one_asks_too() -> None:
    calls, right = mixed(20)
    found: list[object] = []
    with FaultServer() as server, transport(server) as asking:
        thread = threading.Thread(target=lambda: found.extend(map(told, ends_of(asking, calls))))
        thread.start()
        thread.join()
    assert found == right


def test_no_calls_start_nothing_and_closing_twice_is_closing() -> None:
    asking = HttpTransport("http://127.0.0.1:9", key=ApiKey())
    asking.run([], lambda *_: pytest.fail("nothing was asked"))
    asking.close()
    asking.close()
