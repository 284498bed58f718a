"""transformers is silent within ``quiet``, and as before afterwards, whatever other threads do."""

from __future__ import annotations

import logging as standard
import threading
import warnings

import pytest

from harness.engines.transformers.compat import quiet


def state() -> tuple[int, bool]:
    from transformers.utils import logging

    return logging.get_verbosity(), logging.is_progress_bar_enabled()


def test_nothing_is_printed_within_and_all_is_as_before_afterwards() -> None:
    before = state()
    with quiet():
        assert state() == (standard.ERROR, False)
        with quiet():
            warnings.warn("of no interest", UserWarning, stacklevel=1)
        assert state() == (standard.ERROR, False)
    assert state() == before


@pytest.mark.parametrize("first_to_leave", ["the thread", "this one"])
def test_blocks_of_several_threads_may_overlap(first_to_leave: str) -> None:
    before = state()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with quiet():
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=other)
    if first_to_leave == "the thread":
        thread.start()
        assert inside.wait(20)
        with quiet():
            leave.set()
            thread.join()
            assert state() == (standard.ERROR, False)
    else:
        with quiet():
            thread.start()
            assert inside.wait(20)
        assert state() == (standard.ERROR, False)
        leave.set()
        thread.join()
    assert state() == before


def test_warnings_of_other_threads_are_left_alone() -> None:
    filters = list(warnings.filters)
    seen: list[bool] = []

    def other() -> None:
        with quiet():
            seen.append(list(warnings.filters) == filters)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [True]
