"""When calls are sent again, how many at once, and when a server is gone."""

from __future__ import annotations

import math
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.engines.http.calls import CallLimits, Failure
from pytest_touchstone.engines.http.pacing import (
    FIRST,
    GIVES_UP_AFTER,
    LEAST_WINDOW,
    LONGEST_PAUSE,
    LONGEST_PROBE_PAUSE,
    LONGEST_WAIT,
    OPENS_AFTER,
    Circuit,
    Limiter,
    Trouble,
    decide,
    overdue,
    retry_after,
    status_text,
    work_of,
)

LIMITS = CallLimits(attempts=4, item_seconds=100)
NOW = 1_700_000_000.0


def decided(
    trouble: Trouble, attempts: int = 1, now: float = 0.0, deadline: float = 100.0
) -> float | Failure:
    """The decision with the longest jitter."""
    return decide(trouble, attempts, now, deadline, LIMITS, chance=lambda: 1.0)


def status(number: int, wait: float | None = None) -> Trouble:
    return Trouble("status", status_text(number), number, wait=wait)


@pytest.mark.parametrize("number", [*(400, 401, 403, 404, 405, 413, 418, 422, 451)])
def test_most_statuses_of_4xx_are_final(number: int) -> None:
    found = decided(status(number))
    assert isinstance(found, Failure)
    assert (found.kind, found.status) == ("refused", number)


@pytest.mark.parametrize("number", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_these_statuses_are_asked_again(number: int) -> None:
    assert decided(status(number)) == 0.5


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (status(500), "server"),
        (status(408), "server"),
        (Trouble("connection", "connection refused"), "gone"),
        (Trouble("time", "no reply within 9 s"), "deadline"),
        (Trouble("malformed", "the reply has no choices"), "malformed"),
    ],
)
def test_the_last_attempt_ends_in_a_failure_that_says_why(trouble: Trouble, kind: str) -> None:
    assert decided(trouble, LIMITS.attempts - 1) == 2.0
    found = decided(trouble, LIMITS.attempts)
    assert isinstance(found, Failure)
    assert found.kind == kind
    option = " (--eval-request-timeout)" if trouble.what == "time" else ""
    assert found.reason == f"{trouble.text}, after 4 attempts{option}"


def test_429_is_asked_again_until_the_deadline_of_the_item() -> None:
    assert decided(status(429), 50) == LONGEST_PAUSE
    found = decided(status(429), 50, now=99.0)
    assert isinstance(found, Failure)
    assert found.kind == "limited"
    assert found.reason == (
        "HTTP 429 (too many requests), and no time is left of the item's 100 s (--eval-item-timeout) for another "
        "attempt"
    )


def test_a_wait_of_no_time_is_no_reason_to_ask_without_a_breath() -> None:
    assert [decided(status(429, wait=0.0), attempts) for attempts in (1, 2, 3)] == [0.5, 1.0, 2.0]


def test_a_wait_beyond_the_deadline_fails_at_once_and_says_so() -> None:
    found = decided(status(429, wait=3600.0))
    assert isinstance(found, Failure)
    assert found.kind == "limited"
    assert found.reason == (
        "HTTP 429 (too many requests); the server asks to wait 3600 s, which is past the item's 100 s "
        "(--eval-item-timeout)"
    )
    assert "for ever" in getattr(decided(status(503, wait=LONGEST_WAIT)), "reason", "")


def test_time_that_ran_out_with_the_items_is_said_so() -> None:
    found = decided(Trouble("time", "no reply within 3 s"), now=100.0)
    assert isinstance(found, Failure)
    assert found.kind == "deadline"
    assert found.reason == "the item's 100 s passed before the server replied (--eval-item-timeout)"


def test_a_call_that_never_got_its_turn_says_so_with_its_last_trouble() -> None:
    assert overdue(None, LIMITS) == Failure(
        "the item's 100 s (--eval-item-timeout) passed while the call waited for its turn", "deadline"
    )
    assert overdue(status(429), LIMITS).kind == "limited"


def test_what_the_server_says_is_kept() -> None:
    found = decided(Trouble("status", status_text(400), 400, "no such model"))
    assert isinstance(found, Failure)
    assert found.reason == "HTTP 400 (bad request); not asked again; the server says: no such model"
    assert found.said == "no such model"


@given(
    trouble=st.builds(
        Trouble,
        st.sampled_from(["status", "connection", "time", "malformed"]),
        st.just("trouble"),
        st.sampled_from([None, 408, 429, 500, 503]),
        st.just(""),
        st.none() | st.floats(0, 1e6),
    ),
    attempts=st.integers(1, 100),
    now=st.floats(0, 1e6),
    left=st.floats(-10, 1e4),
    chance=st.floats(0, 1),
)
def test_nothing_is_sent_before_the_server_wants_it_nor_after_the_deadline(
    trouble: Trouble, attempts: int, now: float, left: float, chance: float
) -> None:
    found = decide(trouble, attempts, now, now + left, LIMITS, chance=lambda: chance)
    if isinstance(found, Failure):
        assert "\n" not in found.reason
        return
    assert found < now + left
    assert found >= now + (trouble.wait if trouble.wait is not None else 0.25)
    assert trouble.wait is not None or found <= now + LONGEST_PAUSE


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("1" + 60 * "0", LONGEST_WAIT),
        ("1e400", LONGEST_WAIT),
        ("inf", LONGEST_WAIT),
        ("nan", None),
        ("", None),
        (None, None),
        ("soon", None),
        ("Wed, 99 Foo 2026 10:00:00 GMT", None),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        ("Tuesday, 14-Nov-23 22:14:20 GMT", 60.0),
        ("Tue Nov 14 22:14:20 2023", 60.0),
    ],
)
def test_retry_after_is_read_in_seconds_and_as_a_date_of_every_form(value, seconds) -> None:
    assert retry_after(value, None, NOW) == seconds


def test_a_date_is_seen_from_the_servers_own_clock() -> None:
    server = NOW + 86_400
    when, date = formatdate(server + 30, usegmt=True), formatdate(server, usegmt=True)
    assert retry_after(when, date, NOW) == 30.0
    assert retry_after(when, "no date", NOW) == 86_430.0


@given(value=st.text() | st.none(), date=st.text() | st.none())
def test_any_retry_after_is_no_error(value: str | None, date: str | None) -> None:
    found = retry_after(value, date, NOW)
    assert found is None or (0 <= found <= LONGEST_WAIT and not math.isnan(found))


def rounds(limiter: Limiter, count: int, *, at: float = 0.0, seconds: float = 1.0) -> float:
    """Answer as many calls as the limit allows, again and again; return the time at the end."""
    for _ in range(count):
        for _ in range(limiter.limit):
            limiter.answered(at, at + seconds)
        at += seconds
    return at


def test_the_limit_doubles_with_each_round_until_the_most() -> None:
    limiter, at, seen = Limiter(100), 0.0, []
    for _ in range(5):
        seen.append(limiter.limit)
        at = rounds(limiter, 1, at=at)
    assert seen == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, 100]


def test_after_an_overload_the_limit_grows_by_one_each_round() -> None:
    limiter = Limiter(64)
    at = rounds(limiter, 4)
    limiter.overloaded(at, at + 1)
    halved = limiter.limit
    assert halved == 32
    rounds(limiter, 1, at=at + 1)
    assert limiter.limit in (halved, halved + 1)
    rounds(limiter, 8, at=at + 2)
    assert halved + 7 <= limiter.limit <= halved + 9


def test_all_failures_of_calls_sent_before_it_showed_are_one_episode() -> None:
    limiter = Limiter(64)
    at = rounds(limiter, 4)
    for later in range(64):
        limiter.overloaded(at, at + 1 + later / 100)
    assert limiter.limit == 32
    limiter.overloaded(at + 1.0, at + 3)
    assert limiter.limit == 16


def test_replies_to_calls_sent_before_a_decrease_do_not_raise_the_limit() -> None:
    limiter = Limiter(64)
    at = rounds(limiter, 4)
    limiter.overloaded(at, at + 1)
    for _ in range(500):
        limiter.answered(at, at + 1.5)
    assert limiter.limit == 32


def test_a_latency_that_has_risen_by_several_times_is_a_sign() -> None:
    limiter = Limiter(16)
    at = rounds(limiter, 5)
    assert limiter.limit == 16
    at = rounds(limiter, 3, at=at, seconds=3.0)
    assert limiter.limit == 16, "three times the best is what a server that computes in batches may take"
    rounds(limiter, 1, at=at, seconds=9.0)
    assert limiter.limit == 12


def test_a_latency_that_stays_high_becomes_the_measure_in_the_end() -> None:
    limiter = Limiter(16)
    at = rounds(limiter, 5)
    rounds(limiter, 500, at=at, seconds=9.0)
    assert limiter.limit == 16


def test_long_texts_are_no_rise_in_latency() -> None:
    limiter, at = Limiter(16), 0.0
    for tokens in (1, 500):
        for _ in range(8 * LEAST_WINDOW):
            usage = {"completion_tokens": tokens, "prompt_tokens": 64}
            limiter.answered(at, at + 0.01 * (2 + tokens), work_of(usage))
            at += 1
    assert limiter.limit == 16


def test_the_time_that_the_server_asks_for_is_kept_whatever_comes_after() -> None:
    limiter = Limiter(16)
    limiter.overloaded(0.0, 1.0, hold=61.0)
    limiter.overloaded(0.0, 1.0, hold=11.0)
    limiter.answered(2.0, 3.0)
    assert limiter.held_until == 61.0


@settings(max_examples=50)
@given(
    most=st.integers(1, 300),
    signs=st.lists(st.tuples(st.booleans(), st.floats(0, 10), st.floats(0.001, 100)), max_size=300),
)
def test_the_limit_stays_between_one_and_the_most(most: int, signs: list[tuple[bool, float, float]]) -> None:
    limiter, now = Limiter(most), 0.0
    for good, begun_before, seconds in signs:
        now += seconds
        if good:
            limiter.answered(now - begun_before, now)
        else:
            limiter.overloaded(now - begun_before, now)
        assert 1 <= limiter.limit <= most


def opened(at: float = 10.0) -> Circuit:
    """A circuit that has just opened."""
    circuit = Circuit(120)
    for _ in range(OPENS_AFTER):
        assert not circuit.open
        circuit.failed(at - 1, at, "connection refused")
    return circuit


def test_failures_in_a_row_open_it_and_a_reply_between_them_prevents_that() -> None:
    circuit = Circuit(120)
    for _ in range(3 * OPENS_AFTER):
        for _ in range(OPENS_AFTER - 1):
            circuit.failed(0, 1, "reset")
        circuit.answered()
    assert not circuit.open
    assert opened().open


def test_while_it_is_open_one_call_after_the_other_probes_at_growing_pauses() -> None:
    circuit, now, pauses = opened(), 10.0, []
    for _ in range(7):
        due = circuit.wait_until()
        assert due is not None
        pauses.append(due - now)
        now = due
        circuit.sent()
        assert circuit.wait_until() is None
        circuit.failed(now, now, "connection refused")
    assert pauses == [1, 2, 4, 8, LONGEST_PROBE_PAUSE, LONGEST_PROBE_PAUSE, LONGEST_PROBE_PAUSE]


def test_a_failure_of_a_call_sent_before_it_opened_is_no_probe() -> None:
    circuit = opened(10.0)
    circuit.sent()
    circuit.failed(9.0, 11.0, "reset")
    assert circuit.wait_until() is None
    circuit.failed(11.0, 12.0, "reset")
    assert circuit.wait_until() is not None


def test_any_reply_closes_it() -> None:
    circuit = opened()
    circuit.sent()
    assert circuit.away(12.0) == 2.0
    circuit.answered()
    assert circuit.wait_until() == -math.inf
    assert circuit.away(13.0) == 0.0


def test_a_server_that_no_probe_reaches_for_long_enough_is_gone() -> None:
    circuit = opened(10.0)
    circuit.sent()
    circuit.failed(129.0, 129.9, "connection refused")
    assert circuit.verdict is None
    circuit.sent()
    circuit.failed(129.0, 130.0, "connection refused")
    assert circuit.verdict == "has not answered for 120 s (connection refused)"


def test_items_in_a_row_that_end_limited_end_the_asking_and_a_429_between_them_does_not_help() -> None:
    circuit = Circuit(120)
    for _ in range(GIVES_UP_AFTER - 1):
        circuit.limited("HTTP 429")
        circuit.answered(limited=True)
    circuit.answered()
    for _ in range(GIVES_UP_AFTER):
        assert circuit.verdict is None
        circuit.limited("HTTP 429")
    assert circuit.verdict == f"answers none of {GIVES_UP_AFTER} items in a row (HTTP 429)"


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["sent", "good", "bad", "old", "withdrawn"]), max_size=200))
def test_whatever_happens_a_call_may_be_sent_some_time_or_one_is_under_way(events: list[str]) -> None:
    circuit, now, under_way = Circuit(1e9), 0.0, 0
    for event in events:
        now += 1
        due = circuit.wait_until()
        if event == "sent" and due is not None and now >= due:
            circuit.sent()
            under_way += 1
        elif event == "withdrawn":
            circuit.withdrawn()
            under_way = 0
        elif event in ("good", "bad") and under_way:
            under_way -= 1
            if event == "good":
                circuit.answered()
            else:
                circuit.failed(now - 0.5, now, "reset")
        elif event == "old":
            circuit.failed(-1.0, now, "reset")
        assert circuit.wait_until() is not None or under_way
