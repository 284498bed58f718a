"""The grade of an answer to one of IFEval's prompts: strict and loose, by prompt and by instruction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.core.grade import Graded
from pytest_touchstone.metrics.ifeval.instructions import follows
from pytest_touchstone.statistics.intervals import Estimate, share_limits
from pytest_touchstone.statistics.moments import moments_of


def pooled_share(
    items: Sequence[tuple[float, int]], clusters: Sequence[str | None] | None = None
) -> Estimate:
    """Return the share of all parts, of items (share of its parts, number of its parts), with its interval.

    It is the ratio of two sums over the items, whose variance is that of share - pooled share, weighted by the parts
    (Cochran 1977, "Sampling Techniques", section 6.3: linearisation). The interval is that of graded scores
    (``statistics.intervals``): the parts of an item are not independent. Items count by their parts.
    """
    if not items:
        return Estimate(None, None, None, None, "none", "no items were scored")
    total = sum(parts for _, parts in items)
    value = math.fsum(share * parts for share, parts in items) / total
    found = moments_of([(share - value) * parts * len(items) / total for share, parts in items], clusters)
    if found.variance is None:
        return Estimate(value, None, None, None, "none", f"{found.one_unit}: no standard error")
    low, high = share_limits(value, found.variance, found.kish)
    return Estimate(value, low, high, math.sqrt(found.variance), "beta")


IFEVAL_METRICS: Final = (
    *("prompt_level_strict_acc", "inst_level_strict_acc"),
    *("prompt_level_loose_acc", "inst_level_loose_acc"),
)

IFEVAL_POOLED: Final = {
    name: Aggregation("share of all parts", name, function=pooled_share, beside=("parts",))
    for name in IFEVAL_METRICS
    if name.startswith("inst")
}
"""The metrics of instructions, which are pooled over prompts."""


def readings(text: str) -> list[str]:
    """The eight texts of the loose reading: the text, without its first line, its last, both; and these without
    asterisks."""
    lines = text.split("\n")
    cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    plain = [text, *cut]
    return [*plain, *(one.replace("*", "") for one in plain)]


def grade_ifeval(kinds: Sequence[str], values: Sequence[Mapping[str, Any]], text: str) -> Graded:
    """Return the grade of a text under instructions of these kinds, each with its values; a blank text follows none."""
    strict, loose = (
        [
            any(one.strip() and follows(kind, given, one) for one in texts)
            for kind, given in zip(kinds, values, strict=True)
        ]
        for texts in ([text], readings(text))
    )
    scores = {
        f"{level}_level_{name}_acc": float(all(found)) if level == "prompt" else sum(found) / len(found)
        for name, found in (("strict", strict), ("loose", loose))
        for level in ("prompt", "inst")
    }
    broken = ", ".join(kind for kind, held in zip(kinds, strict, strict=True) if not held)
    return Graded(
        scores, no_answer=not text.strip(), extracted={"not followed": broken or None}, parts=len(kinds)
    )
