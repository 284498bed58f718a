"""The journal: records on disk, append only, so that no finished item is ever lost.

Every process writes its own file ``items-WHO.jsonl``, one JSON object per line. Each line is a single ``write`` to a
file opened for appending, so that ``kill -9`` leaves at worst one torn last line. Shards are synced to disk once per
second, after a batch, in case of power cuts.

Each line ends with the CRC-32 of all before it, ``"crc32"``: a bit that has flipped on the disk is no score. Lines of
former versions have none; their scores are checked by their ranges.

A reader accepts any prefix of a file: a torn last line is left out, a broken line anywhere else is an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple

from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.core.files import DamagedError, has_checksum, open_regular, parsed, with_checksum
from pytest_touchstone.results.records import Record, check_ranges, from_json, to_json

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_EXCHANGES: Final = b'"exchanges":'
_BEGIN: Final = b'{"schema":'
_MOST_LINE: Final = 1 << 28
"""The bytes that a line may have; a file without line breaks is no journal, however long it is."""

_ALIKE: Final = (
    *("benchmark", "checkpoint", "status", "group", "reused_from"),
    *("scores", "programs", "weak_tests", "told", "exchanges"),
)
"""Fields that are the same in very many records of a run."""

_MOST_ALIKE: Final = 10_000
"""Values that are kept once for all records that have them."""


class Journal:
    """Appends records to one file; a context manager."""

    def __init__(self, directory: Path, who: str) -> None:
        self.who = who
        self.path = directory / f"items-{who}.jsonl"
        self._descriptor: int | None = None
        self._synced = time.monotonic()

    def append(self, record: Record) -> None:
        """Write the record at once. Raises ``JournalError`` when the disk refuses."""
        try:
            data = memoryview(line_of(record))
            while data:
                data = data[os.write(self._open(), data) :]
        except OSError as error:
            raise JournalError(
                f"cannot write {self.path}: {error.strerror}; free some space or choose another --eval-output"
            ) from error

    def sync(self, *, every: float = 0.0) -> None:
        """Return when everything appended so far is on disk, or, with ``every``, was there that many seconds ago."""
        if self._descriptor is not None and time.monotonic() - self._synced >= every:
            os.fsync(self._descriptor)
            self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file; appending again would open it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self._descriptor


def line_of(record: Record) -> bytes:
    """Return the record's line."""
    return with_checksum(_ENCODER.encode(to_json(record))[:-1].encode("utf-8", "backslashreplace"))


def check_line(line: bytes) -> bool:
    """Return whether a line has a checksum, which is then right; raises ``JournalError`` for a damaged line."""
    try:
        return has_checksum(line)
    except DamagedError as error:
        raise JournalError(f"{error}; the same command asks for the item again") from None


def lines_of(shard: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; raises ``JournalError`` for one that no journal can have."""
    while line := shard.readline(_MOST_LINE):
        if len(line) == _MOST_LINE:
            raise JournalError(f"{shard.name}: no journal, a line is longer than {_MOST_LINE >> 20} MiB")
        yield line


def read_journal(directory: Path, *, exchanges: bool = True) -> list[Record]:
    """Return the records of every file of a run, file by file, in the order written, without a torn last line.

    Without ``exchanges`` the records' requests and answers, nearly all of a line's bytes, are dropped line by line.
    Raises ``JournalError`` naming file and line for any other line that is no record.
    """
    return list(each_record(directory, exchanges=exchanges))


def each_record(
    directory: Path,
    *,
    exchanges: bool = True,
    kind: str | None = None,
    having: Mapping[str, Iterable[str]] | None = None,
) -> Iterator[Record]:
    """Yield the records as ``read_journal`` returns them, one at a time; with ``kind`` only those with such an
    exchange, with ``having`` only those whose fields have one of the texts given for each.

    Other lines are then not even parsed: a run has very many of them.
    """
    wanted = _wanted(kind, having or {})
    for path in sorted(directory.glob("items-*.jsonl")):
        try:
            with open_regular(path) as shard:
                yield from _records(lines_of(shard), path, exchanges=exchanges, wanted=wanted)
        except OSError as error:
            raise JournalError(f"cannot read {path}: {error.strerror}") from error


def _wanted(kind: str | None, having: Mapping[str, Iterable[str]]) -> Callable[[bytes], bool]:
    """Return whether a line has such an exchange, and each field, which stand before the exchanges."""

    def marked(name: str, text: str) -> bytes:
        # Inside a text, the quotes of the mark would be escaped.
        return _ENCODER.encode({name: text})[1:-1].encode("utf-8", "backslashreplace")

    mark = b"" if kind is None else marked("kind", kind)
    fields = [[marked(name, text) for text in texts] for name, texts in having.items()]

    def wanted(line: bytes) -> bool:
        if mark not in line:
            return False
        end = line.find(_EXCHANGES)
        return all(any(line.find(one, 0, end) >= 0 for one in texts) for texts in fields)

    return wanted


class Following:
    """The journal of a run in progress: each call reads only what was appended since the last.

    Texts and dicts that very many records have are kept once.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: dict[Path, int] = {}
        self._read: dict[Path, int] = {}
        self._once: dict[str, Any] = {}

    def new(self) -> list[Record]:
        """Return the records since the last call, without exchanges; a line that is not whole yet comes next time."""
        return [record for _, record in self.each()]

    def each(self) -> Iterator[tuple[Path, Record]]:
        """Yield the same one by one, each with its file."""
        for path in sorted(self._directory.glob("items-*.jsonl")):
            read = _Counting(self._offsets.get(path, 0))
            first = self._read.get(path, 0) + 1
            try:
                with open_regular(path) as shard:
                    shard.seek(read.end)
                    whole = read.whole(lines_of(shard))
                    for number, record in enumerate(
                        _records(whole, path, first=first, once=self._once), start=first
                    ):
                        self._offsets[path], self._read[path] = read.end, number
                        yield path, record
            except OSError as error:
                raise JournalError(f"cannot read {path}: {error.strerror}") from error


class _Counting:
    """Passes whole lines on, and knows the number of the last of them, and where it begins and ends."""

    def __init__(self, end: int) -> None:
        self.number, self.begin, self.end = 0, end, end

    def whole(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            if line.endswith(b"\n"):  # else it comes next time
                self.number, self.begin, self.end = self.number + 1, self.end, self.end + len(line)
                yield line


def read_line(line: bytes) -> Record:
    """Return the record of one line. Raises ``JournalError`` where it is none, or damaged."""
    try:
        return _record(_object(line), checked=check_line(line))
    except ValueError as error:
        raise JournalError(f"no record: {error}") from error


def latest(records: Iterable[Record]) -> dict[str, Record]:
    """Return one record per item: the last, except that a scored one stays when a later record says it was lost."""
    kept: dict[str, Record] = {}
    for record in records:
        before = kept.get(record.item)
        if before is not None and before.status == "scored" and record.status == "lost":
            continue
        kept[record.item] = record
    return kept


class Place(NamedTuple):
    """The place of a record: its file, the line's number, and where the line begins."""

    path: Path
    line: int
    offset: int


def places(directory: Path) -> dict[str, Place]:
    """Return where the records of a run are, by item, one each as ``latest`` chooses.

    Raises ``JournalError`` as ``read_journal`` does.
    """
    return {item: place for item, (_, place) in placed_records(directory).items()}


def placed_records(directory: Path, damaged: list[str] | None = None) -> dict[str, tuple[Record, Place]]:
    """Return the records of a run with their places, by item, one each as ``latest`` chooses; without exchanges.

    Lines that are no records are named in ``damaged``; without it raises ``JournalError`` as ``read_journal`` does.
    """
    kept: dict[str, tuple[Record, Place]] = {}
    for path in sorted(directory.glob("items-*.jsonl")):
        try:
            with open_regular(path) as shard:
                read = _Counting(0)
                for record in _records(read.whole(lines_of(shard)), path, damaged=damaged):
                    number, offset = read.number, read.begin
                    before = kept.get(record.item)
                    if before is None or latest([before[0], record])[record.item] is record:
                        kept[record.item] = record, Place(path, number, offset)
        except OSError as error:
            raise JournalError(f"cannot read {path}: {error.strerror}") from error
    return kept


def read_at(place: Place) -> Record:
    """Return the record at a place. Raises ``JournalError`` where there is none any more."""
    try:
        with open_regular(place.path) as shard:
            shard.seek(place.offset)
            return read_line(shard.readline(_MOST_LINE))
    except (OSError, JournalError) as error:
        raise JournalError(f"{place.path}, line {place.line}: {error}") from error


def _records(
    lines: Iterable[bytes],
    path: Path,
    *,
    exchanges: bool = False,
    wanted: Callable[[bytes], bool] | None = None,
    first: int = 1,
    once: dict[str, Any] | None = None,
    damaged: list[str] | None = None,
) -> Iterator[Record]:
    for number, line in enumerate(lines, start=first):
        if not line.endswith(b"\n"):
            return  # a line without its end was never finished: the item counts as not recorded
        try:
            checked = check_line(line)
            if wanted is not None and not wanted(line):
                continue
            found = _object(line) if exchanges else _beginning(line, checked=checked)
            record = _record(found if once is None else _kept_once(found, once), checked=checked)
        except (JournalError, ValueError) as error:
            if damaged is None:
                raise JournalError(f"{path}, line {number}: {error}") from error
            damaged.append(f"{path}, line {number}: {error}")
            continue
        yield record


def _record(found: dict[str, Any], *, checked: bool) -> Record:
    record = from_json(found)
    if not checked:
        check_ranges(record)
    return record


def _kept_once(found: dict[str, Any], once: dict[str, Any]) -> dict[str, Any]:
    """Return a record's object, with what other records have too from ``once``, which takes what is new to it."""
    found.setdefault("exchanges", [])  # they were not read: else each record makes a list of its own
    for name in _ALIKE:
        value = found.get(name)
        if value is not None:
            key = value if isinstance(value, str) else repr(value)
            if (known := once.get(key)) is not None and type(known) is type(value):
                found[name] = known
            elif len(once) < _MOST_ALIKE:
                once[key] = value
    return found


def _object(line: bytes) -> dict[str, Any]:
    found = parsed(line.decode("utf-8"))
    if not isinstance(found, dict):
        raise JournalError("not a JSON object")
    return found


def _beginning(line: bytes, *, checked: bool) -> dict[str, Any]:
    """Return a line's object without the exchanges, which are its last field and nearly all of it.

    They are not parsed where the line is as the journal writes it, a single object: two in one line are an error.
    """
    end = line.find(_EXCHANGES)
    if end > 0 and (checked or line.find(_BEGIN, 1) < 0):
        # Where the name is that of a field inside another, that one is still open, and this is no JSON.
        with contextlib.suppress(ValueError):
            return _object(line[:end].rstrip(b", ") + b"}")
    found = _object(line)
    found.pop("exchanges", None)
    return found
