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
from typing import Any, Final

from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.reading import read_json

WORKLOAD: Final = "workload.json"
PROGRESS: Final = "progress-*.json"

BINS: Final = 16
"""Lengths of texts are counted by sixteenths of the limit; a seventeenth count is of those at the limit."""

STEP_TOKENS: Final = 24
"""A step that continues texts takes about as long as so many tokens of a prompt, besides one for each text: all weights
are read for it."""

MOST_ROWS: Final = 64
"""Texts that go on together where nothing else is known."""

_TOKEN: Final = re.compile(r"[A-Za-z]{1,9}|\d|[^\sA-Za-z\d]{1,2}|\n+")


def rough_tokens(text: str) -> int:
    """Return about how many tokens a text has, for any tokenizer: words, digits, signs in pairs, line breaks."""
    return sum(1 for _ in _TOKEN.finditer(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The items of one benchmark, group and checkpoint that are to be asked.

    Per item: ``requests`` to the model, ``tokens`` to be computed for scores and prompts, those whose probabilities are
    ``read``, ``texts`` to be generated with up to ``limit`` tokens each. ``shared`` tokens are computed once for all
    items; ``programs`` says whether texts are run. ``tokens`` is None where nothing is known of the sizes.
    """

    checkpoint: str
    benchmark: str
    items: int
    requests: float = 1.0
    tokens: float | None = None
    read: float = 0.0
    shared: float = 0.0
    texts: float = 0.0
    limit: int = 0
    programs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """All parts; ``pools``: the batches whose items ask for texts, each by (part, items), in order. ``parameters`` and
    ``models`` are by checkpoint; those of one model are loaded once. ``rows``: texts that go on together at most."""

    parts: tuple[Part, ...]
    pools: tuple[tuple[tuple[int, int], ...], ...] = ()
    parameters: Mapping[str, int | None] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    rows: int = MOST_ROWS


@dataclass(slots=True, kw_only=True)
class PartProgress:
    """A process's share in a part. ``ended`` items, the rest of those begun being ``open``; ``partial``: how much of
    the open ones is computed, in items. Of requests, texts and programs: how many there are and have been asked.
    ``seconds``: wall time but for the steps that continued texts; ``waited``: for programs alone. ``lengths`` counts
    texts by their length in bins, those at the limit last."""

    ended: int = 0
    open: int = 0
    partial: float = 0.0
    requests: list[float] = field(default_factory=lambda: [0, 0])
    texts: list[int] = field(default_factory=lambda: [0, 0])
    programs: list[int] = field(default_factory=lambda: [0, 0])
    seconds: float = 0.0
    waited: float = 0.0
    lengths: list[int] = field(default_factory=lambda: [0] * (BINS + 1))


@dataclass(slots=True, kw_only=True)
class Cost:
    """The costs of a checkpoint's work in a process: ``tokens`` computed for scores and prompts, and their ``seconds``;
    ``steps``: by class of rows (the number's bits) steps, rows and seconds; ``load``: seconds, None until loaded."""

    tokens: int = 0
    seconds: float = 0.0
    steps: dict[int, list[float]] = field(default_factory=dict)
    load: float | None = None


@dataclass(slots=True, kw_only=True)
class ProcessProgress:
    """A process at a moment: ``at`` by the wall clock, ``since`` when it has done what it does.

    ``doing`` is "loading", "answering", "grading", "programs" or "waiting"; ``growing`` has, for each text at work, its
    part and the tokens it has; ``tokens``: all that went through the model or came of it. ``trouble`` says what
    holds up the work.
    """

    who: str
    at: float
    since: float
    doing: str = "waiting"
    checkpoint: str | None = None
    tokens: int = 0
    trouble: str = ""
    growing: list[list[int]] = field(default_factory=list)
    parts: dict[int, PartProgress] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)


def write_workload(directory: Path, load: Workload) -> None:
    """Write the sizes; every process of a run writes the same, so the last one wins."""
    _write(directory / WORKLOAD, asdict(load))


def read_workload(directory: Path) -> Workload | None:
    """Return the sizes, None where they are not known yet."""
    if (data := _read(directory / WORKLOAD)) is None:
        return None
    with suppress(KeyError, TypeError, ValueError):
        return Workload(
            parts=tuple(Part(**part) for part in data["parts"]),
            pools=tuple(tuple((int(part), int(items)) for part, items in pool) for pool in data["pools"]),
            parameters=data["parameters"],
            models=data["models"],
            rows=data["rows"],
        )
    return None


def write_progress(directory: Path, state: ProcessProgress) -> None:
    """Write a process's state in place of its former one."""
    _write(directory / PROGRESS.replace("*", state.who), asdict(state))


def read_progress(directory: Path) -> list[ProcessProgress]:
    """Return the states of all processes, by their names."""
    found = [_read(path) for path in sorted(directory.glob(PROGRESS))]
    return [state for data in found if data is not None and (state := _state(data)) is not None]


def remove_live(directory: Path) -> None:
    """Remove the files, when the run has ended."""
    unfinished = (path for kind in (PROGRESS, WORKLOAD) for path in directory.glob(f".{kind}.*.tmp"))
    for path in (directory / WORKLOAD, *directory.glob(PROGRESS), *unfinished):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _state(data: dict[str, Any]) -> ProcessProgress | None:
    try:
        parts = {int(number): PartProgress(**part) for number, part in data.pop("parts").items()}
        costs = {
            name: Cost(**{**cost, "steps": {int(bits): sums for bits, sums in cost["steps"].items()}})
            for name, cost in data.pop("costs").items()
        }
        return ProcessProgress(**data, parts=parts, costs=costs)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _write(path: Path, data: dict[str, Any]) -> None:
    """Write whole or not at all, and not through to the disk: after a loss of power nobody needs it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps({"schema": SCHEMA, **data}), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = read_json(path)
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        return None
    return data
