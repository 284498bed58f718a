"""The items that have ended and are not reported yet. Replicas may be far ahead of pytest, by very many items.

The batch that pytest reports is kept as it is. Of batches that wait behind it, the scores are kept packed, until pytest
comes to one of their items.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeAlias

from pytest_touchstone.plugin.driver import Outcome


class Ended(NamedTuple):
    """The end of an item as pytest reports it: its scores, and the exception that it raised, if any."""

    scores: Mapping[str, float]
    raised: BaseException | None = None


_Batch: TypeAlias = dict[str, Ended]


class Unreported:
    """The ends of items, by their batches."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Batch] = {}
        self._packed: dict[Hashable, list[bytes]] = {}

    def add(self, batch: Hashable, outcomes: Mapping[str, Outcome]) -> None:
        """Take the ends of items of a batch, which may have others."""
        found = {item: Ended(one.record.scores, one.raised) for item, one in outcomes.items()}
        if batch in self._open or not self._open:
            self._open.setdefault(batch, {}).update(found)
            return
        # An exception, and what its traceback holds, cannot be packed.
        if raised := {item: one for item, one in found.items() if one.raised is not None}:
            self._open[batch] = raised
        plain = {item: one.scores for item, one in found.items() if one.raised is None}
        self._packed.setdefault(batch, []).append(zlib.compress(pickle.dumps(plain), 1))

    def has(self, batch: Hashable, item: str) -> bool:
        """Return whether an item has ended and was not taken."""
        return item in self._of(batch)

    def take(self, batch: Hashable, item: str) -> Ended:
        """Return the end of an item, which is let go of. Raises ``KeyError`` where there is none."""
        own = self._of(batch)
        found = own.pop(item)
        if not own:
            del self._open[batch]
        return found

    def _of(self, batch: Hashable) -> _Batch:
        for packed in self._packed.pop(batch, ()):
            plain = pickle.loads(zlib.decompress(packed))
            self._open.setdefault(batch, {}).update((item, Ended(scores)) for item, scores in plain.items())
        return self._open.get(batch, {})
