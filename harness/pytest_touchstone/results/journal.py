"""The journal: records on disk, append only, so that no finished item is ever lost.

Every process writes its own file (``results``), one JSON object per line. Each line is a single ``write`` to a file
opened for appending, so that ``kill -9`` leaves at worst one torn last line. Shards are synced to disk once per
second, after a batch, in case of power cuts. Nothing is appended after a write or sync that the disk has refused: a
line would go on where another one was torn, and a system may forget what it could not sync.

Each line ends with the CRC-32 of all before it, ``"crc32"``: a bit that has flipped on the disk is no score.

Of a request's long text the journal has the end, and a hash (``shorten_request``).

A reader accepts any prefix of a file: a torn last line is left out, a broken line anywhere else is an error.
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
    """Appends records to one file; a context manager."""

    def __init__(self, directory: Path, who: str) -> None:
        self.who = who
        self.path = directory / ITEMS / f"items-{who}.jsonl"
        self._descriptor: int | None = None
        self._synced = time.monotonic()
        self._refused: OSError | None = None

    def append(self, record: Record) -> None:
        """Write the record at once. Raises ``JournalError`` when the disk refuses, and ever after."""
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
        """Return when everything appended so far is on disk, or, with ``every``, was there that many seconds ago.

        Raises ``JournalError`` as ``append`` does."""
        if self._descriptor is not None and time.monotonic() - self._synced >= every:
            with self._writable():
                disk.sync(self._descriptor)
            self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file; appending again would open it again."""
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
    """Return what to raise where the disk refuses what a process must write down before it goes on."""
    return JournalError(
        f"cannot write {path}: {error.strerror}; free some space or choose another --eval-output"
    )


def encode_record(record: Record) -> bytes:
    """Return the record's line."""
    return with_checksum(_ENCODER.encode(to_json(record))[:-1].encode("utf-8", "backslashreplace"))


def read_journal(directory: Path, *, exchanges: bool = True) -> list[Record]:
    """Return the records of every file of a run, file by file, in the order written, without a torn last line.

    Without ``exchanges`` the records' requests and answers, nearly all of a line's bytes, are dropped line by line.
    Raises ``JournalError`` naming file and line for any other line that is no record.
    """
    return list(iter_records(directory, exchanges=exchanges))


def iter_records(
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
    wanted = _line_filter(kind, having or {})
    for path in journal_files(directory):
        for place, line in _iter_lines(RecordLocation(path, 1, 0)):
            if wanted(line) or not has_checksum(line):
                yield _parse_record(place, line, None if exchanges else _EXCHANGES)


def journal_files(directory: Path) -> list[Path]:
    """Return the files of a run's journal, in the order in which they are read."""
    return file_paths(directory, "items-*.jsonl")


def journal_size(directory: Path) -> int:
    """Return the bytes of a run's journal."""
    return sum(path.stat().st_size for path in journal_files(directory))


class RecordLocation(NamedTuple):
    """The place of a record: its file, the line's number, and where the line begins."""

    path: Path
    line: int
    offset: int


def _iter_lines(start: RecordLocation) -> Iterator[tuple[RecordLocation, bytes]]:
    """Yield the whole lines of a file from a place on; a last one without its end was never finished.

    Raises ``JournalError`` for a file that cannot be read, or is no journal.
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
    """Return the next line as ``readline`` does, which would have a longest one in memory twice.

    Raises ``JournalError`` where it is longer than a line may be.
    """
    pieces = [file.readline(_PIECE)]
    while len(pieces[-1]) == _PIECE and not pieces[-1].endswith(b"\n"):
        if len(pieces) * _PIECE >= _MOST_LINE:
            raise JournalError(f"no journal, a line is longer than {_MOST_LINE >> 20} MiB")
        pieces.append(file.readline(_PIECE))
    return b"".join(pieces)


def _parse_record(
    place: RecordLocation, line: bytes, until: bytes | None, keep: Callable[[Any], Any] | None = None
) -> Record:
    """Return the record of a line: the fields before a name that nearly all bytes come after, as ``keep`` has them.

    Raises ``JournalError`` naming the place where it is no record.
    """
    try:
        if not has_checksum(line):
            raise JournalError(
                "damaged, its crc32 is of other content; the same command asks for the item again"
            )
        found = _parse_fields(line, until)
        return from_json(found if keep is None else keep(found))
    except (JournalError, ValueError) as error:
        raise JournalError(f"{place.path}, line {place.line}: {error}") from error


def _parse_fields(line: bytes, until: bytes | None) -> Any:
    end = line.find(until) if until is not None else 0
    if end > 0:
        # Where the name is that of a field inside another, that one is still open, and this is no JSON.
        with contextlib.suppress(ValueError):
            return parse_json(f"{line[:end].decode().rstrip(', ')}}}")
    found = parse_json(line.decode())
    if until is not None and isinstance(found, dict):
        found.pop("exchanges", None)
    return found


def _line_filter(kind: str | None, having: Mapping[str, Iterable[str]]) -> Callable[[bytes], bool]:
    """Return whether a line has such an exchange, and each field, which stand before the exchanges."""

    def marked(name: str, text: str) -> bytes:
        # Inside a text, the quotes of the mark would be escaped.
        return _ENCODER.encode({name: text})[1:-1].encode("utf-8", "backslashreplace")

    mark = b"" if kind is None else marked("kind", kind)
    fields = [[marked(name, text) for text in texts] for name, texts in having.items()]

    def wanted(line: bytes) -> bool:
        end = line.find(_EXCHANGES)
        return mark in line and all(any(line.find(one, 0, end) >= 0 for one in texts) for texts in fields)

    return wanted


class JournalFollower:
    """The journal of a run in progress: each call reads only what was appended since the last.

    Texts and dicts that very many records have are kept once. Of what benchmarks told beside the scores, only what is
    in ``told`` is kept, if that is given.
    """

    def __init__(self, directory: Path, told: Collection[str] | None = None) -> None:
        self._directory, self._told = directory, told
        self._next: dict[Path, RecordLocation] = {}
        self._once: dict[str, Any] = {}

    def new(self) -> list[Record]:
        """Return the records since the last call, without exchanges; a line that is not whole yet comes next time."""
        return [record for _, record in self.each()]

    def each(self) -> Iterator[tuple[Path, Record]]:
        """Yield the same one by one, each with its file."""
        for path in journal_files(self._directory):
            for place, line in _iter_lines(self._next.get(path, RecordLocation(path, 1, 0))):
                record = _parse_record(place, line, _EXCHANGES, self._shared)
                self._next[path] = RecordLocation(path, place.line + 1, place.offset + len(line))
                yield path, record

    def _shared(self, found: Any) -> Any:
        """Return a record's object, with what other records have too as the same object."""
        check_kind(found, "item", JournalError)
        found["exchanges"] = []  # else each record makes a list of its own
        if self._told is not None and found.get("told") is not None:
            found["told"] = {
                name: value for name, value in found["told"].items() if name in self._told
            } or None
        for name in ("item", "example"):
            if isinstance(text := found.get(name), str):
                found[name] = sys.intern(text)  # the collected items have it too
        for name in _ALIKE:
            value = found.get(name)
            if value is not None:
                key = value if isinstance(value, str) else repr(value)
                if (known := self._once.get(key)) is not None and type(known) is type(value):
                    found[name] = known
                elif len(self._once) < _MOST_ALIKE:
                    self._once[key] = value
        return found


def latest_records(records: Iterable[Record]) -> dict[str, Record]:
    """Return one record per item: the last, except that a scored one stays when a later record says it was lost."""
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
    """Yield the records of a file, without exchanges, each with its place.

    With ``heads`` they have the fields before the message alone, by which items are scored and compared: a comparison
    of many checkpoints reads very many lines. Lines that are no records are named in ``damaged``; without it raises
    ``JournalError`` as ``read_journal`` does.
    """
    until = _MESSAGE if heads else _EXCHANGES
    for place, line in _iter_lines(RecordLocation(path, 1, 0)):
        try:
            record = _parse_record(place, line, until)
        except JournalError as error:
            if damaged is None:
                raise
            damaged.append(str(error))
            continue
        yield record, place


def latest_with_locations(
    directory: Path, damaged: list[str] | None = None, *, heads: bool = False
) -> dict[str, tuple[Record, RecordLocation]]:
    """Return the records of a run with their places, by item, one each as ``latest_records`` chooses; the rest is as in
    ``records_with_locations``."""
    kept: dict[str, tuple[Record, RecordLocation]] = {}
    for path in journal_files(directory):
        for record, place in records_with_locations(path, damaged, heads=heads):
            before = kept.get(record.item)
            if before is None or latest_records([before[0], record])[record.item] is record:
                kept[record.item] = record, place
    return kept


def record_locations(directory: Path) -> dict[str, RecordLocation]:
    """Return where the records of a run are, by item, one each as ``latest_records`` chooses; none of them is kept.

    Raises ``JournalError`` as ``read_journal`` does.
    """
    kept: dict[str, tuple[Status, RecordLocation]] = {}
    for path in journal_files(directory):
        for record, place in records_with_locations(path, heads=True):
            former, _ = kept.get(record.item, (None, place))
            if former != "scored" or record.status != "lost":
                kept[sys.intern(record.item)] = record.status, place
    return {item: place for item, (_, place) in kept.items()}


def read_record_at(place: RecordLocation) -> Record:
    """Return the record at a place. Raises ``JournalError`` where there is none any more."""
    try:
        with open_regular(place.path) as file:
            file.seek(place.offset)
            line = _read_line(file)
    except (OSError, JournalError) as error:
        raise JournalError(f"{place.path}, line {place.line}: {error}") from error
    return _parse_record(place, line, None)


# Requests


LONGEST_KEPT: Final = 1000
"""The characters of a request's text that the journal keeps.

Of longer texts it keeps the end, and the hash of the whole.
"""

KEPT_WHOLE: Final = ("program", "choices")
"""Fields of a request that the journal keeps whole, however long they are."""


def shorten_request(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as the journal keeps it: the end of a long text, the last part of a long list, and the hash of
    the whole.

    Its parts are kept likewise. A program is kept whole, since it is the checkpoint's own text, already cut.
    """
    found: dict[str, Any] = {}
    for name, value in request.items():
        found[name] = shorten_request(value) if isinstance(value, dict) else value
        whole = json.dumps(value) if isinstance(value, list) else value
        if not isinstance(whole, str) or len(whole) <= LONGEST_KEPT or name in KEPT_WHOLE:
            continue
        if isinstance(value, str):
            found[name] = "…" + value[-LONGEST_KEPT:]
        else:  # the last part may itself be long, as a pair of input and output may be
            is_long = isinstance(value[-1], list) and len(json.dumps(value[-1])) > LONGEST_KEPT
            found[name] = [] if is_long else value[-1:]
        found[f"{name}_sha256"] = hashlib.sha256(whole.encode()).hexdigest()
    return found
