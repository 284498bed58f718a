"""The items that a process computes at the moment, so that the next run knows with which of them it was killed.

in-flight-WHO.json is in the run's folder while a batch is computed: the checkpoint, benchmark and example of each
item. A process that ends by itself empties it, also after an error or Ctrl-C. So one that is not empty was left by a
process that was killed.

The same command then goes on by what earlier runs have scored (``results.reuse``), and counts for every item
the runs that were killed with it in flight. After two of them it is computed alone. After two more it is given up: an
item that kills its process costs that item. Kills from outside hardly ever find the same item four times.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.reading import read_json
from pytest_touchstone.results.reuse import Reuse

PATTERN: Final = "in-flight-*.json"

ALONE_AFTER: Final = 2
"""An item is computed alone when so many processes were killed with it in flight."""

MOST_ALONE: Final = 2
"""An item is given up when so many processes were killed that computed nothing else."""


class ItemKey(NamedTuple):
    """An item, by what it has in common with that of another run."""

    checkpoint: str
    benchmark: str
    example: str


class InFlight:
    """The file of one process."""

    def __init__(self, directory: Path, who: str) -> None:
        self._path = directory / f"in-flight-{who}.json"
        self._descriptor: int | None = None

    def begin(self, items: Iterable[ItemKey]) -> None:
        """Write what is computed from now on. Raises ``JournalError`` when the disk refuses."""
        data = json.dumps({"schema": SCHEMA, "items": list(items)}, ensure_ascii=False).encode(
            "utf-8", "backslashreplace"
        )
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.truncate(self._descriptor, 0)
            os.pwrite(self._descriptor, data, 0)
        except OSError as error:
            raise JournalError(
                f"cannot write {self._path}: {error.strerror}; free some space or choose another --eval-output"
            ) from error

    def end(self) -> None:
        """Write that nothing is computed."""
        if self._descriptor is not None:
            os.truncate(self._descriptor, 0)

    def close(self) -> None:
        """Remove the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._path.unlink(missing_ok=True)


class Kills:
    """The earlier runs that were killed with an item in flight, of those whose scores this run may take."""

    def __init__(self, reuse: Reuse) -> None:
        self._reuse = reuse
        self._left: dict[Path, list[list[ItemKey]]] = {}
        self._counted: dict[tuple[str, str], tuple[Counter[str], Counter[str]]] = {}

    def alone(self, item: ItemKey) -> bool:
        """Return whether an item is to be computed alone."""
        together, _ = self._counts(item)
        return together[item.example] >= ALONE_AFTER

    def given_up(self, item: ItemKey) -> str | None:
        """Return why an item is not computed any more, None where it is."""
        _, alone = self._counts(item)
        if (times := alone[item.example]) < MOST_ALONE:
            return None
        return (
            f"the process was killed {times} times while it computed nothing but this item; it is given up, and "
            "--eval-no-cache computes it again"
        )

    def _counts(self, item: ItemKey) -> tuple[Counter[str], Counter[str]]:
        """Return, by example, the runs that were killed with it, and those that had nothing else in flight."""
        key = item.checkpoint, item.benchmark
        if (found := self._counted.get(key)) is None:
            together: Counter[str] = Counter()
            alone: Counter[str] = Counter()
            for source in self._reuse.sources(*key):
                for left in self._left_by(Path(source.directory)):
                    own = [one.example for one in left if one[:2] == (source.checkpoint, item.benchmark)]
                    together.update(set(own))
                    alone.update(own if len(left) == 1 else ())
            found = self._counted[key] = together, alone
        return found

    def _left_by(self, directory: Path) -> list[list[ItemKey]]:
        if (found := self._left.get(directory)) is None:
            found = self._left[directory] = []
            for path in sorted(directory.glob(PATTERN)):
                # One that cannot be read was being written: nothing was computed yet.
                with suppress(OSError, ValueError, KeyError, TypeError):
                    found.append([ItemKey(*map(str, one)) for one in read_json(path)["items"]])
        return found
