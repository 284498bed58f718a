"""Which failures are tried again, after what pause, and what the others say."""

from __future__ import annotations

import math
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.engines.http.calls import (
    LONGEST_PAUSE,
    LONGEST_WAIT,
    CallFailure,
    CallLimits,
    FailedAttempt,
    deadline_failure,
    failure_after,
    pause_after,
    retry_after,
    status_text,
)

LIMITS = CallLimits(attempts=4, item_seconds=100)
NOW = 1_700_000_000.0


def status(number: int, wait: float | None = None) -> FailedAttempt:
    return FailedAttempt("status", status_text(number), number, wait=wait)


@pytest.mark.parametrize("number", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_these_statuses_are_asked_again(number: int) -> None:
    assert failure_after(status(number), 3, 1.0, 100.0, LIMITS) is None


@pytest.mark.parametrize("number", [400, 401, 403, 404, 405, 413, 418, 422, 451])
def test_most_statuses_of_4xx_are_final(number: int) -> None:
    failure = failure_after(FailedAttempt("status", status_text(number), number, "no"), 1, 1.0, 100.0, LIMITS)
    reason = f"{status_text(number)}; not asked again; the server says: no"
    assert failure == CallFailure(reason, "refused", number, "no")


@pytest.mark.parametrize(
    ("trouble", "attempts", "left", "kind", "reason"),
    [
        (status(500), 4, 99, "server", "HTTP 500 (internal server error), after 4 attempts"),
        (status(408), 4, 99, "server", "HTTP 408 (request timeout), after 4 attempts"),
        (FailedAttempt("connection", "refused"), 4, 99, "gone", "refused, after 4 attempts"),
        (FailedAttempt("malformed", "no choices"), 4, 99, "malformed", "no choices, after 4 attempts"),
        (
            FailedAttempt("time", "no reply within 9 s"),
            *(4, 99, "deadline", "no reply within 9 s, after 4 attempts (--eval-set request_timeout)"),
        ),
        (
            FailedAttempt("time", "no reply within 3 s"),
            *(
                1,
                0,
                "deadline",
                "the item's 100 s passed before the server replied (--eval-set item_timeout)",
            ),
        ),
        (
            status(429),
            *(50, 1, "limited", "HTTP 429 (too many requests), and no time is left of the item's 100 s "),
        ),
        (
            status(429, 3600.0),
            *(
                1,
                99,
                "limited",
                "HTTP 429 (too many requests); the server asks to wait 3600 s, which is past the ",
            ),
        ),
        (
            status(503, LONGEST_WAIT),
            1,
            99,
            "deadline",
            "HTTP 503 (service unavailable); the server asks to wait for ever",
        ),
    ],
)
def test_a_call_that_ends_says_why(
    trouble: FailedAttempt, attempts: int, left: float, kind: str, reason: str
) -> None:
    pause = pause_after(trouble, attempts)
    failure = failure_after(trouble, attempts, pause, left, LIMITS)
    assert failure is not None
    assert (failure.kind, failure.status) == (kind, trouble.status)
    assert failure.reason.startswith(reason)
    if attempts == LIMITS.attempts:
        assert failure_after(trouble, attempts - 1, pause, left, LIMITS) is None


def test_a_call_that_never_got_its_turn_says_so_with_its_last_trouble() -> None:
    waited = "the item's 100 s (--eval-set item_timeout) passed while the call waited for its turn"
    assert deadline_failure(None, LIMITS) == CallFailure(waited, "deadline")
    assert deadline_failure(status(429), LIMITS).kind == "limited"


def test_pauses_double_up_to_the_longest_and_a_wait_takes_their_place() -> None:
    refused = FailedAttempt("connection", "refused")
    for attempts, most in [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (9, LONGEST_PAUSE), (9**9, LONGEST_PAUSE)]:
        assert most / 2 <= pause_after(refused, attempts) <= most
    assert pause_after(status(429, wait=77.0), 1) == 77.0
    assert pause_after(status(429, wait=0.0), 1) >= 0.25, "such a server is not asked without a breath"


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


@settings(deadline=None)
@given(value=st.text() | st.none(), date=st.text() | st.none())
def test_any_retry_after_is_no_error(value: str | None, date: str | None) -> None:
    seconds = retry_after(value, date, NOW)
    assert seconds is None or (0 <= seconds <= LONGEST_WAIT and not math.isnan(seconds))
