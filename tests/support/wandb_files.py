"""Reading back what the package of Weights & Biases writes with ``WANDB_MODE=offline``.

A file is a log in the form of LevelDB: blocks of 32 KiB, and in them parts of messages of the package's own protocol.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FRONT: Final = 7
BLOCK: Final = 1 << 15
WHOLE, LAST, PADDING = 1, 4, 0


@dataclass
class Kept:
    """A run as the file has it; ``points`` are its numbers by step, ``files`` those of its artifacts by name."""

    name: str = ""
    group: str = ""
    kind: str = ""
    project: str = ""
    notes: str = ""
    exit_code: int | None = None
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    points: dict[int, dict[str, float]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


def offline(folder: Path) -> dict[str, str]:
    """Return the environment in which the package writes everything into the folder, and asks nobody."""
    places = {f"WANDB_{name}_DIR": str(folder / "own" / name) for name in ("DATA", "CACHE", "CONFIG")}
    return {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), **places}


def kept_in(folder: Path) -> dict[str, Kept]:
    """Return the runs of the folder ``wandb`` by name."""
    return {one.name: one for one in map(_kept, sorted(folder.glob("offline-run-*/run-*.wandb")))}


def _kept(path: Path) -> Kept:
    from wandb.proto.wandb_internal_pb2 import Record

    found = Kept()
    for message in _messages(path.read_bytes()):
        record = Record.FromString(message)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found.name, found.group, found.kind = run.display_name, run.run_group, run.job_type
            found.project, found.notes, found.tags = run.project, run.notes, list(run.tags)
            found.config |= {one.key: json.loads(one.value_json) for one in run.config.update}
        elif kind == "history":
            numbers = {
                (one.key or one.nested_key[0]): json.loads(one.value_json) for one in record.history.item
            }
            step = record.history.step.num
            found.points[step] = {name: one for name, one in numbers.items() if not name.startswith("_")}
        elif kind == "artifact":
            entries = record.artifact.manifest.contents
            found.files |= {one.path: Path(one.local_path).read_bytes() for one in entries}
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _messages(data: bytes) -> Iterator[bytes]:
    place, known = FRONT, b""
    while place + FRONT <= len(data):
        left = BLOCK - place % BLOCK
        _, length, kind = struct.unpack_from("<IHB", data, place)
        if left < FRONT or kind == PADDING:
            place += left
            continue
        known += data[place + FRONT : place + FRONT + length]
        place += FRONT + length
        if kind in (WHOLE, LAST):
            yield known
            known = b""
