"""The facts that benchmarks tell of items of former versions: up to a number of them are started again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.plugin.api.items import Item
from pytest_touchstone.plugin.api.view import told_again
from pytest_touchstone.plugin.replay import Replay
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import Declaration, base_name

MOST: Final = 2000
"""Items of a run that are started again; each takes about a millisecond and may take much more."""


class Teller:
    """Tells of the items of one run in the form of ``Record.told``."""

    def __init__(self, folder: Path, declarations: Iterable[Declaration]) -> None:
        hows = {one.name: aggregation_of(one.aggregate, one.primary) for one in declarations}
        self._primary = {name: how.of for name, how in hows.items() if how.higher_score_is_better}
        self._folder = folder
        self._left = MOST

    def __call__(self, record: Record, notes: list[str]) -> dict[str, Any] | None:
        """Return what is told; None, with a note, where it cannot be known."""
        if not self._left:
            notes.append(f"what the benchmark tells was not recorded, and is shown of {MOST} items only")
            return None
        self._left -= 1
        name = record.benchmark
        primary = self._primary.get(name, self._primary.get(base_name(name)))
        try:
            return told_again(Item(record, primary, lambda: self._replay))
        except HarnessError as error:
            notes.append(f"what the benchmark tells is not known: {error}")
            return None

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self._folder)
