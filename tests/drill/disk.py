"""A simulated disk in place of ``core.disk``: it records the order of all operations, stops or refuses at any of them,
and knows what may be left of the files when the power is cut there.

A file has what was synced for certain, and a folder the names that were. Everything since may be there, or not, in any
order: content torn at each byte or filled with zeros, names before the content that they stand for, names missing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pytest

from pytest_touchstone.core import disk

OPERATIONS: Final = (
    *("open_file", "write", "truncate", "sync", "close"),
    *("rename", "unlink", "mkdir", "rmdir", "sync_folder"),
)
FOLDER: Final = -1

UNREAD: Final = re.compile(r"\.tmp$|\.log$|/claim$|/progress-\w+\.json$")
"""Files under a temporary name, and those of which a run that goes on reads nothing."""

State: TypeAlias = dict[str, bytes | None]
"""What is on the disk, by path; a folder is None."""


class PowerCut(BaseException):
    """The machine is off: nothing can be written any more."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file: what was ``synced``, what is there ``now``, and where the writes since the last sync begin; a sync that
    has failed once makes the system forget what it has not written."""

    synced: bytes = b""
    now: bytes = b""
    writes: tuple[int, ...] = ()
    forgotten: bool = False

    @property
    def begin(self) -> int:
        """Where the unsynced part begins."""
        return len(self.synced) if self.now.startswith(self.synced) else 0

    def written(self, at: int, data: bytes) -> Content:
        gap = b"\0" * (at - len(self.now))
        now = self.now[:at] + gap + data + self.now[at + len(data) :]
        return replace(self, now=now, writes=(*self.writes, at))


class Change(NamedTuple):
    """A name that was made (with its file's number), or removed (None), in a folder that was not synced since."""

    folder: str
    names: tuple[tuple[str, int | None], ...]


HOLE: Final = "hole"
"""The kind of a tail of which a part in the middle was not written: only that may read as damaged."""


class Tail(NamedTuple):
    """What a disk may leave."""

    kind: str
    state: State


@dataclass(slots=True)
class Moment:
    """The disk before an operation; ``promised`` are the items that must last."""

    files: list[Content]
    synced_names: dict[str, int]
    pending: list[Change]
    promised: frozenset[str]
    root: str

    def state(self, changes: list[Change], content: Callable[[Content], bytes]) -> State:
        """Return what is on the disk if these changes of names, and such contents, were written."""
        names = dict(self.synced_names)
        for change in changes:
            for path, number in change.names:
                if number is None:
                    names.pop(path, None)
                else:
                    names[path] = number
        there: State = {}
        for path in sorted(names):  # a folder comes before what is in it
            parent = os.path.dirname(path)  # noqa: PTH120
            if parent in there or parent == self.root:
                there[path] = None if names[path] == FOLDER else content(self.files[names[path]])
        return there

    def tails(self) -> Iterator[Tail]:
        """Yield every state that a disk may leave; files that nobody reads (``UNREAD``) are not torn at each byte."""
        whole = self.pending
        orders = [whole[:end] for end in range(len(whole) + 1)]
        orders += [whole[:out] + whole[out + 1 :] for out in range(len(whole) - 1)]
        for changes in orders:
            for content in (kept, lost, zeros):
                yield Tail(content.__name__, self.state(changes, content))
        here = {number: path for change in whole for path, number in change.names if number is not None}
        here |= {number: path for path, number in self.synced_names.items()}
        for number, file in enumerate(self.files):
            if file.now == file.synced or number not in here:
                continue
            if UNREAD.search(here[number]):
                continue
            there = self.state(whole, kept)
            for kind, torn in torn_forms(file):
                yield Tail(kind, {**there, here[number]: torn})

    def drawn_tail(self, draw: random.Random) -> State:
        """Return one of all mixtures of them."""
        share = draw.choice((0.0, 0.5, 1.0))
        changes = [change for change in self.pending if draw.random() < share]
        forms = (kept, lost, zeros, lambda file: file.now[: draw.randint(file.begin, len(file.now))])
        return self.state(changes, lambda file: draw.choice(forms)(file))  # noqa: PLW0108 -- one for each file


def kept(file: Content) -> bytes:
    """All content was written."""
    return file.now


def lost(file: Content) -> bytes:
    """No content was written since the last sync."""
    return file.synced


def zeros(file: Content) -> bytes:
    """The size was written, and no content."""
    return file.now[: file.begin] + b"\0" * (len(file.now) - file.begin)


def torn_forms(file: Content) -> Iterator[tuple[str, bytes]]:
    """Yield the content torn at each byte, filled with zeros from each byte on, and without each of its writes."""
    for at in range(file.begin, len(file.now)):
        yield "torn", file.now[:at]
        yield "filled", file.now[:at] + b"\0" * (len(file.now) - at)
    for begin, end in zip(file.writes, file.writes[1:], strict=False):
        if begin < end:
            yield HOLE, file.now[:begin] + b"\0" * (end - begin) + file.now[end:]


@dataclass(slots=True)
class Clock:
    """A clock that goes on by itself with each look at it."""

    now: float = 0.0
    step: float = 0.3

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


@dataclass(slots=True)
class SimulatedDisk:
    """The disk below a folder, whose files are really there, so that the product reads them.

    ``stop_at`` is the number of the call that finds the power cut, ``errors`` are those of calls by number, and
    ``full`` is the call from which on no byte is taken. ``short`` is the call that writes half of what it is given, 0
    for all of them.
    """

    root: Path
    clock: Clock = field(default_factory=Clock)
    stop_at: int | None = None
    errors: dict[int, int] = field(default_factory=dict)
    full: int | None = None
    short: int | None = None
    history: list[Moment] | None = None
    calls: int = 0
    off: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)
    promised: set[str] = field(default_factory=set)
    files: list[Content] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    synced_names: dict[str, int] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)
    _opened: dict[int, list[int]] = field(default_factory=dict)
    _real: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def install(self, patch: pytest.MonkeyPatch) -> SimulatedDisk:
        """Take the place of the product's disk."""
        for name in OPERATIONS:
            self._real[name] = getattr(disk, name)
            patch.setattr(disk, name, getattr(self, name))
        return self

    # Operations

    def open_file(self, path: Path, *, append: bool = False, new: bool = False) -> int:
        self._step("open_file", path)
        name, there = str(path), str(path) in self.names
        descriptor: int = self._real["open_file"](path, append=append, new=new)
        if not there:
            self.files.append(Content())
            self._rename((name, len(self.files) - 1))
        number = self.names[name]
        if not os.fstat(descriptor).st_size and self.files[number].now:
            self.files[number] = replace(self.files[number], now=b"", writes=(0,))
        appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        self._opened[descriptor] = [number, -1 if appends else 0]
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._step("write")
        if self.full is not None and self.calls >= self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.short in (0, self.calls):
            data = data[: max(1, len(data) // 2)]
        opened = self._opened[descriptor]
        file = self.files[opened[0]]
        at = len(file.now) if opened[1] < 0 else opened[1]
        size: int = self._real["write"](descriptor, data)
        self.files[opened[0]] = file.written(at, bytes(data))
        if opened[1] >= 0:
            opened[1] += size
        return size

    def truncate(self, descriptor: int, size: int) -> None:
        self._step("truncate")
        self._real["truncate"](descriptor, size)
        number = self._opened[descriptor][0]
        self.files[number] = replace(self.files[number], now=self.files[number].now[:size], writes=(0,))

    def sync(self, descriptor: int) -> None:
        number = self._opened[descriptor][0]
        try:
            self._step("sync")
        except OSError:
            self.files[number] = replace(self.files[number], forgotten=True)
            raise
        if not self.files[number].forgotten:
            self.files[number] = replace(self.files[number], synced=self.files[number].now, writes=())

    def close(self, descriptor: int) -> None:
        try:
            self._step("close")
        finally:
            self._opened.pop(descriptor, None)
            self._real["close"](descriptor)

    def rename(self, old: Path, new: Path) -> None:
        self._step("rename", new)
        self._real["rename"](old, new)
        self._rename((str(old), None), (str(new), self.names[str(old)]))

    def unlink(self, path: Path) -> None:
        self._step("unlink", path)
        self._real["unlink"](path)
        if str(path) in self.names:
            self._rename((str(path), None))

    def mkdir(self, path: Path) -> None:
        self._step("mkdir", path)
        if str(path) not in self.names:
            self._real["mkdir"](path)
            self._rename((str(path), FOLDER))

    def rmdir(self, path: Path) -> None:
        self._step("rmdir", path)
        self._real["rmdir"](path)
        self._rename((str(path), None))

    def sync_folder(self, folder: Path) -> None:
        self._step("sync_folder")
        for change in (change for change in self.pending if change.folder == str(folder)):
            _apply(self.synced_names, change)
        self.pending = [change for change in self.pending if change.folder != str(folder)]

    def _rename(self, *names: tuple[str, int | None]) -> None:
        change = Change(os.path.dirname(names[0][0]), names)  # noqa: PTH120
        _apply(self.names, change)
        self.pending.append(change)

    def _step(self, operation: str, path: Path | None = None) -> None:
        if self.off:
            raise PowerCut
        self.calls += 1
        self.counts[operation] += 1
        if path is not None:
            self.seen.add(path.name)
        if self.history is not None:
            self.history.append(self.moment())
        if self.calls == self.stop_at:
            self.off = True
            raise PowerCut
        if (number := self.errors.get(self.calls)) is not None:
            raise OSError(number, os.strerror(number))

    # Crashes

    def moment(self) -> Moment:
        """Return the disk as it is."""
        return Moment(
            list(self.files),
            dict(self.synced_names),
            list(self.pending),
            frozenset(self.promised),
            str(self.root),
        )

    def state(self) -> State:
        """Return what the product sees."""
        return {
            path: None if number == FOLDER else self.files[number].now for path, number in self.names.items()
        }

    def restore(self, state: State, promised: frozenset[str] = frozenset()) -> None:
        """Start the machine again with this on its disk; nothing fails from now on."""
        for descriptor in list(self._opened):
            self._real["close"](descriptor)
        before = self.state()
        for path in sorted(before.keys() - state.keys(), reverse=True):
            if before[path] is None:
                os.rmdir(path)  # noqa: PTH106
            else:
                os.unlink(path)  # noqa: PTH108
        for path in sorted(state):
            if (content := state[path]) is None:
                if path not in before:
                    os.mkdir(path)  # noqa: PTH102
            elif before.get(path) != content:
                with open(path, "wb", 0) as file:  # noqa: PTH123
                    file.write(content)
        self.files = [Content(content, content) for content in state.values() if content is not None]
        numbers = iter(range(len(self.files)))
        self.names = {path: FOLDER if content is None else next(numbers) for path, content in state.items()}
        self.synced_names, self.pending = dict(self.names), []
        self.promised = set(promised)
        self.stop_at = self.full = self.short = self.history = None
        self.errors, self._opened = {}, {}
        self.calls, self.off = 0, False


def _apply(names: dict[str, int], change: Change) -> None:
    for path, number in change.names:
        if number is None:
            names.pop(path, None)
        else:
            names[path] = number


@contextmanager
def here() -> Iterator[Path]:
    """An empty folder, in memory where the system has such."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="touchstone-drill-") as folder:
        yield Path(folder)
