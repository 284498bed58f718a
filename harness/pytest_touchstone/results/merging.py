"""Merges the shards of a run into one run, in a folder of its own with one journal.

Shards must agree on fingerprints, data, code, and all settings that change answers. If an item has several records, the
rules of the journal choose one. Only the target folder is written, anew each time, so that a merge can be repeated.
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
    """A shard's share of the ``items`` of the whole run; ``cost`` is its share of the total cost."""

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
        """A line with the share of items and cost."""
        return f"shard {self.name}: {len(self.places):,} of {self.items:,} items, {self.cost:.1%} of the cost"


def write_share(folder: Path, share: ShardShare) -> None:
    """Write the share of a shard; every worker writes an equal file."""
    write_checked(file_path(folder, SHARD_FILE), {"schema": SCHEMA, "kind": "shard", **asdict(share)})


def read_share(folder: Path) -> ShardShare | None:
    """Return the share of a run; None for a run without ``--eval-shard``.

    Raises ``HarnessError`` for a broken file.
    """
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
    """The folder of a shard, with its manifest, share and items."""

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
    """An item with different scores in two shards; the second scores count."""

    item: str
    runs: tuple[str, str]
    scores: tuple[dict[str, float], dict[str, float]]


@dataclass(slots=True, kw_only=True)
class MergeReport:
    """The outcome of a merge.

    ``missing`` has a line for each shard or group of items that is missing. ``double`` counts the items that two shards
    scored with equal scores, ``differing`` lists those with different scores.
    """

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
    """Return the shards in or up to two levels below these folders, ordered by number and start.

    Raises ``HarnessError`` for a folder without any.
    """
    shards: dict[Path, ShardRun] = {}
    for folder in folders:
        paths = sorted(path for below in ("", "*/", "*/*/") for path in folder.glob(f"{below}run.json"))
        shares = {path: share for path in paths if (share := read_share(path.parent)) is not None}
        if not shares:
            there = "is a run, but no shard" if folder / "run.json" in paths else "has no shard of a run"
            raise DataError(f"{shown_path(folder)} {there}; a run with --eval-shard makes one")
        for path, share in shares.items():
            run = RunDirectory(path.parent)
            shards[path.resolve()] = ShardRun(path.parent, run.read_manifest(), share, *run.read_collected())
    return sorted(
        shards.values(), key=lambda shard: (shard.share.number, shard.manifest.get("began", 0), shard.run_id)
    )


def check_same_run(shards: Sequence[ShardRun]) -> None:
    """Raise ``DataError`` with the differences if these are not shards of one run."""
    prints: dict[str, tuple[str, ShardRun]] = {}
    for shard in shards:
        other, differences = shards[0], list(_differences(shards[0], shard))
        for row in shard.manifest.get("checkpoints", ()):
            name, fingerprint = row["name"], row.get("fingerprint")
            if fingerprint is None:
                continue
            earlier, first = prints.setdefault(name, (fingerprint, shard))
            if earlier != fingerprint:
                other = first
                differences.append(f"the fingerprint of {name} is {earlier[:12]} and {fingerprint[:12]}")
        if differences:
            raise DataError(
                f"{other.shown} and {shard.shown} are no parts of one run: {join_names(differences, 6, between='; ')}"
            )


def _differences(first: ShardRun, second: ShardRun) -> Iterator[str]:
    if first.share.count != second.share.count:
        yield f"one of {first.share.count} shards, and one of {second.share.count}"
    settings = [shard.manifest.get(SETTINGS, {}) for shard in (first, second)]
    for name, values in conflicting_settings(*settings, but=("shard",)).items():
        yield f"--eval-{name.replace('_', '-')} is {values[0]!r} and {values[1]!r}"
    facts = [shard.manifest.get("benchmarks", {}) for shard in (first, second)]
    for name in dict.fromkeys((*facts[0], *facts[1])):
        if not all(name in benchmarks for benchmarks in facts):
            yield f"{name} is in one of them alone"
            continue
        rows = [benchmarks[name] for benchmarks in facts]
        apart = [fact for fact in FACTS if rows[0].get(fact) != rows[1].get(fact)]
        if apart:
            yield f"{name} has other {join_names(fact.replace('_', '-') for fact in apart)}"
    if first.share.digest != second.share.digest and facts[0] == facts[1]:
        yield f"they were cut from other items ({first.share.items} and {second.share.items})"


# Joining


def merged_run_id(shards: Sequence[ShardRun]) -> str:
    """Return the name of the merged run, which depends only on the question, not on the shards."""
    first = shards[0]
    asked = [first.share.digest, first.share.count, first.share.checkpoints, first.manifest.get("benchmarks")]
    asked += [{**first.manifest.get(SETTINGS, {}), "shard": None, "output": None, "run_id": None}]
    text = json.dumps(asked, sort_keys=True, default=str)
    return f"merged_{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"


def check_target(target: Path, shards: Sequence[ShardRun]) -> None:
    """Raise ``DataError`` if the target has other content than an earlier merge of this run."""
    # A merge that was killed before it wrote its manifest may have left folders and what it was writing.
    contents = (path for path in target.rglob("*") if not path.is_dir() and not path.match(".*.tmp"))
    if not target.exists() or (target.is_dir() and next(contents, None) is None):
        return
    manifest = RunDirectory(target).read_manifest() if target.is_dir() else {}
    if MERGED_KEY not in manifest:
        raise DataError(f"{shown_path(target)}: exists, and is no merged run; name another folder with -o")
    fingerprints = {row["name"]: row.get("fingerprint") for row in manifest.get("checkpoints", ())}
    for row in (row for shard in shards for row in shard.manifest.get("checkpoints", ())):
        if fingerprints.get(row["name"], row.get("fingerprint")) != row.get("fingerprint"):
            raise DataError(
                f"{shown_path(target)}: was merged with another fingerprint of {row['name']}; "
                "name another folder with -o"
            )


RecordsByItem: TypeAlias = dict[str, tuple[Record, RecordLocation]]
"""The record of each item that stays, and where it is."""


def merge(shards: Sequence[ShardRun], target: Path) -> MergeReport:
    """Write the merged run to the target folder.

    Raises ``HarnessError`` where a shard cannot be read or the target cannot be written.
    """
    directory = RunDirectory(target)
    merged = MergeReport(
        folder=target, shards=len({shard.share.number for shard in shards}), whole=shards[0].share.items
    )
    order = {item: index for shard in shards for item, index in shard.share.places.items()}
    records = _records(shards, merged)
    merged.items = sum(record.status != "lost" for record, _ in records.values())
    merged.missing = list(_missing(shards, records, len(order)))
    collected = {item.item: item for shard in shards for item in shard.items}
    directory.make()
    directory.write_manifest(_manifest(directory, shards))  # first: a merge that is stopped can be run again
    runs = {shard.run_id for shard in shards}
    places = sorted(
        location
        for item, (record, location) in records.items()
        if item in collected and record.status != "lost"
    )
    # A record that a shard took from another of these runs counts as scored in this run.
    kept = (
        replace(record, reused_from=None) if record.reused_from in runs else record
        for record in map(read_record_at, places)
    )
    _replace_journal(target, kept)
    directory.write_collected(
        sorted(collected.values(), key=lambda item: order.get(item.item, len(order))),
        shards[0].declarations,
        list(dict.fromkeys(line for shard in shards for line in shard.deselected)),
    )
    usage = [
        replace(row, who=f"{shard.share.number}-{row.who}")
        for shard in shards
        for row in RunDirectory(shard.folder).read_usage()
    ]
    directory.write_usage(MERGED_KEY, usage)
    return merged


def _replace_journal(target: Path, records: Iterable[Record]) -> None:
    """Replace the journals of a former merge by these records, once they are on disk."""
    journal = target / ITEMS / f"items-{MERGED_KEY}.jsonl"
    try:
        write_atomic(journal, map(encode_record, records))
        for path in journal_files(target):
            if path != journal:
                disk.unlink(path)
    except OSError as error:
        raise JournalError(f"cannot write {journal}: {error.strerror}") from error


def _records(shards: Sequence[ShardRun], merged: MergeReport) -> RecordsByItem:
    """Return the record that counts for each item; duplicates are noted in ``merged``."""
    kept: RecordsByItem = {}
    runs: dict[str, str] = {}
    run_ids = {shard.run_id for shard in shards}
    for shard in shards:
        for item, (record, location) in latest_with_locations(shard.folder, merged.notes).items():
            if item in kept:
                before, _ = kept[item]
                if before.status == record.status == "scored" and record.reused_from not in run_ids:
                    merged.double += before.scores == record.scores
                    if before.scores != record.scores:
                        twice = ConflictingItem(
                            item, (runs[item], shard.shown), (before.scores, record.scores)
                        )
                        merged.differing.append(twice)
                if latest_records([before, record])[item] is before:
                    continue
            kept[item], runs[item] = (record, location), shard.shown
    return kept


def _missing(shards: Sequence[ShardRun], records: RecordsByItem, items: int) -> Iterator[str]:
    """Yield a line for each missing or unfinished shard, and for items in no shard.

    ``items`` is the number of items that the shards have together.
    """
    of, whole = shards[0].share.count, shards[0].share.items
    numbers = {shard.share.number for shard in shards}
    yield from (f"shard {number}/{of} is missing" for number in range(1, of + 1) if number not in numbers)
    for number in sorted(numbers):
        same = [shard for shard in shards if shard.share.number == number]
        wanted = {item for shard in same for item in shard.share.places}
        gone = [item for item in wanted if item not in records or records[item][0].status == "lost"]
        if gone:
            lines = dict.fromkeys(line for shard in same for line in shard.deselected)
            why = f" ({join_names(lines, 2, between='; ')})" if lines else ""
            yield (
                f"shard {number}/{of}: {len(gone):,} of {count(len(wanted), 'item')} not scored{why}, such as "
                f"{min(gone)}; the same command goes on"
            )
    if len(numbers) == of and items < whole:
        yield f"{count(whole - items, 'item')} in no shard"


def _manifest(directory: RunDirectory, shards: Sequence[ShardRun]) -> dict[str, Any]:
    first, manifests = shards[0], [shard.manifest for shard in shards]
    rows = {row["name"]: row for manifest in manifests for row in manifest.get("checkpoints", ())}
    order = {name: index for index, name in enumerate(first.share.checkpoints)}
    words = [str(word) for word in first.manifest.get("command", ())]
    return {
        **first.manifest,
        "run_id": directory.run_id,
        "began": min(manifest.get("began", 0.0) for manifest in manifests),
        "settings": {**first.manifest.get(SETTINGS, {}), "shard": None},
        "checkpoints": sorted(rows.values(), key=lambda row: order.get(row["name"], len(order))),
        "benchmarks": {
            name: row for manifest in manifests for name, row in manifest.get("benchmarks", {}).items()
        },
        "command": [
            word
            for before, word in zip(["", *words], words, strict=False)
            if word.partition("=")[0] != "--eval-shard" != before
        ],
        MERGED_KEY: [{"run_id": shard.run_id, "shard": shard.share.name} for shard in shards],
    }
