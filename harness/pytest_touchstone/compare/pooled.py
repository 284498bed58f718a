"""The verdict on all items of a checkpoint's benchmarks together: is the model worse, wherever that shows?

A loss that is spread over a suite may be too small to be seen on any one benchmark, and plain on all of them together.
The pooled test takes all items of all benchmarks as one (Kuebler et al. 2026, arXiv 2602.10144, section 4, "pooled").
For right and wrong answers it is McNemar's on the sums of gained and lost items. Else it is a permutation test, as that
of a composite in which each benchmark weighs as many items as it has, with clusters whole.

Of several earlier checkpoints that have all the benchmarks the one that is best over all items is the baseline. That it
was chosen is allowed for.

Benchmarks are left out whose scores are no shares (log-probabilities), or better when lower, and what was compared by
another metric than the first of its benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pytest_touchstone.compare.candidate import Entry
from pytest_touchstone.compare.items import score_name
from pytest_touchstone.compare.judge import Compared, Weighed, compare_composite
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.text import count
from pytest_touchstone.statistics.paired import compare_flips

POOLED: Final = "pooled"
"""The word that stands for the metric of all items together."""


class Part(NamedTuple):
    """One benchmark: the metric, the new result, its baselines, and their comparison."""

    metric: str
    new: Entry
    baselines: Sequence[Entry]
    compared: Compared

    @property
    def is_flips(self) -> bool:
        """Return whether a single baseline and gained and lost items of their own say everything."""
        one = self.compared.comparison
        return len(self.baselines) == 1 and one.gained is not None and one.units == one.n


@dataclass(frozen=True, slots=True)
class Pooled:
    """All items together: the benchmarks, the comparison, and the first benchmark's baselines in its order."""

    benchmarks: tuple[str, ...]
    compared: Compared
    baselines: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """The name that stands for the benchmark in the line."""
        return count(len(self.benchmarks), "benchmark")


def pool(parts: Mapping[str, Part], *, level: float) -> Pooled | None:
    """The benchmarks as one; None for fewer than two, and where no earlier checkpoint has all of them."""
    kept = {name: part for name, part in parts.items() if _is_share(part)}
    if len(kept) < 2:
        return None
    keys = [{one.saved.checkpoint_key: one for one in part.baselines} for part in kept.values()]
    common = [key for key in keys[0] if all(key in other for other in keys[1:])]
    if not common:
        return None
    if all(part.is_flips for part in kept.values()):
        compared = _by_flips([part.compared for part in kept.values()], level)
    else:
        sizes = [_size(part) for part in kept.values()]
        weighed = [
            Weighed(size / sum(sizes), part.metric, part.new, [by_key[key] for key in common])
            for size, part, by_key in zip(sizes, kept.values(), keys, strict=True)
        ]
        compared = compare_composite(POOLED, weighed, level=level)
    return Pooled(tuple(kept), compared, tuple(keys[0][key] for key in common))


def _by_flips(parts: Sequence[Compared], level: float) -> Compared:
    """The comparison of all items from what each benchmark has gained and lost against one and the same checkpoint."""
    found = [one.comparison for one in parts]
    gained, lost = (sum(getattr(one, name) or 0 for one in found) for name in ("gained", "lost"))
    right = sum(round((one.baseline or 0.0) * one.n) - (one.lost or 0) for one in found)
    whole = compare_flips(
        right, gained, lost, sum(one.n for one in found) - right - gained - lost, level=level
    )
    return Compared(
        metric=POOLED,
        comparison=whole,
        as_measured=whole,
        measured=whole.baseline,
        shrunk=whole.baseline,
        identical=all(one.identical for one in parts),
    )


def _size(part: Part) -> int:
    column = part.new.items.scores[score_name(part.new.saved, part.metric)]
    return sum(value is not None for value in column)


def _is_share(part: Part) -> bool:
    """Return whether all scores lie in [0, 1], and higher ones are better."""
    try:
        score = score_name(part.new.saved, part.metric)
    except GateError:  # a mean over groups
        return False
    if not part.new.saved.aggregation(part.metric).higher_score_is_better:
        return False
    if part.compared.comparison.gained is not None and len(part.baselines) == 1:
        return True
    columns = [one.items.scores.get(score) for one in (part.new, *part.baselines)]
    return all(column and all(value is None or 0 <= value <= 1 for value in column) for column in columns)
