"""The journal of a run: an append-only file of records per process.

Every process writes a file of its own, one JSON object per line. Each line is a single ``write`` to a file opened for
appending, so that ``kill -9`` leaves at worst one incomplete last line. Files are synced to disk at most once per
second, after a batch, in case of power cuts. After a failed write or sync nothing more is appended: the line would
continue an incomplete one, and a system may drop data that it could not sync.

Each line ends with the CRC-32 of the bytes before it, ``"crc32"``, so that a flipped bit never becomes a score.

Long texts of requests are shortened to their end and a hash (``shorten_request``).

A reader accepts any prefix of a file: an incomplete last line is skipped; any other broken line is an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple

from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.core.files import check_kind, has_checksum, open_regular, parse_json, with_checksum
from pytest_touchstone.results import ITEMS, file_paths
from pytest_touchstone.results.records import Record, Status, from_json, to_json

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_EXCHANGES: Final = b'"exchanges":'
_MESSAGE: Final = b'"message":'
_MOST_LINE: Final = 1 << 28
"""The bytes that a line may have; a file without line breaks is no journal, however long it is."""

_PIECE: Final = 1 << 20
"""The bytes of a line that are read at once."""

_ALIKE: Final = (
    *("benchmark", "checkpoint", "status", "group", "reused_from"),
    *("scores", "programs", "weak_tests", "told", "exchanges"),
)
"""Fields that are the same in very many records of a run."""

_MOST_ALIKE: Final = 10_000
"""Values that are kept once for all records that have them."""


class Journal:
    """The journal file of one process, open for appending; a context manager."""

    def __init__(self, directory: Path, who: str) -> None:
        self.who = who
        self.path = directory / ITEMS / f"items-{who}.jsonl"
        self._descriptor: int | None = None
        self._synced = time.monotonic()
        self._refused: OSError | None = None

    def append(self, record: Record) -> None:
        """Write a record at once.

        Raises ``JournalError`` if the disk refuses, and at every later call.
        """
        line, folder = encode_record(record), self.path.parent
        with self._writable():
            if self._descriptor is None:
                if (
                    not folder.is_dir()
                ):  # that of the run itself is not made anew where somebody has removed it
                    disk.mkdir(folder)
                    disk.sync_folder(folder.parent)
                self._descriptor = disk.open_to_append(self.path)
            disk.write_all(self._descriptor, line)

    def sync(self, *, every: float = 0.0) -> None:
        """Sync all records to disk, unless the last sync is less than ``every`` seconds ago.

        Raises ``JournalError`` as ``append`` does.
        """
        if self._descriptor is not None and time.monotonic() - self._synced >= every:
            with self._writable():
                disk.sync(self._descriptor)
            self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file; appending opens it again."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            disk.close(descriptor)

    @contextlib.contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            if self._refused is not None:
                raise self._refused
            yield
        except OSError as error:
            self._refused = error
            raise journal_write_error(self.path, error) from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def journal_write_error(path: Path, error: OSError) -> JournalError:
    """Return the error to raise if the journal cannot be written."""
    return JournalError(
        f"cannot write {path}: {error.strerror}; free some space or choose another --eval-output"
    )


def encode_record(record: Record) -> bytes:
    """Return the line of a record, with its checksum."""
    return with_checksum(_ENCODER.encode(to_json(record))[:-1].encode("utf-8", "backslashreplace"))


def read_journal(directory: Path, *, exchanges: bool = True) -> list[Record]:
    """Return the records of all files of a run, in the order of writing.

    Without ``exchanges``, requests and answers are dropped line by line; they are nearly all bytes of a line. An
    incomplete last line is skipped. Raises ``JournalError`` with the file and number of any other broken line.
    """
    return list(iter_records(directory, exchanges=exchanges))


def iter_records(
    directory: Path,
    *,
    exchanges: bool = True,
    kind: str | None = None,
    having: Mapping[str, Iterable[str]] | None = None,
) -> Iterator[Record]:
    """Yield the records of a run one at a time, in the order of ``read_journal``.

    Lines that do not match are not parsed.

    Args:
        directory: The run's folder.
        exchanges: Whether to keep requests and answers.
        kind: Yield only records with a request of this kind.
        having: By field, the texts it may have; yield only matching records.

    """
    wanted = _line_filter(kind, having or {})
    for path in journal_files(directory):
        for location, line in _iter_lines(RecordLocation(path, 1, 0)):
            if wanted(line) or not has_checksum(line):
                yield _parse_record(location, line, None if exchanges else _EXCHANGES)


def journal_files(directory: Path) -> list[Path]:
    """Return the files of a run's journal in reading order."""
    return file_paths(directory, "items-*.jsonl")


def journal_size(directory: Path) -> int:
    """Return the size of a run's journal in bytes."""
    return sum(path.stat().st_size for path in journal_files(directory))


class RecordLocation(NamedTuple):
    """The location of a record: its file, line number (from 1), and byte offset."""

    path: Path
    line: int
    offset: int


def _iter_lines(start: RecordLocation) -> Iterator[tuple[RecordLocation, bytes]]:
    """Yield the complete lines of a file from a location on, without an incomplete last one.

    Raises ``JournalError`` for a file that cannot be read or is not a journal.
    """
    path, number, offset = start
    try:
        with open_regular(path) as file:
            file.seek(offset)
            while (line := _read_line(file)).endswith(b"\n"):
                yield RecordLocation(path, number, offset), line
                number, offset = number + 1, offset + len(line)
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from error
    except JournalError as error:
        raise JournalError(f"{path}: {error}") from None


def _read_line(file: IO[bytes]) -> bytes:
    """Return the next line in pieces, so that a long one is not in memory twice.

    Raises ``JournalError`` if it is longer than ``_MOST_LINE``.
    """
    pieces = [file.readline(_PIECE)]
    while len(pieces[-1]) == _PIECE and not pieces[-1].endswith(b"\n"):
        if len(pieces) * _PIECE >= _MOST_LINE:
            raise JournalError(f"no journal, a line is longer than {_MOST_LINE >> 20} MiB")
        pieces.append(file.readline(_PIECE))
    return b"".join(pieces)


def _parse_record(
    location: RecordLocation, line: bytes, until: bytes | None, keep: Callable[[Any], Any] | None = None
) -> Record:
    """Return the record of a line.

    Args:
        location: The location of the line, for errors.
        line: The line.
        until: Parse only the fields before this key, since most bytes follow it.
        keep: Applied to the parsed object.

    Raises:
        JournalError: If the line is damaged or not a record.

    """
    try:
        if not has_checksum(line):
            raise JournalError(
                "damaged, its crc32 is of other content; the same command asks for the item again"
            )
        fields = _parse_fields(line, until)
        return from_json(fields if keep is None else keep(fields))
    except (JournalError, ValueError) as error:
        raise JournalError(f"{location.path}, line {location.line}: {error}") from error


def _parse_fields(line: bytes, until: bytes | None) -> Any:
    end = line.find(until) if until is not None else 0
    if end > 0:
        # Where the name is that of a field inside another, that one is still open, and this is no JSON.
        with contextlib.suppress(ValueError):
            return parse_json(f"{line[:end].decode().rstrip(', ')}}}")
    fields = parse_json(line.decode())
    if until is not None and isinstance(fields, dict):
        fields.pop("exchanges", None)
    return fields


def _line_filter(kind: str | None, having: Mapping[str, Iterable[str]]) -> Callable[[bytes], bool]:
    """Return a predicate for lines with a request of this kind and these texts of fields.

    Fields come before the exchanges.
    """

    def marked(name: str, text: str) -> bytes:
        # Inside a text, the quotes of the mark would be escaped.
        return _ENCODER.encode({name: text})[1:-1].encode("utf-8", "backslashreplace")

    mark = b"" if kind is None else marked("kind", kind)
    fields = [[marked(name, text) for text in texts] for name, texts in having.items()]

    def wanted(line: bytes) -> bool:
        end = line.find(_EXCHANGES)
        return mark in line and all(
            any(line.find(pattern, 0, end) >= 0 for pattern in texts) for texts in fields
        )

    return wanted


class JournalFollower:
    """The journal of an unfinished run; each call reads only lines appended since the last.

    Equal texts and dicts of many records are stored once. With ``kept_facts``, other facts beside the scores are
    dropped.
    """

    def __init__(self, directory: Path, kept_facts: Collection[str] | None = None) -> None:
        self._directory, self._kept_facts = directory, kept_facts
        self._next: dict[Path, RecordLocation] = {}
        self._once: dict[str, Any] = {}

    def new(self) -> list[Record]:
        """Return the records since the last call, without exchanges.

        An incomplete line is read by a later call.
        """
        return [record for _, record in self.each()]

    def each(self) -> Iterator[tuple[Path, Record]]:
        """Yield the records since the last call, each with its file."""
        for path in journal_files(self._directory):
            for location, line in _iter_lines(self._next.get(path, RecordLocation(path, 1, 0))):
                record = _parse_record(location, line, _EXCHANGES, self._shared)
                self._next[path] = RecordLocation(path, location.line + 1, location.offset + len(line))
                yield path, record

    def _shared(self, fields: Any) -> Any:
        """Return the fields of a record, with values replaced by equal ones of earlier records."""
        check_kind(fields, "item", JournalError)
        fields["exchanges"] = []  # else each record makes a list of its own
        if self._kept_facts is not None and fields.get("told") is not None:
            fields["told"] = {
                name: value for name, value in fields["told"].items() if name in self._kept_facts
            } or None
        for name in ("item", "example"):
            if isinstance(text := fields.get(name), str):
                fields[name] = sys.intern(text)  # the collected items have it too
        for name in _ALIKE:
            value = fields.get(name)
            if value is not None:
                key = value if isinstance(value, str) else repr(value)
                if (shared := self._once.get(key)) is not None and type(shared) is type(value):
                    fields[name] = shared
                elif len(self._once) < _MOST_ALIKE:
                    self._once[key] = value
        return fields


def latest_records(records: Iterable[Record]) -> dict[str, Record]:
    """Return the last record of each item, except that "lost" never replaces "scored"."""
    kept: dict[str, Record] = {}
    for record in records:
        before = kept.get(record.item)
        if before is not None and before.status == "scored" and record.status == "lost":
            continue
        kept[record.item] = record
    return kept


def records_with_locations(
    path: Path, damaged: list[str] | None = None, *, heads: bool = False
) -> Iterator[tuple[Record, RecordLocation]]:
    """Yield the records of a file with their locations, without exchanges.

    Args:
        path: The file.
        damaged: Gets a line for each broken line; without it, such a line is an error.
        heads: Parse only the fields before the message, which are enough to compare scores.

    Raises:
        JournalError: If the file, or a line without ``damaged``, cannot be read.

    """
    until = _MESSAGE if heads else _EXCHANGES
    for location, line in _iter_lines(RecordLocation(path, 1, 0)):
        try:
            record = _parse_record(location, line, until)
        except JournalError as error:
            if damaged is None:
                raise
            damaged.append(str(error))
            continue
        yield record, location


def latest_with_locations(
    directory: Path, damaged: list[str] | None = None, *, heads: bool = False
) -> dict[str, tuple[Record, RecordLocation]]:
    """Return the record that counts for each item, with its location.

    ``damaged`` and ``heads`` are those of ``records_with_locations``; ``latest_records`` says which record counts.
    """
    kept: dict[str, tuple[Record, RecordLocation]] = {}
    for path in journal_files(directory):
        for record, location in records_with_locations(path, damaged, heads=heads):
            before = kept.get(record.item)
            if before is None or latest_records([before[0], record])[record.item] is record:
                kept[record.item] = record, location
    return kept


def record_locations(directory: Path) -> dict[str, RecordLocation]:
    """Return the location of the record that counts for each item, without keeping records.

    Raises ``JournalError`` as ``read_journal`` does.
    """
    kept: dict[str, tuple[Status, RecordLocation]] = {}
    for path in journal_files(directory):
        for record, location in records_with_locations(path, heads=True):
            former, _ = kept.get(record.item, (None, location))
            if former != "scored" or record.status != "lost":
                kept[sys.intern(record.item)] = record.status, location
    return {item: location for item, (_, location) in kept.items()}


def read_record_at(location: RecordLocation) -> Record:
    """Return the record at a location.

    Raises ``JournalError`` if there is none any more.
    """
    try:
        with open_regular(location.path) as file:
            file.seek(location.offset)
            line = _read_line(file)
    except (OSError, JournalError) as error:
        raise JournalError(f"{location.path}, line {location.line}: {error}") from error
    return _parse_record(location, line, None)


# Requests


LONGEST_KEPT: Final = 1000
"""The characters of a request's text that the journal keeps.

Of longer texts it keeps the end, and the hash of the whole.
"""

KEPT_WHOLE: Final = ("program", "choices")
"""Fields of a request that the journal keeps whole, however long they are."""


def shorten_request(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request with long texts and lists replaced by their end and a hash.

    Nested objects are shortened alike. A program is kept whole: it is the checkpoint's own text, already limited.
    """
    kept: dict[str, Any] = {}
    for name, value in request.items():
        kept[name] = shorten_request(value) if isinstance(value, dict) else value
        whole = json.dumps(value) if isinstance(value, list) else value
        if not isinstance(whole, str) or len(whole) <= LONGEST_KEPT or name in KEPT_WHOLE:
            continue
        if isinstance(value, str):
            kept[name] = "…" + value[-LONGEST_KEPT:]
        else:  # the last part may itself be long, as a pair of input and output may be
            is_long = isinstance(value[-1], list) and len(json.dumps(value[-1])) > LONGEST_KEPT
            kept[name] = [] if is_long else value[-1:]
        kept[f"{name}_sha256"] = hashlib.sha256(whole.encode()).hexdigest()
    return kept
