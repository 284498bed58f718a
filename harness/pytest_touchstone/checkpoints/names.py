"""Names of checkpoints that are unique within one run and fit into node ids."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_touchstone.checkpoints.info import CheckpointInfo


def clean_name(text: str) -> str:
    """The text with ``-`` for what would confuse a node id: slashes, brackets, colons, spaces."""
    return re.sub(r"[\s/\\\[\]:;|,]+", "-", text).strip("-") or "checkpoint"


def unique_names(infos: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """The checkpoints in the same order, each with a name no other has; a checkpoint given twice is kept
    once.

    Names that clash are prefixed with the folders above them (``nouns-checkpoint-300``), one after the other, until
    they differ. Where there are several series, all of their names are prefixed with the folder.
    """
    distinct: dict[tuple[object, ...], CheckpointInfo] = {}
    for info in infos:
        where = os.path.abspath(info.path)  # noqa: PTH100 -- Path.resolve would follow links
        distinct.setdefault((where, info.seq_len, info.engine, *sorted(info.extra.items())), info)
    kept = list(distinct.values())
    members = Counter(info.series for info in kept if info.series is not None)
    in_series = {name for name, count in members.items() if count > 1}
    names = [
        f"{clean_name(Path(info.series).name)}-{clean_name(info.name)}"
        if len(in_series) > 1 and info.series in in_series and info.path != Path(info.series)
        else clean_name(info.name)
        for info in kept
    ]
    for depth in range(1, max((len(info.path.parts) for info in kept), default=0)):
        clashing = {name for name, count in Counter(names).items() if count > 1}
        if not clashing:
            break
        names = [
            _longer(info, depth) if name in clashing else name for name, info in zip(names, kept, strict=True)
        ]
    return [replace(info, name=name) for info, name in zip(kept, _numbered(names), strict=True)]


def _longer(info: CheckpointInfo, depth: int) -> str:
    """The name after those of ``depth`` folders above it."""
    above = info.path.parts[:-1][-depth:]
    return "-".join(clean_name(part) for part in (*above, info.name))


def _numbered(names: list[str]) -> list[str]:
    """The names, those that still clash made unique by a number (the same path with two lengths)."""
    unique: list[str] = []
    seen: set[str] = set()
    for name in names:
        number, candidate = 1, name
        while candidate in seen:
            number += 1
            candidate = f"{name}-{number}"
        seen.add(candidate)
        unique.append(candidate)
    return unique
