"""The progress line: how far a run is, and the time that it still takes.

    touchstone: 76/1184 items, gsm8k: 12 of 32 texts, 1,840 tokens/s, about 3:40 left

On a terminal it is one line right below the line that pytest is writing; a thread of the controlling process keeps it
there. (``rich.progress`` redraws whole lines alone, and pytest's line of dots grows.)

    draw     ESC D (down, scrolling if need be), up          room below, the column stays
             ESC 7, down, CR, clear line, text, ESC 8        the text; the cursor is back where pytest left it
    erase    ESC 7, down, CR, clear line, ESC 8

``paused()`` erases the line, lets pytest write and draws it again. Elsewhere (a file, a pipe, a dumb
terminal) it is a plain line, at most every 20 seconds and rarer in long runs. Where that ends a line of pytest's, it
goes on below at its place, after the name of its file: ``continued()``.

The thread writes to a duplicate of the terminal's file descriptor, because pytest's capture redirects the
original while a test runs. It never raises: when writing fails it falls silent.

Finished items are counted by reading what the journal's files have gained; what goes on, and the time left, come from
the files in which all processes tell of their work (``results.live``). That is the same with and without xdist.

The letter of pytest's dots line and the word of its ``-v`` carry the score of an item.

    letter   meaning                          word
    +        1 (right)                        1.00
    -        0 (wrong)                        0.00
    0 to 9   between 0 and 1: its tenth       0.83
    ~        any other number, or no score    -12.41, SCORED

The category stays "passed": any other would turn pytest's bar yellow.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Final, TextIO

from pytest_touchstone.core.text import count
from pytest_touchstone.reports.formatting import duration
from pytest_touchstone.reports.time_left import time_left, whole
from pytest_touchstone.results.journal import journal_files
from pytest_touchstone.results.live import (
    STALE,
    PartProgress,
    ProcessProgress,
    Workload,
    read_progress,
    read_workload,
)
from pytest_touchstone.statistics.units import fixed

DRAW: Final = "\x1bD\x1b[A\x1b7\x1b[B\r\x1b[2K{text}\x1b8"
ERASE: Final = "\x1b7\x1b[B\r\x1b[2K\x1b8"

LIVE_INTERVAL: Final = 0.5
PLAIN_INTERVAL: Final = 20.0
WINDOW: Final = 6.0
"""Seconds over which the speed is taken."""

NAME: Final = 24
"""Characters of a name that are shown."""

NARROWEST: Final = 40
USUAL: Final = 80
"""Columns of a plain line where the terminal has fewer than it needs; as in pytest."""

PLAIN_LINES: Final = 20
"""A plain run gets a line every 1/20 of the time it has taken so far, if that is more than
``PLAIN_INTERVAL``."""


class Progress:
    """The progress of a run.

    ``column`` returns the width of pytest's current line, and ``current`` that line, if they can be known. ``live``
    says whether it is a line that moves with pytest's, so that ``paused()`` matters, else ``continued()``.
    """

    def __init__(
        self,
        directory: Path,
        total: int,
        stream: TextIO,
        is_tty: bool,
        *,
        clock: Callable[[], float] = time.monotonic,
        interval: float | None = None,
        column: Callable[[], int] | None = None,
        current: Callable[[], str] = lambda: "",
        processes: int = 1,
    ) -> None:
        self._directory, self._processes = directory, processes
        self._load: Workload | None = None
        self._seen: deque[tuple[float, int]] = deque()
        self._tally = Tally(directory)
        self._total = total
        self._stream = stream
        self.live = bool(is_tty) and os.environ.get("TERM", "dumb") != "dumb"
        self._clock = clock
        self._interval = interval or (LIVE_INTERVAL if self.live else PLAIN_INTERVAL)
        self._column, self._current = column, current
        self._ended = ""  # pytest's line where a plain line has ended it, and it has not gone on
        self._descriptor: int | None = None
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._text = ""
        self._shown = self._silent = False
        # Nothing is drawn before pytest's first report: until then it writes headers without calling any
        # hook.
        self._armed = False

    def start(self) -> None:
        """Begin to count and, on a terminal, to draw after the first ``paused()``; called once, while nothing is
        captured."""
        self._tally.update()
        self._began = self._last = self._counted = self._clock()
        self._text = self._line(self._began)
        try:
            self._descriptor = os.dup(self._stream.fileno())
        except (OSError, ValueError):
            self._descriptor = None  # no real file, as in tests: its own write() will do
        self._thread = threading.Thread(target=self._run, name="touchstone-progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and leave no trace on a terminal; calling it again does nothing."""
        if self._thread is None:
            return
        self._ending.set()
        self._thread.join(timeout=5)
        with self._lock:
            self._erase()
            self._silent, self._thread = True, None
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    @contextmanager
    def paused(self) -> Generator[None]:
        """Keep the line away while pytest writes; every write of pytest's during a run belongs inside."""
        if not self.live or self._silent:
            yield
            return
        with self._lock:
            self._erase()
            try:
                yield
            finally:
                self._armed = True
                self._flush()
                if self._clock() - self._counted > 2 * self._interval:
                    # C code that keeps the interpreter lock (a tokenizer, a tagger) starves the thread
                    self.tick()
                else:
                    self._draw()

    @contextmanager
    def continued(self, *, writes: bool) -> Generator[None]:
        """Let pytest go on with its line below a plain one, if it ``writes`` to it now."""
        with self._lock:
            if writes and self._ended:
                if self._ended == self._current():
                    self._write(continuation(self._ended))
                self._ended = ""
            try:
                yield
            finally:
                self._flush()

    def tick(self) -> None:
        """Count and show; the thread calls this at every interval."""
        with self._lock:
            self._tally.update()
            now = self._counted = self._clock()
            self._text = text = self._line(now)
            if self.live:
                self._draw()
            elif now - self._last >= max(self._interval, (now - self._began) / PLAIN_LINES):
                self._last = now
                # pytest may be in the middle of a line of dots
                line, here = self._current(), self._column is not None and self._column() == 0
                start = "" if here or (line and line == self._ended) else "\n"
                self._ended = line
                self._write(f"{start}{text}\n")

    def _run(self) -> None:
        while not self._ending.wait(self._interval):
            self.tick()

    def _line(self, now: float) -> str:
        done, total = min(self._tally.done, self._total), self._total
        now_doing, speed, left = list[str](), None, None
        if done < total:
            with suppress(Exception):  # files that somebody else has written there; a line must not end a run
                now_doing, speed, left = self._live(time.time())
        goes_on = f"{duration(now - self._began)} since the start" if left is None else remaining(left)
        width = self._width()
        if not self.live and width < NARROWEST:
            width = USUAL + 1
        room = width - 1 if self.live else width
        texts = [*([f"{speed:,.{0 if speed >= 10 else 1}f} tokens/s"] if speed else []), goes_on]
        return line((done, total), now_doing, texts, self._tally.faults, room)

    def _live(self, now: float) -> tuple[list[str], float | None, float | None]:
        """Return what is happening, the tokens per second, and the seconds that are left."""
        states = read_progress(self._directory)
        if self._load is None or len(states) < self._processes:
            self._load = read_workload(self._directory)
        if not states or self._load is None:
            return [], None, None
        self._seen.append((now, sum(state.tokens for state in states)))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()
        seconds, tokens = (last - first for first, last in zip(self._seen[0], self._seen[-1], strict=True))
        speed = tokens / seconds if seconds > 1.0 and tokens > 0 else None
        return doing(self._load, states, now), speed, time_left(self._load, states, self._processes)

    def _draw(self) -> None:
        if not self._armed or self._ending.is_set():
            return
        width = self._width()
        column = self._column() if self._column is not None else 1
        # In the last column a terminal wraps only at the next character; moving the cursor would undo that.
        if column and column % width == 0:
            self._erase()
            return
        self._write(DRAW.format(text=self._text[: width - 1]))
        self._shown = True

    def _erase(self) -> None:
        if self._shown:
            self._write(ERASE)
            self._shown = False

    def _flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._silent = True

    def _write(self, text: str) -> None:
        if self._silent:
            return
        try:
            if self._descriptor is None:
                self._stream.write(text)
                self._stream.flush()
            else:
                os.write(self._descriptor, text.encode("ascii"))
        except (OSError, ValueError):
            self._silent = True

    def _width(self) -> int:
        try:
            return os.get_terminal_size(-1 if self._descriptor is None else self._descriptor).columns or 80
        except (OSError, ValueError):
            return shutil.get_terminal_size().columns or 80


def continuation(line: str) -> str:
    """Return the beginning of a line that goes on where another one ended: what it is about, and then spaces."""
    about = line[: line.find(" ") + 1]
    return about.ljust(len(line))


# The text


def line(items: tuple[int, int], what: Sequence[str], then: Sequence[str], faults: int, room: int) -> str:
    """Return the line in so many characters, if that can be: of ``what`` is happening, and of the speed ``then``, parts
    are left out first."""
    done, total = items
    errors = [count(faults, "error")] if faults else []
    for noun, most, first, rest in (
        (" items", 99, 0, True),
        ("", 99, 0, True),
        ("", 2, 0, True),
        ("", 1, 0, True),
        ("", 1, -1, True),
        ("", 1, -1, False),
        ("", 0, -1, False),
    ):
        more = [f"{len(what) - most} more"] if rest and len(what) > most else []
        shown = ["; ".join([*what[:most], *more])] if what and most else []
        parts = [f"{done}/{total}{noun}", *shown, *then[first:]]
        if done >= total:
            parts = [f"{done}/{total} items", "all answered"]
        text = f"touchstone: {', '.join([*parts, *errors])}"
        if len(text) <= room:
            break
    # What a terminal may not show as one character is replaced.
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)


def remaining(seconds: float) -> str:
    """Return the time left in words; a longer one is rounded, as nobody knows it so well."""
    step = 1 if seconds < 30 else 5 if seconds < 300 else 60
    return f"about {duration(max(1.0, step * round(seconds / step)))} left"


def doing(load: Workload, states: Sequence[ProcessProgress], now: float) -> list[str]:
    """Return what all processes do, each benchmark once; where something holds them up, that alone."""
    states_now = [state for state in states if now - state.at <= STALE]
    if troubles := [state.trouble for state in states_now if state.trouble]:
        return list(dict.fromkeys(troubles))
    texts = []
    for state in states_now:
        if state.doing == "loading":
            texts.append(f"loading {short(state.checkpoint)}")
        for checkpoint, benchmark in dict.fromkeys(
            (load.parts[number].checkpoint, load.parts[number].benchmark) for number in state.open
        ):
            texts.append(_benchmark(load, states, checkpoint, benchmark, state.doing))
    return list(dict.fromkeys(texts))


def _benchmark(
    load: Workload, states: Sequence[ProcessProgress], checkpoint: str, benchmark: str, what: str
) -> str:
    """Return how far a benchmark is with what a process does there."""
    parts = {
        number: part
        for number, part in enumerate(load.parts)
        if (part.checkpoint, part.benchmark) == (checkpoint, benchmark)
    }
    progress = reduce(PartProgress.plus, (whole(states, number) for number in parts))
    items = sum(part.items for part in parts.values())
    done, of, noun = progress.computed + progress.skipped, items, "items"
    if what in ("programs", "grading"):
        done, noun = progress.ended, "graded" if what == "grading" else "items, programs run"
    elif any(part.texts for part in parts.values()):
        done, of = progress.texts, round(sum(part.items * part.texts for part in parts.values()))
        noun = "texts"
    name = f"{short(checkpoint)} {short(benchmark)}" if len(load.parameters) > 1 else short(benchmark)
    return f"{name}: {int(done + 1e-6):,} of {max(of, int(done + 1e-6)):,} {noun}"


def short(name: str) -> str:
    """Return a name as it is shown: of a long one the end, where its step is."""
    return name if len(name) <= NAME else f"..{name[-NAME + 2 :]}"


# The letter and the word of an item


UNGRADED: Final = "~"

LETTERS: Final = "+ right   - wrong   (of partial scores, 4 from 0.4 to 0.5; ~ any other)"
"""The letters of pytest's dots line, in words."""


def item_status(primary: float | None) -> tuple[str, str]:
    """Return the letter and the word by which pytest shows an item with this primary score; None without such a
    score."""
    if primary is None or not math.isfinite(primary):
        return UNGRADED, "SCORED"
    # The tenth below: 0.99 is a 9, and never looks like a full score.
    letter = {0.0: "-", 1.0: "+"}.get(primary) or (str(int(primary * 10)) if 0 < primary < 1 else UNGRADED)
    return letter, fixed(primary, 2) if abs(primary) < 1e6 else f"{primary:.2e}"


# The items that have ended


FAULTS: Final = (b"error", b"timeout", b"lost")
_HEAD: Final = re.compile(rb'"item":\s*"((?:[^"\\]|\\.)*)".*?"status":\s*"(\w+)"')


class Tally:
    """The number of items that have a record, and of those that ended in a fault.

    Only whole lines count. Of each line only the item's node id and status are read, which precede everything that a
    benchmark or a model wrote.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: dict[Path, int] = {}
        self._status: dict[bytes, bytes] = {}

    @property
    def done(self) -> int:
        """Return the items with at least one record; an item that ran twice counts once."""
        return len(self._status)

    @property
    def scored(self) -> int:
        """Return the items whose last record says that they are scored."""
        return sum(one == b"scored" for one in self._status.values())

    @property
    def faults(self) -> int:
        """Return the items whose last record says error, timeout or lost."""
        return sum(one in FAULTS for one in self._status.values())

    def update(self) -> None:
        """Read what was appended since the last call; a file that cannot be read is left for the next call."""
        for path in journal_files(self._directory):
            try:
                self._read(path)
            except OSError:
                continue

    def _read(self, path: Path) -> None:
        offset = self._offsets.get(path, 0)
        with path.open("rb") as shard:
            shard.seek(offset)
            for line in shard:
                if not line.endswith(b"\n"):
                    break  # still being written
                offset += len(line)
                if found := _HEAD.search(line):
                    self._status[found[1]] = found[2]
        self._offsets[path] = offset
