"""Tests of many benchmarks at once.

- **Holm** (1979, Scandinavian J. of Statistics 6): adjusted p such that rejecting all of at most alpha rejects any
  true hypothesis with chance at most alpha, however the tests depend on each other.
- **Benjamini and Hochberg** (1995, JRSS B 57): adjusted p such that of what is rejected at most a share of alpha is
  expected to be true, for independent or positively dependent tests.

A benchmark without a p (None) was not tested: it is not counted among the tests, and stays None.
"""

from __future__ import annotations

from collections.abc import Sequence


def count_tests(p_values: Sequence[float | None]) -> int:
    """How many hypotheses have a p, and so how many are corrected for."""
    return sum(p is not None for p in p_values)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The adjusted p-values, in the order given; None stays None."""
    order, adjusted, largest = _ascending(p_values), list[float | None](p_values), 0.0
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - rank)))
        adjusted[place] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """The adjusted p-values (false discovery rate), in the order given; None stays None."""
    order, adjusted, smallest = _ascending(p_values), list[float | None](p_values), 1.0
    for rank, (p, place) in reversed(list(enumerate(order, start=1))):
        smallest = min(smallest, p * len(order) / rank)
        adjusted[place] = smallest
    return adjusted


def _ascending(p_values: Sequence[float | None]) -> list[tuple[float, int]]:
    known = [(p, place) for place, p in enumerate(p_values) if p is not None]
    wrong = [p for p, _ in known if not 0 <= p <= 1]
    if wrong:
        raise ValueError(
            f"{wrong[0]} is no p-value; give numbers from 0 to 1, or None where nothing was tested"
        )
    return sorted(known)
