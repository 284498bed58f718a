"""The rules of asking again."""

from __future__ import annotations

import math
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.http.calls import CallLimits, Failure
from pytest_touchstone.engines.http.pacing import (
    LONGEST_PAUSE,
    LONGEST_WAIT,
    Trouble,
    decide,
    overdue,
    retry_after,
    status_text,
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
