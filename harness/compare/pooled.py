"""The verdict on all items of a checkpoint's benchmarks together: is the model worse, wherever that shows?

A loss that is spread over a suite may be too small to be seen on any one benchmark, and plain on all of them together.
The pooled test takes all items of all benchmarks as one (Kuebler et al. 2026, arXiv 2602.10144, section 4, "pooled").
For right and wrong answers it is McNemar's on the sums of gained and lost items, else their permutation test. Each
benchmark weighs as many items as it has. It is computed as a composite with these weights. So clusters stay whole, and
of several earlier checkpoints that have all the benchmarks the one that is best over all items is the baseline, whose
luck is allowed for.

Benchmarks are left out whose scores are no shares (log-probabilities), or better when lower, and what was compared by
another metric than the first of its benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.compare.candidate import Entry
from harness.compare.items import score_name
from harness.compare.judge import Compared, Weighed, compare_composite
from harness.core.errors import GateError
from harness.core.text import count

POOLED: Final = "pooled"
"""The word that stands for the metric of all items together."""


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


def pool(parts: Mapping[str, tuple[str, Entry, Sequence[Entry]]], *, level: float) -> Pooled | None:
    """The benchmarks (metric, new result and baselines by name) as one; None for fewer than two, and where no earlier
    checkpoint has all of them."""
    kept = {name: part for name, part in parts.items() if _is_share(*part)}
    if len(kept) < 2:
        return None
    keys = [{one.saved.checkpoint_key: one for one in baselines} for _, _, baselines in kept.values()]
    common = [key for key in keys[0] if all(key in other for other in keys[1:])]
    if not common:
        return None
    sizes = {name: _size(metric, new) for name, (metric, new, _) in kept.items()}
    total = sum(sizes.values())
    weighed = [
        Weighed(sizes[name] / total, metric, new, [by_key[key] for key in common])
        for (name, (metric, new, _)), by_key in zip(kept.items(), keys, strict=True)
    ]
    compared = compare_composite(POOLED, weighed, level=level)
    return Pooled(tuple(kept), compared, tuple(keys[0][key] for key in common))


def _size(metric: str, new: Entry) -> int:
    column = new.items.scores[score_name(new.saved, metric)]
    return sum(value is not None for value in column)


def _is_share(metric: str, new: Entry, baselines: Sequence[Entry]) -> bool:
    """Return whether all scores lie in [0, 1], and higher ones are better."""
    try:
        score = score_name(new.saved, metric)
    except GateError:  # a mean over groups
        return False
    columns = [one.items.scores.get(score) for one in (new, *baselines)]
    return new.saved.aggregation(metric).higher_score_is_better and all(
        column and all(value is None or 0 <= value <= 1 for value in column) for column in columns
    )
