"""The progress line: how far a run is, and the time that it still takes.

    touchstone: --------          76/1184 items, 1,840 tokens/s 0:03:40 left, gsm8k

What it says is laid out by ``rich.progress``. On a terminal it is one line right below the line that pytest is writing;
a thread of the controlling process keeps it there. (Rich's own display redraws whole lines, and pytest's line of dots
grows.)

    draw     ESC D (down, scrolling if need be), up          room below, the column stays
             ESC 7, down, CR, clear line, text, ESC 8        the text; the cursor is back where pytest left it
    erase    ESC 7, down, CR, clear line, ESC 8

``paused()`` erases the line, lets pytest write and draws it again. Elsewhere (a file, a pipe, a dumb terminal) it is a
plain line, at most every 20 seconds and rarer in long runs; one that came into a line of pytest's sets ``broke_line``.

The thread writes to a duplicate of the terminal's file descriptor, because pytest's capture redirects the
original while a test runs. It never raises: when writing fails it falls silent.

How many items have ended, what goes on, and the work left come from the files in which all processes tell of their
work (``results.run_directory``). That is the same with and without xdist.

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
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

from pytest_touchstone.core.text import count
from pytest_touchstone.document.formatting import cut_name
from pytest_touchstone.results.run_directory import ProcessProgress, read_progress
from pytest_touchstone.statistics.comparison import fixed

DRAW: Final = "\x1bD\x1b[A\x1b7\x1b[B\r\x1b[2K{text}\x1b8"
ERASE: Final = "\x1b7\x1b[B\r\x1b[2K\x1b8"

LIVE_INTERVAL: Final = 0.5
PLAIN_INTERVAL: Final = 20.0
WINDOW: Final = 300.0
"""Seconds over which speeds are taken: texts of a batch may end minutes apart."""

NAME: Final = 24
"""Characters of a name that are shown."""

USUAL: Final = 80
"""Columns of a plain line where the terminal has fewer, as in pytest."""

PLAIN_LINES: Final = 20
"""A plain run gets a line every 1/20 of the time it has taken so far, if that is more than
``PLAIN_INTERVAL``."""


class ProgressLine:
    """The progress line of a run.

    ``column`` returns the width of pytest's current line, if it can be known. ``live`` says whether the line moves with
    pytest's; ``broke_line`` whether a plain one has ended a line that pytest has not finished.
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
    ) -> None:
        self._directory = directory
        self.live = bool(is_tty) and os.environ.get("TERM", "dumb") != "dumb"
        self.broke_line = False
        self._output = _OutputStream(stream)
        self._layout = ProgressText(total, stream, live=self.live, clock=clock)
        self._clock = clock
        self._interval = interval or (LIVE_INTERVAL if self.live else PLAIN_INTERVAL)
        self._column = column
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._text = ""
        self._shown = False
        # Nothing is drawn before pytest's first report: until then it writes headers without calling any
        # hook.
        self._armed = False

    def start(self) -> None:
        """Start counting and drawing; call once, while pytest captures nothing.

        On a terminal the line appears after the first ``paused()``.
        """
        self._began = self._last = self._clock()
        self._count()
        self._output.open()
        self._thread = threading.Thread(target=self._run, name="touchstone-progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and erase the line; further calls do nothing."""
        if self._thread is None:
            return
        self._ending.set()
        self._thread.join(timeout=5)
        with self._lock:
            self._erase()
            self._thread = None
            self._output.close()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Erase the line while pytest writes. Every write of pytest during a run belongs inside."""
        with self._lock:
            self._erase()
            try:
                yield
            finally:
                self._armed = True
                self._output.flush()
                if self.live and self._clock() - self._counted > 2 * self._interval:
                    # C code that keeps the interpreter lock (a tokenizer, a tagger) starves the thread
                    self.tick()
                else:
                    self._draw()

    def tick(self) -> None:
        """Update the counts and redraw the line. The thread calls this method at every interval."""
        with self._lock:
            self._count()
            now = self._counted
            if self.live:
                self._draw()
            elif now - self._last >= max(self._interval, (now - self._began) / PLAIN_LINES):
                self._last = now
                # pytest may be in the middle of a line of dots
                self.broke_line = self._column is None or self._column() > 0
                self._output.write(f"\n{self._text}" if self.broke_line else f"{self._text}\n")

    def _run(self) -> None:
        while not self._ending.wait(self._interval):
            self.tick()

    def _count(self) -> None:
        self._counted = self._clock()
        for states in (read_progress(self._directory), []):
            with suppress(Exception):  # files that somebody else has written there; a line must not end a run
                self._text = self._layout.render(states, self._output.width())
                break

    def _draw(self) -> None:
        if not self.live or not self._armed or self._ending.is_set():
            return
        width = self._output.width()
        column = self._column() if self._column is not None else 1
        # In the last column a terminal wraps only at the next character; moving the cursor would undo that.
        if column and column % width == 0:
            self._erase()
            return
        self._output.write(DRAW.format(text=self._text[: width - 1]))
        self._shown = True

    def _erase(self) -> None:
        if self._shown:
            self._output.write(ERASE)
            self._shown = False


class ProgressText:
    """The text of the progress line: counts, speed and the time left. On a live line a bar fills the width."""

    def __init__(self, total: int, stream: TextIO, *, live: bool, clock: Callable[[], float]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self._total = total
        self._live = live
        self._console = Console(file=stream, color_system=None)
        self._progress = Progress(
            TextColumn("touchstone:"),
            *([BarColumn(None)] if live else []),
            TextColumn("{task.description}", markup=False),
            TimeRemainingColumn(),
            TextColumn("left{task.fields[doing]}", markup=False, table_column=Column(overflow="ellipsis")),
            console=self._console,
            get_time=clock,
            speed_estimate_period=WINDOW,
        )
        self._work = self._progress.add_task("", total=total, doing="")
        self._rate = self._progress.add_task("", total=None, visible=False)

    def render(self, states: Sequence[ProcessProgress], width: int) -> str:
        """Return the line for the current progress of all processes, fitted to ``width`` columns."""
        progress = self._progress
        done = min(sum(state.ended for state in states), self._total)
        doing = "".join(f", {name}" for name in dict.fromkeys(state.doing for state in states) if name)
        tokens = sum(state.tokens for state in states)
        work = max((state.work for state in states), default=0.0)
        progress.update(self._rate, completed=tokens or done)
        speed = progress.tasks[self._rate].speed
        texts = [f"{done}/{self._total} items"]
        texts += (
            [f"{speed:,.{0 if speed >= 10 else 1}f} {'tokens' if tokens else 'items'}/s"] if speed else []
        )
        texts += [count(faults, "error")] if (faults := sum(state.faults for state in states)) else []
        # What a terminal may not show as one character is replaced.
        doing = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in doing)
        progress.update(
            self._work,
            completed=sum(state.done for state in states) if work else done,
            total=work or self._total,
            description=", ".join(texts),
            doing=doing,
        )
        self._console.width = width - 1 if self._live else max(width, USUAL)
        with self._console.capture() as capture:
            self._console.print(progress.get_renderable())
        return capture.get().partition("\n")[0].rstrip()


class _OutputStream:
    """A stream that falls silent when writing fails.

    Once open it writes to a duplicate of the file descriptor, because pytest's capture redirects the original.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor: int | None = None
        self._silent = False

    def open(self) -> None:
        with suppress(OSError, ValueError):  # no real file, as in tests: its own write() will do
            self._descriptor = os.dup(self._stream.fileno())

    def close(self) -> None:
        self._silent = True
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._silent = True

    def write(self, text: str) -> None:
        if self._silent:
            return
        try:
            if self._descriptor is None:
                self._stream.write(text)
                self._stream.flush()
            else:
                os.write(self._descriptor, text.encode(self._stream.encoding or "ascii", "replace"))
        except (OSError, ValueError):
            self._silent = True

    def width(self) -> int:
        try:
            return os.get_terminal_size(-1 if self._descriptor is None else self._descriptor).columns or 80
        except (OSError, ValueError):
            return shutil.get_terminal_size().columns or 80


def short_name(name: str) -> str:
    """Return a name shortened for the progress line."""
    return cut_name(name, NAME)


# The letter and the word of an item


UNGRADED: Final = "~"

LETTERS: Final = {"+": "right", "-": "wrong", UNGRADED: "any other score, or none"}
"""The letters of pytest's dots line but for digits, in words."""


def item_status(primary: float | None) -> tuple[str, str]:
    """Return letter and word for an item in pytest's output, by its primary score."""
    if primary is None or not math.isfinite(primary):
        return UNGRADED, "SCORED"
    # The tenth below: 0.99 is a 9, and never looks like a full score.
    letter = {0.0: "-", 1.0: "+"}.get(primary) or (str(int(primary * 10)) if 0 < primary < 1 else UNGRADED)
    return letter, fixed(primary, 2) if abs(primary) < 1e6 else f"{primary:.2e}"


def letters_text(primaries: Iterable[float]) -> str:
    """Explain the letters of items with the given primary scores."""
    occurring = {item_status(primary)[0] for primary in primaries}
    texts = [f"{letter} {meaning}" for letter, meaning in LETTERS.items() if letter in occurring]
    if digits := sorted(occurring - LETTERS.keys()):
        texts.append(f"{' '.join(digits)} tenths of a partial score")
    return "   ".join(texts)
