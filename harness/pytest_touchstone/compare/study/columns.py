"""The scores of results' items as arrays, each made once for all comparisons of a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_touchstone.compare.candidate import Entry
from pytest_touchstone.compare.items import score_name
from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.statistics.moments import any_shared, is_binary

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The scores of all items of a result, in order of the items' ids.

    ``digest`` is that of the items: columns with the same one can be compared item by item. ``clusters`` is None where
    items share nothing; ``binary``: all are right or wrong.
    """

    digest: str
    names: list[str]
    values: np.ndarray
    clusters: list[str | None] | None
    binary: bool


class Columns:
    """The columns of a study, made when they are asked for: ``study.once(Columns).of(entry, metric)``."""

    def __init__(self, study: Study) -> None:
        del study  # it keeps this
        self._known: dict[tuple[int, str], Column | None] = {}

    def of(self, entry: Entry, metric: str) -> Column | None:
        """The scores by which a metric is compared; None without items, where one has no such score, and for a metric
        that is no mean of scores."""
        key = id(entry), metric
        if key not in self._known:
            self._known[key] = _column(entry, metric)
        return self._known[key]


def is_mean(entry: Entry, metric: str) -> bool:
    """Return whether the metric is the mean of a score of the items, or of nothing that is known otherwise."""
    try:
        score_name(entry.saved, metric)
    except GateError:  # a mean over groups, or no such metric
        return False
    return entry.saved.aggregation(metric).by == "mean"


def _column(entry: Entry, metric: str) -> Column | None:
    import numpy as np

    items = entry.items
    if not items.examples or not is_mean(entry, metric):
        return None
    scores = items.scores.get(score_name(entry.saved, metric))
    if scores is None or None in scores:
        return None
    order = sorted(range(len(items.examples)), key=items.examples.__getitem__)
    values = np.asarray([scores[place] for place in order], dtype=float)
    clusters = [items.clusters[place] for place in order]
    return Column(
        digest=entry.saved.items_sha256 or items.digest(),
        names=[items.examples[place] for place in order],
        values=values,
        clusters=clusters if any_shared(clusters) else None,
        binary=is_binary(values.tolist()),
    )
