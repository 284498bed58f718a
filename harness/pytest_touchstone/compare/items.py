"""The scores of the items that two results on the same benchmark share, in one order.

An item is the same in two results where its id and the hash of its row are. A score of None counts as no item.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pytest_touchstone.core.aggregation import MACRO
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.results.store_entry import ItemScores, StoredResult

NAMED: Final = 3
"""The number of items that are named before "and N more"."""


class ItemDifferences(NamedTuple):
    """The differences between the items of two results, by ids: missing in the new one, only in the new one, other
    rows; and how many items are the same."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    changed: tuple[str, ...]
    shared: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed)

    def text(self) -> str:
        """The differences in words: counts and the first names; empty where there are none."""
        parts = [
            _named(names, what)
            for names, what in (
                (self.missing, "missing here"),
                (self.extra, "not in the baseline"),
                (self.changed, "with another row"),
            )
            if names
        ]
        return "; ".join(parts)


class AlignedScores(NamedTuple):
    """The ids and scores of the items that all of several results have: a list per result, the new one's apart.

    ``clusters`` is None where items share nothing.
    """

    names: list[str]
    baselines: list[list[float]]
    new: list[float]
    clusters: list[str | None] | None


def score_name(saved: StoredResult, metric: str) -> str:
    """The item score by which a metric is compared: for a perplexity its log-probabilities, else its own name.

    Raises ``GateError`` for a metric that the result has not, and for a mean over groups, which no items have.
    """
    if metric not in saved.metrics:
        known = ", ".join(saved.metrics)
        raise GateError(f"{saved.benchmark} has no metric {metric!r}; it has {known}")
    plain = metric.removesuffix(MACRO)
    if metric not in saved.aggregate and plain != metric and plain in saved.metrics:
        raise GateError(
            f"{saved.benchmark}: {metric} is a mean over groups, which cannot be compared item by item; use {plain}"
        )
    return saved.aggregation(metric).of


def item_differences(new: ItemScores, baseline: ItemScores, score: str) -> ItemDifferences:
    """The items that the two results do not share."""
    if _alike(new, baseline, score):
        return ItemDifferences((), (), (), len(new.examples))
    mine, other = rows_of(new, score), rows_of(baseline, score)
    return ItemDifferences(
        missing=tuple(name for name in other if name not in mine),
        extra=tuple(name for name in mine if name not in other),
        changed=tuple(name for name, row in mine.items() if name in other and other[name] != row),
        shared=sum(other.get(name) == row for name, row in mine.items()),
    )


def columns(new: ItemScores, baselines: Sequence[ItemScores], score: str) -> AlignedScores:
    """The scores of the items that all results share, in order of the ids."""
    if all(_alike(new, one, score) for one in baselines):
        names, clusters = sorted(new.examples), new.clusters
        found = [[float(value or 0) for value in one.scores[score]] for one in (*baselines, new)]
        if names != new.examples:
            order = sorted(range(len(names)), key=new.examples.__getitem__)
            found = [[column[place] for place in order] for column in found]
            clusters = [clusters[place] for place in order]
    else:
        scores = [_scores(items, score) for items in (*baselines, new)]
        *others, mine = (rows_of(items, score) for items in (*baselines, new))
        names = sorted(mine)
        for rows in others:
            names = [name for name in names if rows.get(name) == mine[name]]
        found = [[values[name] for name in names] for values in scores]
        by_name = dict(zip(new.examples, new.clusters, strict=True))
        clusters = [by_name[name] for name in names]
    shared = clusters.count(None) < len(clusters)
    return AlignedScores(names, found[:-1], found[-1], clusters if shared else None)


def _alike(one: ItemScores, other: ItemScores, score: str) -> bool:
    """Return whether both have the same items in the same order, all with the score: the usual case, which is quick
    to tell."""
    columns_ = (one.scores.get(score), other.scores.get(score))
    if any(column is None or None in column for column in columns_):
        return False
    return one.examples == other.examples and one.rows == other.rows


def _scores(items: ItemScores, score: str) -> dict[str, float]:
    column = items.scores.get(score, [])
    return {
        name: float(value) for name, value in zip(items.examples, column, strict=False) if value is not None
    }


def rows_of(items: ItemScores, score: str) -> dict[str, str]:
    """The hash of the row of every item that has the score."""
    have = _scores(items, score)
    return {name: row for name, row in zip(items.examples, items.rows, strict=True) if name in have}


def _named(names: Iterable[str], what: str) -> str:
    known = list(names)
    return f"{count(len(known), 'item')} {what}: {listed(known, NAMED)}"
