"""The number of calls that may be under way."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.engines.http.pacing import FIRST, LEAST_WINDOW, Limiter, work_of


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
