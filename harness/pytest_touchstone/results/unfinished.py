"""The numbers of a run that was killed, or still goes on: what its journal has so far."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.journal import latest, read_journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import SUMMARY, Summary, load_summary
from pytest_touchstone.results.usage import Usage

COLLECTED: Final = "collected.json"
"""A file that every run has before it asks anything."""


def ended(folder: Path) -> bool:
    """Return whether a run has summed up, or something lies where its summary belongs."""
    return os.path.lexists(folder / SUMMARY)


def summary_so_far(folder: Path) -> Summary:
    """Return the summary of a run's folder, made of the journal where the run has not summed up; nothing is written.

    Items without a record are lost. Raises ``HarnessError`` where the files cannot be read.
    """
    if ended(folder):
        return load_summary(folder)
    try:
        usage = RunDirectory(folder).read_usage()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HarnessError(f"{folder}: cannot be read: {error}") from None
    return summary_of(folder, latest(read_journal(folder)), usage=usage)


def summary_of(
    folder: Path, records: Iterable[Record] | Mapping[str, Record], *, usage: Sequence[Usage] = ()
) -> Summary:
    """Return the summary of these records by what the run's folder says of its items, benchmarks and checkpoints.

    Raises ``HarnessError`` where its files cannot be read.
    """
    directory = RunDirectory(folder)
    try:
        items, declarations, deselected = directory.read_collected()
        manifest = directory.read_manifest()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HarnessError(f"{folder}: cannot be read: {error}") from None
    return summarize(
        records,
        declarations,
        items,
        run_id=directory.run_id,
        directory=str(folder),
        manifest=manifest,
        checkpoints=manifest.get("checkpoints", []),
        deselected=deselected,
        usage=usage,
    )
