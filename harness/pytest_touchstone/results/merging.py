"""The shards of a run -> one run, in a folder of its own, with one journal.

Shards whose answers are not of the same question are refused: another fingerprint, data, code, or a setting on which
answers depend. Of an item with several records the later one stays, by the rules of the journal. Nothing but the
target's folder is written, and it is written anew each time: a merge can be run again when more has been scored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import DataError, HarnessError, JournalError
from pytest_touchstone.core.files import (
    SCHEMA,
    check_kind,
    from_plain,
    read_checked,
    shown_path,
    write_atomic,
    write_checked,
)
from pytest_touchstone.core.settings import conflicting_settings
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.results import ITEMS, file_path
from pytest_touchstone.results.journal import (
    RecordLocation,
    encode_record,
    journal_files,
    latest_records,
    latest_with_locations,
    read_record_at,
)
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.reuse import SETTINGS
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import CollectedItem, Declaration

SHARD_FILE: Final = "shard.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardShare:
    """A shard's part of the ``items`` of the whole run; ``cost`` is its part of what all of them cost."""

    number: int
    count: int
    items: int
    digest: str
    checkpoints: list[str]
    places: dict[str, int]
    cost: float = 0.0

    @property
    def name(self) -> str:
        """The shard as ``--eval-shard`` has it."""
        return f"{self.number}/{self.count}"

    @property
    def line(self) -> str:
        """The line that says what it has."""
        return f"shard {self.name}: {len(self.places):,} of {self.items:,} items, {self.cost:.1%} of the cost"


def write_share(folder: Path, share: ShardShare) -> None:
    """Write the share; every worker writes the same."""
    write_checked(file_path(folder, SHARD_FILE), {"schema": SCHEMA, "kind": "shard", **asdict(share)})


def read_share(folder: Path) -> ShardShare | None:
    """Return the share of a run; None for a run that is no shard. Raises ``HarnessError`` for a broken file."""
    path = file_path(folder, SHARD_FILE)
    try:
        data: dict[str, Any] = read_checked(path)
        check_kind(data, "shard")
        return from_plain(ShardShare, data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, HarnessError) as error:
        raise HarnessError(f"{path}: cannot be read: {error}") from None


MERGED_KEY: Final = "merged"
"""The key of a merged run's manifest that lists its shards, and the name of its journal."""

FACTS: Final = ("version", "data", "few_shot", "code", SETTINGS)
"""The facts of a benchmark in a manifest."""


@dataclass(frozen=True, slots=True)
class ShardRun:
    """The folder of a shard, with what it says of itself."""

    folder: Path
    manifest: dict[str, Any]
    share: ShardShare
    items: Sequence[CollectedItem]
    declarations: dict[str, Declaration]
    deselected: list[str]

    @property
    def run_id(self) -> str:
        """The name of its folder when it was run."""
        return str(self.manifest.get("run_id", self.folder.name))

    @property
    def shown(self) -> str:
        """The folder and the shard, for messages."""
        return f"{shown_path(self.folder)} ({self.share.name})"


class ConflictingItem(NamedTuple):
    """An item that two shards have scored differently; the second's scores are those that stay."""

    item: str
    runs: tuple[str, str]
    scores: tuple[dict[str, float], dict[str, float]]


@dataclass(slots=True, kw_only=True)
class MergeReport:
    """The findings of a merge: ``missing`` says line by line what is not there, ``double`` counts the items that two
    shards have both scored, alike; ``differing`` are those that they have scored differently."""

    folder: Path
    shards: int
    items: int = 0
    whole: int = 0
    missing: list[str] = field(default_factory=list)
    double: int = 0
    differing: list[ConflictingItem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


# Reading


def find_shards(folders: Iterable[Path]) -> list[ShardRun]:
    """Return the shards in these folders, each that of a run or one with such folders up to two levels below; in order
    of their numbers and beginnings.

    Raises ``HarnessError`` for a folder without any.
    """
    parts: dict[Path, ShardRun] = {}
    for folder in folders:
        paths = sorted(path for below in ("", "*/", "*/*/") for path in folder.glob(f"{below}run.json"))
        shares = {path: share for path in paths if (share := read_share(path.parent)) is not None}
        if not shares:
            there = "is a run, but no shard" if folder / "run.json" in paths else "has no shard of a run"
            raise DataError(f"{shown_path(folder)} {there}; a run with --eval-shard makes one")
        for path, share in shares.items():
            run = RunDirectory(path.parent)
            parts[path.resolve()] = ShardRun(path.parent, run.read_manifest(), share, *run.read_collected())
    return sorted(
        parts.values(), key=lambda part: (part.share.number, part.manifest.get("began", 0), part.run_id)
    )


def check_same_run(parts: Sequence[ShardRun]) -> None:
    """Raise ``DataError`` naming what differs where these are no shards of one run."""
    prints: dict[str, tuple[str, ShardRun]] = {}
    for part in parts:
        other, differences = parts[0], list(_differences(parts[0], part))
        for row in part.manifest.get("checkpoints", ()):
            name, own = row["name"], row.get("fingerprint")
            if own is None:
                continue
            known, first = prints.setdefault(name, (own, part))
            if known != own:
                other = first
                differences.append(f"the fingerprint of {name} is {known[:12]} and {own[:12]}")
        if differences:
            raise DataError(
                f"{other.shown} and {part.shown} are no parts of one run: {join_names(differences, 6, between='; ')}"
            )


def _differences(mine: ShardRun, other: ShardRun) -> Iterator[str]:
    if mine.share.count != other.share.count:
        yield f"one of {mine.share.count} shards, and one of {other.share.count}"
    settings = [one.manifest.get(SETTINGS, {}) for one in (mine, other)]
    for name, values in conflicting_settings(*settings, but=("shard",)).items():
        yield f"--eval-{name.replace('_', '-')} is {values[0]!r} and {values[1]!r}"
    facts = [one.manifest.get("benchmarks", {}) for one in (mine, other)]
    for name in dict.fromkeys((*facts[0], *facts[1])):
        if not all(name in one for one in facts):
            yield f"{name} is in one of them alone"
            continue
        rows = [one[name] for one in facts]
        apart = [fact for fact in FACTS if rows[0].get(fact) != rows[1].get(fact)]
        if apart:
            yield f"{name} has other {join_names(fact.replace('_', '-') for fact in apart)}"
    if mine.share.digest != other.share.digest and facts[0] == facts[1]:
        yield f"they were cut from other items ({mine.share.items} and {other.share.items})"


# Joining


def merged_run_id(parts: Sequence[ShardRun]) -> str:
    """Return the name of the merged run, the same for the same question whichever shards are there."""
    one = parts[0]
    asked = [one.share.digest, one.share.count, one.share.checkpoints, one.manifest.get("benchmarks")]
    asked += [{**one.manifest.get(SETTINGS, {}), "shard": None, "output": None, "run_id": None}]
    text = json.dumps(asked, sort_keys=True, default=str)
    return f"merged_{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"


def check_target(target: Path, parts: Sequence[ShardRun]) -> None:
    """Raise ``DataError`` where something else than an earlier merge of this run is in the way."""
    # A merge that was killed before it wrote its manifest may have left folders and what it was writing.
    contents = (path for path in target.rglob("*") if not path.is_dir() and not path.match(".*.tmp"))
    if not target.exists() or (target.is_dir() and next(contents, None) is None):
        return
    manifest = RunDirectory(target).read_manifest() if target.is_dir() else {}
    if MERGED_KEY not in manifest:
        raise DataError(f"{shown_path(target)}: exists, and is no merged run; name another folder with -o")
    fingerprints = {row["name"]: row.get("fingerprint") for row in manifest.get("checkpoints", ())}
    for row in (row for part in parts for row in part.manifest.get("checkpoints", ())):
        if fingerprints.get(row["name"], row.get("fingerprint")) != row.get("fingerprint"):
            raise DataError(
                f"{shown_path(target)}: was merged with another fingerprint of {row['name']}; "
                "name another folder with -o"
            )


RecordsByItem: TypeAlias = dict[str, tuple[Record, RecordLocation]]
"""The record of each item that stays, and where it is."""


def merge(parts: Sequence[ShardRun], target: Path) -> MergeReport:
    """Write the run of which these are the shards; return what was found. Raises ``HarnessError``."""
    directory = RunDirectory(target)
    merged = MergeReport(
        folder=target, shards=len({part.share.number for part in parts}), whole=parts[0].share.items
    )
    order = {item: index for part in parts for item, index in part.share.places.items()}
    records = _records(parts, merged)
    merged.items = sum(record.status != "lost" for record, _ in records.values())
    merged.missing = list(_missing(parts, records, len(order)))
    collected = {item.item: item for part in parts for item in part.items}
    directory.make()
    directory.write_manifest(_manifest(directory, parts))  # first: a merge that is stopped can be run again
    runs = {part.run_id for part in parts}
    places = sorted(
        place for item, (record, place) in records.items() if item in collected and record.status != "lost"
    )
    # One that a shard took from another of these runs counts as scored in this run.
    kept = (
        replace(record, reused_from=None) if record.reused_from in runs else record
        for record in map(read_record_at, places)
    )
    journal = target / ITEMS / f"items-{MERGED_KEY}.jsonl"
    try:
        write_atomic(journal, map(encode_record, kept))
        for path in journal_files(target):  # those of a former merge
            if path != journal:
                disk.unlink(path)
    except OSError as error:
        raise JournalError(f"cannot write {journal}: {error.strerror}") from error
    directory.write_collected(
        sorted(collected.values(), key=lambda item: order.get(item.item, len(order))),
        parts[0].declarations,
        list(dict.fromkeys(line for part in parts for line in part.deselected)),
    )
    usage = [
        replace(row, who=f"{part.share.number}-{row.who}")
        for part in parts
        for row in RunDirectory(part.folder).read_usage()
    ]
    directory.write_usage(MERGED_KEY, usage)
    return merged


def _records(parts: Sequence[ShardRun], found: MergeReport) -> RecordsByItem:
    """Return the records that stay; what is double goes into ``found``."""
    kept: RecordsByItem = {}
    runs: dict[str, str] = {}
    known = {part.run_id for part in parts}
    for part in parts:
        for item, (record, place) in latest_with_locations(part.folder, found.notes).items():
            if item in kept:
                before, _ = kept[item]
                if before.status == record.status == "scored" and record.reused_from not in known:
                    found.double += before.scores == record.scores
                    if before.scores != record.scores:
                        twice = ConflictingItem(
                            item, (runs[item], part.shown), (before.scores, record.scores)
                        )
                        found.differing.append(twice)
                if latest_records([before, record])[item] is before:
                    continue
            kept[item], runs[item] = (record, place), part.shown
    return kept


def _missing(parts: Sequence[ShardRun], records: RecordsByItem, items: int) -> Iterator[str]:
    """Yield a line for each shard that is not there, or not done, and for ``items`` fewer than those of the run."""
    of, whole = parts[0].share.count, parts[0].share.items
    numbers = {part.share.number for part in parts}
    yield from (f"shard {number}/{of} is missing" for number in range(1, of + 1) if number not in numbers)
    for number in sorted(numbers):
        same = [part for part in parts if part.share.number == number]
        wanted = {item for part in same for item in part.share.places}
        gone = [item for item in wanted if item not in records or records[item][0].status == "lost"]
        if gone:
            lines = dict.fromkeys(line for part in same for line in part.deselected)
            why = f" ({join_names(lines, 2, between='; ')})" if lines else ""
            yield (
                f"shard {number}/{of}: {len(gone):,} of {count(len(wanted), 'item')} not scored{why}, such as "
                f"{min(gone)}; the same command goes on"
            )
    if len(numbers) == of and items < whole:
        yield f"{count(whole - items, 'item')} in no shard"


def _manifest(directory: RunDirectory, parts: Sequence[ShardRun]) -> dict[str, Any]:
    first, manifests = parts[0], [part.manifest for part in parts]
    rows = {row["name"]: row for one in manifests for row in one.get("checkpoints", ())}
    order = {name: place for place, name in enumerate(first.share.checkpoints)}
    words = [str(word) for word in first.manifest.get("command", ())]
    return {
        **first.manifest,
        "run_id": directory.run_id,
        "began": min(one.get("began", 0.0) for one in manifests),
        "settings": {**first.manifest.get(SETTINGS, {}), "shard": None},
        "checkpoints": sorted(rows.values(), key=lambda row: order.get(row["name"], len(order))),
        "benchmarks": {name: row for one in manifests for name, row in one.get("benchmarks", {}).items()},
        "command": [
            word
            for before, word in zip(["", *words], words, strict=False)
            if word.partition("=")[0] != "--eval-shard" != before
        ],
        MERGED_KEY: [{"run_id": part.run_id, "shard": part.share.name} for part in parts],
    }
