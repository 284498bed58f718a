"""The best checkpoint of a run by each benchmark and composite, where it can be told from every other one.

Only what is whole, and was asked alike and of the same items, is compared: the primary metric, item by item, corrected
for choosing the best of many (``statistics.best_of_many``). Where a result beside it was asked otherwise, nobody leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from pytest_touchstone.compare.baselines import worth
from pytest_touchstone.compare.candidate import Entry
from pytest_touchstone.compare.gate.changes import values_of
from pytest_touchstone.compare.judge import Weighed, compare, compare_composite
from pytest_touchstone.compare.metric import conditions_apart
from pytest_touchstone.core.composite import COMPOSITE, Composite, composite_value
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.results.store_entry import composites_of
from pytest_touchstone.statistics.best_of_many import is_told_best
from pytest_touchstone.statistics.verdicts import ALPHA

Runner = TypeVar("Runner")


class Leader(NamedTuple):
    """The checkpoint that is the best of so many by a benchmark's metric, or by a composite."""

    benchmark: str
    metric: str
    checkpoint: str
    of: int


def leaders_of(entries: Iterable[Entry], alpha: float = ALPHA) -> list[Leader]:
    """Return the leaders of a run; none of a benchmark or composite that fewer than two checkpoints have."""
    whole = [entry for entry in entries if entry.saved.complete and entry.items.examples]
    by_benchmark: dict[str, list[Entry]] = {}
    for entry in whole:
        by_benchmark.setdefault(entry.saved.benchmark, []).append(entry)
    found = [_of_benchmark(same, alpha) for same in by_benchmark.values()]
    found += [
        _of_composite(one, by_benchmark, alpha) for one in composites_of(entry.saved for entry in whole)
    ]
    return [leader for leader in found if leader is not None]


def _of_benchmark(entries: Sequence[Entry], alpha: float) -> Leader | None:
    metric = entries[0].saved.primary

    def against(best: Entry, other: Entry) -> float | None:
        return compare(best, [other], metric, level=1 - alpha).comparison.p

    if not _asked_alike(entries):
        return None
    best = _best(entries, lambda entry: worth(entry.saved, metric), against, alpha)
    return Leader(best.saved.benchmark, metric, best.saved.checkpoint, len(entries)) if best else None


def _of_composite(
    composite: Composite, by_benchmark: Mapping[str, Sequence[Entry]], alpha: float
) -> Leader | None:
    parts = {name: by_benchmark.get(name, ()) for name in composite.benchmarks}
    if not all(same and _asked_alike(same) for same in parts.values()):
        return None
    names = dict.fromkeys(entry.saved.checkpoint for same in parts.values() for entry in same)
    mine = [
        {
            entry.saved.benchmark: entry
            for same in parts.values()
            for entry in same
            if entry.saved.checkpoint == name
        }
        for name in names
    ]
    values = [composite_value(composite, values_of(entry.saved for entry in one.values())) for one in mine]
    known = [(value, one) for value, one in zip(values, mine, strict=True) if value is not None]

    def against(best: tuple[float, dict[str, Entry]], other: tuple[float, dict[str, Entry]]) -> float | None:
        weighed = [
            Weighed(weight, metric, best[1][name], [other[1][name]])
            for weight, name, metric in composite.parts
        ]
        return compare_composite(composite.name, weighed, level=1 - alpha).comparison.p

    best = _best(known, lambda one: one[0], against, alpha)
    if best is None:
        return None
    checkpoint = next(iter(best[1].values())).saved.checkpoint
    return Leader(composite.name, COMPOSITE, checkpoint, len(known))


def _best(
    runners: Sequence[Runner],
    value: Callable[[Runner], float],
    against: Callable[[Runner, Runner], float | None],
    alpha: float,
) -> Runner | None:
    """Return the runner of the largest value, if it is told from all others; those nearest to it are tested first."""
    if len(runners) < 2:
        return None
    best, *others = sorted(runners, key=value, reverse=True)

    def tests() -> Iterator[float | None]:
        for other in others:
            yield against(best, other)

    try:
        return best if is_told_best(tests(), len(runners), alpha) else None
    except GateError:  # a mean over groups has no items to compare
        return None


def _asked_alike(entries: Sequence[Entry]) -> bool:
    first = entries[0]
    return all(
        entry.saved.items_sha256 == first.saved.items_sha256 and not conditions_apart(first, entry)
        for entry in entries[1:]
    )
