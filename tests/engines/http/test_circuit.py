"""A server that is there, away for now, or gone."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.engines.http.pacing import GIVES_UP_AFTER, LONGEST_PROBE_PAUSE, OPENS_AFTER, Circuit


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
