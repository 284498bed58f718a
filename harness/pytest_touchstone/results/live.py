"""Files that are there while a run goes on: how far each process is.

progress-WHO.json    a process's state, rewritten a few times a second

Whoever reads them (the progress line, ``touchstone watch``) finds a whole file or none, and takes a broken one for
none. They are removed when the run has ended.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pytest_touchstone.core import disk
from pytest_touchstone.core.files import SCHEMA, read_json, write_atomic
from pytest_touchstone.results.layout import DETAILS, places_in

PROGRESS: Final = "progress-*.json"

STALE: Final = 60.0
"""Seconds after which a process that says nothing is taken to be gone."""


def process_space() -> str:
    """Return what tells the processes among which ours has its number from others, as in another container or before
    the machine's last start; empty where the system does not say."""
    with suppress(OSError):
        started = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink()}"
    return ""


@dataclass(slots=True, kw_only=True)
class ProcessProgress:
    """A process at a moment.

    ``doing`` is what it loads or asks, or what holds up the work. ``tokens`` went through the model or came of it. Of
    the run's ``items`` so many have ``ended`` here; of the run's ``work``, in a unit of its own, so much is ``done``.
    The process's number is ``pid``, among the processes of ``space``.
    """

    who: str
    pid: int = field(default_factory=os.getpid)
    space: str = field(default_factory=process_space)
    doing: str = ""
    tokens: int = 0
    items: int = 0
    ended: int = 0
    work: float = 0.0
    done: float = 0.0


def write_progress(directory: Path, state: ProcessProgress) -> None:
    """Write a process's state in place of its former one: whole or not at all, and not through to the disk."""
    path = directory / DETAILS / PROGRESS.replace("*", state.who)
    with suppress(OSError):
        if directory.is_dir():  # else somebody has removed the run
            write_atomic(path, json.dumps({"schema": SCHEMA, **asdict(state)}), lasting=False)


def read_progress(directory: Path) -> list[ProcessProgress]:
    """Return the states of all processes, by their names."""
    states = []
    for path in sorted((directory / DETAILS).glob(PROGRESS)):
        with suppress(OSError, AttributeError, KeyError, TypeError, ValueError):
            data = read_json(path)
            if data.pop("schema") == SCHEMA:
                states.append(ProcessProgress(**data))
    return states


def goes_on(directory: Path, now: float) -> bool:
    """Return whether a process of the run has written something within the last minute, and not all have died since,
    as far as this machine can know."""
    states = read_progress(directory)
    if states and all(map(_has_died, states)):
        return False
    paths = (*places_in(directory, PROGRESS), *places_in(directory, "items-*.jsonl"))
    with suppress(OSError):
        return any(now - path.stat().st_mtime <= STALE for path in paths)
    return False


def _has_died(state: ProcessProgress) -> bool:
    """Return whether the process is known to be there no longer."""
    if not state.space or state.space != process_space():
        return False
    try:
        os.kill(state.pid, 0)
    except ProcessLookupError:
        return True
    except (
        OSError,
        OverflowError,
        TypeError,
    ):  # it is somebody else's, or none of ours has written its number
        pass
    return False


def remove_live(directory: Path) -> None:
    """Remove the files, when the run has ended."""
    for path in (path for name in (PROGRESS, f".{PROGRESS}.*.tmp") for path in places_in(directory, name)):
        with suppress(OSError):
            disk.unlink(path)
