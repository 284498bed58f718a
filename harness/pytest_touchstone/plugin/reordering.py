"""pytest's order of items by the parameters that their fixtures share, found for siblings together.

pytest keeps about a kilobyte of each item while it looks for that order. Siblings that stand beside each other have the
same parameters of every scope above an item's own. So they stay together wherever they go, and one of them is enough.
That holds where pytest compares parameters by their values, as it does since 9.2; before, each item has its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from _pytest import fixtures  # private: nothing public orders items

from pytest_touchstone.plugin.benchmark_items import BenchmarkItem


@contextmanager
def siblings_together() -> Iterator[None]:
    """Let pytest order siblings as one item meanwhile, with the same order as ever."""
    reorder = getattr(fixtures, "reorder_items", None)
    if reorder is None:
        yield
        return
    fixtures.reorder_items = lambda items: in_order(items, reorder)
    try:
        yield
    finally:
        fixtures.reorder_items = reorder


def in_order(
    items: Sequence[pytest.Item], reorder: Callable[[list[pytest.Item]], Sequence[pytest.Item]]
) -> list[pytest.Item]:
    """Return the items in the order of ``reorder``, which is asked about one of those that stay together."""
    runs: dict[pytest.Item, list[pytest.Item]] = {}
    last: object = None
    run: list[pytest.Item] = []
    for item in items:
        family = _family(item)
        if family is None or family is not last:
            run = runs[item] = []
        run.append(item)
        last = family
    return [item for first in reorder(list(runs)) for item in runs[first]]


def _family(item: Any) -> object:
    """Return what the items share that differ only in parameters of their own; None for an item that stands alone."""
    if type(item) is not BenchmarkItem or "callspec" in vars(item):
        return None
    siblings = item.siblings
    return siblings if siblings.stay_together else None
