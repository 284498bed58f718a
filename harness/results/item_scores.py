"""The scores of a run's items by checkpoint and benchmark, straight from the journal.

A comparison of many checkpoints reads very many lines and needs only the first fields of each. They stand before the
others, so a line is parsed as far as ``row``; one in which that fails is read whole, as ``journal.read_line`` does.
Texts that occur again are kept once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

from harness.core.errors import JournalError
from harness.core.files import SCHEMA
from harness.results.journal import read_line
from harness.results.records import STATUSES
from harness.results.store_entry import ItemScores

_START: Final = f'{{"schema":{SCHEMA},"kind":"item",'.encode()
_END: Final = b"}\n"
_REST: Final = b',"message":'
"""The first field after those that are needed; inside a text its quotes would be escaped."""


_Item: TypeAlias = tuple[str, str, str | None, str | None, dict[str, float]]
"""The example, row, group, cluster and scores of an item."""


def read_scores(directory: Path) -> dict[tuple[str, str], ItemScores]:
    """Return the scored items by checkpoint and benchmark, one record each as ``journal.latest`` chooses.

    Raises ``JournalError`` naming file and line for what is no record.
    """
    kept: dict[str, tuple[str, str, str, _Item]] = {}
    texts: dict[str, str] = {}
    same = texts.setdefault
    for fields in _lines(directory):
        item, status = fields["item"], fields["status"]
        before = kept.get(item)
        if before is not None and before[0] == "scored" and status == "lost":
            continue
        example, row, group, cluster = fields["example"], fields["row"], fields["group"], fields["cluster"]
        own = (
            same(example, example),
            same(row, row),
            group and same(group, group),
            cluster and same(cluster, cluster),
            fields["scores"],
        )
        kept[item] = (status, same(fields["checkpoint"], fields["checkpoint"]), fields["benchmark"], own)
    found: dict[tuple[str, str], list[_Item]] = {}
    for status, checkpoint, benchmark, one in kept.values():
        if status == "scored":
            found.setdefault((checkpoint, benchmark), []).append(one)
    return {place: _columns(items) for place, items in found.items()}


def _lines(directory: Path) -> Iterator[dict[str, Any]]:
    decode = json.JSONDecoder().raw_decode
    for path in sorted(directory.glob("items-*.jsonl")):
        try:
            with path.open("rb") as shard:
                for number, line in enumerate(shard, start=1):
                    if not line.endswith(b"\n"):
                        break  # never finished: the item counts as not recorded
                    yield _head(line, decode) or _whole(line, path, number)
        except OSError as error:
            raise JournalError(f"cannot read {path}: {error.strerror}") from error


def _head(line: bytes, decode: Any) -> dict[str, Any] | None:
    """Return the first fields of a line, None where it must be read whole."""
    end = line.find(_REST)
    if end < 0 or not (line.startswith(_START) and line.endswith(_END)):
        return None
    try:
        found: dict[str, Any] = decode(line[:end].decode("utf-8") + "}")[0]
    except ValueError:
        return None
    whole = "row" in found and "cluster" in found and found.get("status") in STATUSES
    return found if whole else None


def _whole(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        record = read_line(line)
    except JournalError as error:
        raise JournalError(f"{path}, line {number}: {error}") from error
    names = ("item", "benchmark", "example", "checkpoint", "status", "scores", "group", "cluster", "row")
    return {name: getattr(record, name) for name in names}


def _columns(items: list[_Item]) -> ItemScores:
    items.sort(key=itemgetter(0))
    examples, rows, groups, clusters, scores = zip(*items, strict=True)
    names = dict.fromkeys(name for one in scores for name in one)
    return ItemScores(
        examples=list(examples),
        rows=list(rows),
        groups=list(groups),
        clusters=list(clusters),
        scores={name: [one.get(name) for one in scores] for name in names},
    )
