"""When the last item of a checkpoint has been reported its results are written, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.aggregate import summarise
from harness.journal import Following, latest
from harness.records import Record
from harness.results import Collected, Declaration, Summary
from harness.rundir import RunDirectory


class Ending:
    """Counts down the items of each checkpoint of a run."""

    def __init__(
        self, directory: RunDirectory, items: Sequence[Collected], declarations: Mapping[str, Declaration]
    ) -> None:
        self.following = Following(directory.path)
        self._directory = directory
        self._declarations = declarations
        self._items: dict[str, list[Collected]] = {}
        self._left: dict[str, set[str]] = {}
        self._checkpoint_of: dict[str, str] = {}
        for item in items:
            self._items.setdefault(item.checkpoint, []).append(item)
            self._left.setdefault(item.checkpoint, set()).add(item.item)
            self._checkpoint_of[item.item] = item.checkpoint

    def take(self, item: str) -> str | None:
        """Notes that an item has been reported; the checkpoint whose last one it was, else None."""
        checkpoint = self._checkpoint_of.pop(item, None)
        if checkpoint is None:
            return None
        self._left[checkpoint].discard(item)
        return None if self._left[checkpoint] else checkpoint

    def results(
        self, checkpoint: str, manifest: dict[str, Any], seconds: float
    ) -> tuple[Summary, list[Record]]:
        """The numbers of one checkpoint, and the records that they come from; only what the journal has gained is read.

        Raises ``HarnessError`` where it cannot be read.
        """
        own = (record for record in self.following.read() if record.checkpoint == checkpoint)
        known = latest(own)
        rows = [row for row in manifest.get("checkpoints", ()) if row["name"] == checkpoint]
        summary = summarise(
            known.values(),
            self._declarations,
            self._items[checkpoint],
            run_id=self._directory.run_id,
            directory=str(self._directory.path),
            manifest=manifest,
            checkpoints=rows,
            seconds=seconds,
        )
        return summary, list(known.values())
