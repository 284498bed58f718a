"""Verdicts: worse than the baseline by more than a margin m and by more than chance, or not.

    worse        p <= alpha after Holm over all benchmarks that were tested, and the difference is below -m
    better       the mirror image: p <= alpha after Holm, and the difference is above m
    not worse    neither, and the lower limit of the benchmark's own interval is above -m
    inconclusive  everything else, with about how many items it would take; and whatever is not valid

In this order; worse and not worse exclude each other (an interval encloses its difference), and better is the stronger
claim of the two that can hold at once, so it is the one stated. A difference that is certain but within the margin
is no reason to stop a checkpoint: it is "not worse" or, where its interval reaches below -m, "inconclusive".
``kind_of`` has the rule; gates, interim analyses, comparisons and limits ask it.

Why these rules keep their promises:

- p is two-sided, so a gate over any number of equal runs fails with chance alpha / 2 at most. It errs in either
  direction with chance alpha at most.
- An upper limit below -m of intervals that hold for all benchmarks together (Holm's level in place of alpha) implies
  both conditions of "worse", so it needs no further rule. A single benchmark's 95 % interval must not be read so:
  over many benchmarks that would be a test without correction.
- "not worse" (non-inferiority: Blackwelder 1982, Controlled Clinical Trials 3) is said of each benchmark at its own
  level (1 - alpha two-sided). That a gate passes because *all* are not worse is then wrong with chance alpha / 2 at
  most, without correction (intersection-union test: Berger 1982, Technometrics 24).
- A benchmark without a p was not tested: it does not count in Holm's correction.

Formulas:

- **Holm** (1979, Scandinavian J. of Statistics 6): adjusted p such that rejecting all of at most alpha rejects any
  true hypothesis with chance at most alpha, however the tests depend on each other.
- **Items to settle**: two equal runs differ by no more than m, with the given power, when m = (z(1 - alpha/2) +
  z(power)) s (Blackwelder 1982). The standard error s falls with the square root of the number of items (Cohen 1988,
  "Statistical Power Analysis", chapter 2; for evaluations Miller 2024, arXiv 2411.00640, section 5).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Final, TypeVar

from pytest_touchstone.statistics.comparison import Comparison, VerdictKind, z_quantile

Key = TypeVar("Key", bound=Hashable)

ALPHA: Final = 0.05
MARGIN: Final = 0.01
ROUNDING: Final = 1e-9
"""The rounding error that a value, or a difference of two, may have: a drop from 0.90 to 0.85 is one of 5 points and
no more, and 0.45999999999999996 is 0.46."""

P_DECIDES: Final = (
    "where an interval and its p disagree about 0, p decides: its test is exact, and corrected for all comparisons, "
    "and the interval is of one alone"
)


def is_at_odds(low: float | None, high: float | None, p: float | None, alpha: float) -> bool:
    """Return whether p and the interval disagree: only one of them excludes 0."""
    if low is None or high is None or p is None:
        return False
    return (low > 0 or high < 0) != (p <= alpha + ROUNDING)


def judge(
    comparisons: Mapping[Key, Comparison],
    *,
    margin: float = MARGIN,
    margins: Mapping[Key, float] | None = None,
    alpha: float = ALPHA,
    sizes: Mapping[Key, int] | None = None,
    flaws: Mapping[Key, str] | None = None,
) -> dict[Key, Comparison]:
    """Return the comparisons with a verdict each, in the given order.

    ``margins`` are those that differ from ``margin``. ``sizes`` are the numbers of items that there are at most, where
    known: an advice to ask more would be of no use. ``flaws`` are the reasons why comparisons are not valid; these are
    inconclusive, and do not count in Holm's correction. Raises ``ValueError`` for an interval of another level than
    1 - alpha.
    """
    flaws = flaws or {}
    for name, comparison in comparisons.items():
        if comparison.low is not None and abs(comparison.level - (1 - alpha)) > 1e-9:
            raise ValueError(
                f"{name}: the interval's level is {comparison.level}, not 1 - alpha = {1 - alpha:g}"
            )
    adjusted = holm([None if name in flaws else comparison.p for name, comparison in comparisons.items()])
    family = sum(p is not None for p in adjusted)
    return {
        name: _judged(
            replace(comparison, margin=(margins or {}).get(name, margin), p_adjusted=p, family=family),
            alpha,
            size=(sizes or {}).get(name, 0),
            flaw=flaws.get(name, ""),
        )
        for (name, comparison), p in zip(comparisons.items(), adjusted, strict=True)
    }


def kind_of(comparison: Comparison, *, significant: bool, margin: float, flaw: str = "") -> VerdictKind:
    """Return the verdict by the rule above.

    ``significant``: the difference is more than chance. ``flaw`` is the reason why the comparison is not valid.
    """
    difference, low = comparison.oriented.difference, comparison.oriented.low
    if difference is None or flaw:
        return "inconclusive"
    if significant and difference < -margin - ROUNDING:
        return "worse"
    if significant and difference > margin + ROUNDING:
        return "better"
    return "not worse" if low is not None and low > -margin else "inconclusive"


def _judged(comparison: Comparison, alpha: float, *, size: int, flaw: str) -> Comparison:
    margin, p = comparison.margin or 0.0, comparison.p_adjusted
    kind = kind_of(comparison, significant=p is not None and p <= alpha, margin=margin, flaw=flaw)
    unsettled = kind == "inconclusive" and not flaw
    items = items_to_settle(comparison, margin, alpha=alpha) if unsettled else None
    judged = replace(comparison, verdict=kind, items_to_tell=items)
    return replace(judged, why=f"not valid: {flaw}" if flaw else _why(judged, size))


def moved_text(comparison: Comparison, level: str = "") -> str:
    """Return the difference with its interval, of such a ``level``: ``-1.37 points [-3.02, +0.30]``."""
    unit, low, high = comparison.told_in, comparison.low, comparison.high
    limits = "" if low is None or high is None else f" [{unit.moved(low)}, {unit.moved(high)}]{level}"
    return f"{unit.told(comparison.difference)}{limits}"


def _why(judged: Comparison, size: int) -> str:
    if judged.difference is None:
        return judged.why or "nothing to compare"
    p, moved, allowed = judged.p_adjusted, moved_text(judged), judged.told_in.size(judged.margin or 0.0)
    if judged.verdict in ("worse", "better"):
        over = f" after Holm over {judged.family} tests" if judged.family > 1 else ""
        return f"{moved}, p = {p:.2g}{over}: by more than {allowed} and by more than chance"
    if judged.verdict == "not worse":
        return f"{moved}: at most {allowed} worse"
    if judged.low is None:
        return f"{moved}; {judged.why or 'no interval'}"
    if p is not None and p <= 1 - judged.level and (judged.oriented.difference or 0) < 0:
        word = "lower" if judged.higher_is_better else "higher"
        return f"{moved}: {word}, but within the margin of {allowed} or beyond it: inconclusive"
    text, items = f"{moved}: may be equal, or more than {allowed} worse", judged.items_to_tell
    return f"{text}; {cannot_tell(items, size) or f'about {items:,} items would decide'}" if items else text


def cannot_tell(items: int | None, size: int) -> str:
    """Say that a set of this size cannot detect the difference, and what may.

    Empty if it can, or if either number is unknown (0 for the size).
    """
    if not items or not 0 < size < items:
        return ""
    return (
        f"it would take about {items:,} items, and there are {size:,}: too few to decide, except with "
        "a larger margin or several benchmarks pooled"
    )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the adjusted p values, in the given order; None stays None."""
    defined = [(p, index) for index, p in enumerate(p_values) if p is not None]
    adjusted, largest = list[float | None](p_values), 0.0
    for rank, (p, index) in enumerate(sorted(defined)):
        largest = max(largest, min(1.0, p * (len(defined) - rank)))
        adjusted[index] = largest
    return adjusted


POWER: Final = 0.8


def items_to_settle(comparison: Comparison, margin: float, *, alpha: float = ALPHA) -> int | None:
    """Return about how many items distinguish no difference from one of ``margin`` with power 0.8.

    None without an interval or a margin.

    The standard error is read from the width of the interval, which allows for clusters and for few items; for one
    where nothing differed the count is on the high side.
    """
    if comparison.low is None or comparison.high is None or margin <= 0 or comparison.low == comparison.high:
        return None
    error = (comparison.high - comparison.low) / 2 / z_quantile(comparison.level)
    reach = z_quantile(1 - alpha) + NormalDist().inv_cdf(POWER)
    return math.ceil(comparison.n * (reach * error / margin) ** 2 - 1e-9)
