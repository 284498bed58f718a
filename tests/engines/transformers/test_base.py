"""What is made ahead is what is made when asked, by one thread, and a fault stays with its own request."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.requests import Request, RollingLoglikelihood
from pytest_touchstone.engines.transformers.base import PretokenizeQueue


class Maker:
    """Makes the length of a text; breaks on 'break'. Notes what it made, and in which thread."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.threads: set[str] = set()

    def __call__(self, requests: Sequence[Request]) -> list[int]:
        texts = [request.text for request in requests if isinstance(request, RollingLoglikelihood)]
        self.threads.add(threading.current_thread().name)
        if "break" in texts:
            raise ValueError("broken")
        self.made += texts
        return [len(text) for text in texts]


def asked(*texts: str) -> list[Request]:
    return [RollingLoglikelihood(text) for text in texts]


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def ahead(maker: Maker) -> Iterator[PretokenizeQueue[int]]:
    found = PretokenizeQueue(maker)
    yield found
    found.close()


def test_what_was_begun_is_not_made_again(ahead: PretokenizeQueue[int], maker: Maker) -> None:
    ahead.begin(asked("a", "bb", "a"))
    assert ahead.made(asked("bb", "ccc", "a", "a")) == [2, 3, 1, 1]
    assert sorted(maker.made) == ["a", "bb", "ccc"]


def test_the_unit_that_computes_and_the_next_are_both_ready(
    ahead: PretokenizeQueue[int], maker: Maker
) -> None:
    ahead.begin(asked("a"))
    ahead.begin(asked("bb"))
    assert ahead.made(asked("a")) == [1]
    ahead.begin(asked("ccc"))
    assert ahead.made(asked("bb")) == [2]
    assert ahead.made(asked("ccc")) == [3]
    assert maker.made == ["a", "bb", "ccc"]


def test_only_one_thread_makes_anything_and_not_the_callers(
    ahead: PretokenizeQueue[int], maker: Maker
) -> None:
    for text in ("a", "b", "c"):
        ahead.begin(asked(text))
        ahead.made(asked(text, text + text))
    assert len(maker.threads) == 1
    assert threading.current_thread().name not in maker.threads


def test_a_fault_comes_out_only_where_its_request_is_asked(ahead: PretokenizeQueue[int]) -> None:
    ahead.begin(asked("a", "break"))
    assert ahead.made(asked("a")) == [1]
    with pytest.raises(ValueError, match="broken"):
        ahead.made(asked("break"))


def test_its_thread_ends_when_it_is_closed(maker: Maker) -> None:
    before = threading.active_count()
    one = PretokenizeQueue(maker)
    one.begin(asked("a"))
    one.close()
    assert threading.active_count() == before


@given(st.lists(st.lists(st.text(max_size=3), max_size=4), max_size=4), st.lists(st.text(max_size=3)))
def test_results_never_depend_on_what_was_begun(begun: list[list[str]], texts: list[str]) -> None:
    ahead = PretokenizeQueue(lambda requests: [getattr(request, "text", "") for request in requests])
    try:
        for some in begun:
            ahead.begin(asked(*some))
        assert ahead.made(asked(*texts)) == texts
    finally:
        ahead.close()
