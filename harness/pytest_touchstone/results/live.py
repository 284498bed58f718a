"""Files that are there while a run goes on: what is to be asked, and how far each process is.

workload.json        the sizes of what is asked, by parts: the items of one benchmark (and group) and checkpoint
progress-WHO.json    a process's state, rewritten a few times a second

Whoever reads them (the progress line) finds a whole file or none, and takes a broken one for none. They are removed
when the run has ended. Tokens in sizes are rough (``rough_tokens``): no tokenizer is at hand before a model is loaded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.core import disk
from pytest_touchstone.core.files import SCHEMA, read_json, write_atomic
from pytest_touchstone.results.layout import DETAILS, places_in

WORKLOAD: Final = "workload.json"
PROGRESS: Final = "progress-*.json"

STALE: Final = 60.0
"""Seconds after which a process that says nothing is taken to be gone."""

_TOKEN: Final = re.compile(r"[A-Za-z]{1,9}|\d|[^\sA-Za-z\d]{1,2}|\n+")


def rough_tokens(text: str) -> int:
    """Return about how many tokens a text has, for any tokenizer: words, digits, signs in pairs, line breaks."""
    return sum(1 for _ in _TOKEN.finditer(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPart:
    """The items of one benchmark, group and checkpoint that are to be asked.

    Per item: ``tokens`` of scores and prompts, None where nothing is known of them, and ``texts`` to be generated with
    up to ``limit`` tokens each. ``shared`` tokens are computed once for all items; ``programs`` says whether texts are
    run.
    """

    checkpoint: str
    benchmark: str
    items: int
    tokens: float | None = None
    shared: float = 0.0
    texts: float = 0.0
    limit: int = 0
    programs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """All parts, and the ``parameters`` of each checkpoint as far as they are known."""

    parts: tuple[WorkloadPart, ...]
    parameters: Mapping[str, int | None] = field(default_factory=dict)


class PartProgress(NamedTuple):
    """A process's share in a part.

    Items that have ``ended``, those of them that were ``skipped`` (never asked), and those whose scores and prompts are
    ``computed``, in fractions for what is under way. ``texts`` that have ended, those of them that were ``stopped``
    before their limit; texts that are ``growing``, and the ``grown`` tokens that these have; ``tokens`` of all texts.
    ``programs`` that have run.
    """

    ended: int = 0
    skipped: int = 0
    computed: float = 0.0
    texts: int = 0
    stopped: int = 0
    growing: int = 0
    grown: int = 0
    tokens: int = 0
    programs: int = 0

    def plus(self, other: PartProgress) -> PartProgress:
        """Return the sum of both."""
        return PartProgress._make(map(sum, zip(self, other, strict=True)))


Seconds: TypeAlias = dict[str, float]
"""Seconds by kind of work: ``computing`` scores and prompts, ``generating``, and waiting for ``programs``."""


def process_space() -> str:
    """Return what tells the processes among which ours has its number from others, as in another container or before
    the machine's last start; empty where the system does not say."""
    with suppress(OSError):
        started = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink()}"
    return ""


@dataclass(slots=True, kw_only=True)
class ProcessProgress:
    """A process at a moment, ``at`` by the wall clock.

    ``doing`` is "loading", "answering", "grading", "programs" or "waiting", and ``open`` has the parts that it is at;
    ``tokens``: all that went through the model or came of it. ``trouble`` says what holds up the work. ``seconds`` are
    by checkpoint, and so are those of ``loads``. Its number is ``pid``, among the processes of ``space``.
    """

    who: str
    at: float
    pid: int = field(default_factory=os.getpid)
    space: str = field(default_factory=process_space)
    doing: str = "waiting"
    checkpoint: str = ""
    tokens: int = 0
    trouble: str = ""
    open: list[int] = field(default_factory=list)
    parts: dict[int, PartProgress] = field(default_factory=dict)
    seconds: dict[str, Seconds] = field(default_factory=dict)
    loads: dict[str, float] = field(default_factory=dict)


def write_workload(directory: Path, load: Workload) -> None:
    """Write the sizes; every process of a run writes the same, so the last one wins."""
    _write(directory / DETAILS / WORKLOAD, asdict(load))


def read_workload(directory: Path) -> Workload | None:
    """Return the sizes, None where they are not known yet."""
    with suppress(OSError, AttributeError, KeyError, TypeError, ValueError):
        data = _read(directory / DETAILS / WORKLOAD)
        return Workload(
            parts=tuple(WorkloadPart(**part) for part in data["parts"]), parameters=dict(data["parameters"])
        )
    return None


def write_progress(directory: Path, state: ProcessProgress) -> None:
    """Write a process's state in place of its former one."""
    _write(directory / DETAILS / PROGRESS.replace("*", state.who), asdict(state))


def read_progress(directory: Path) -> list[ProcessProgress]:
    """Return the states of all processes, by their names."""
    states = []
    for path in sorted((directory / DETAILS).glob(PROGRESS)):
        with suppress(OSError, AttributeError, KeyError, TypeError, ValueError):
            data = _read(path)
            parts = {int(number): PartProgress(*part) for number, part in data.pop("parts").items()}
            states.append(ProcessProgress(**data, parts=parts))
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
    names = (one for kind in (PROGRESS, WORKLOAD) for one in (kind, f".{kind}.*.tmp"))
    for path in (path for name in names for path in places_in(directory, name)):
        with suppress(OSError):
            disk.unlink(path)


def _write(path: Path, data: dict[str, Any]) -> None:
    """Write whole or not at all, and not through to the disk: after a loss of power nobody needs it."""
    with suppress(OSError):
        if path.parent.parent.is_dir():  # else somebody has removed the run
            write_atomic(path, json.dumps({"schema": SCHEMA, **data}), lasting=False)


def _read(path: Path) -> dict[str, Any]:
    """Return a file's content; raise ``OSError`` or ``ValueError`` where it cannot be read or is none of ours."""
    data = read_json(path)
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise ValueError(path.name)
    return data
