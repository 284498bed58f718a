"""The progress line: items done, speed, time left and errors so far, while pytest writes its own output.

On a terminal it is one line right below the line that pytest is writing, kept there by a thread of the
controlling process:

    draw     ESC D (down, scrolling if need be), up          room below, the column stays
             ESC 7, down, CR, clear line, text, ESC 8        the text; the cursor is back where pytest left it
    erase    ESC 7, down, CR, clear line, ESC 8

``paused()`` erases the line, lets pytest write and draws it again. Elsewhere (a file, a pipe, a dumb
terminal) it is a plain line, at most every 10 seconds and rarer in long runs.

The thread writes to a duplicate of the terminal's file descriptor, because pytest's capture redirects the
original while a test runs. It never raises: when writing fails it falls silent.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from harness.reports.tally import Speed, Tally
from harness.reports.wording import duration

DRAW: Final = "\x1bD\x1b[A\x1b7\x1b[B\r\x1b[2K{text}\x1b8"
ERASE: Final = "\x1b7\x1b[B\r\x1b[2K\x1b8"

LIVE_INTERVAL: Final = 0.5
PLAIN_INTERVAL: Final = 10.0
PLAIN_LINES: Final = 30
"""A plain run gets a line every 1/30 of the time it has taken so far, if that is more than
``PLAIN_INTERVAL``."""


class Progress:
    """Shows how far a run is. ``column`` says how wide pytest's current line is, where that can be known."""

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
        self._tally = Tally(directory)
        self._total = total
        self._stream = stream
        self._live = bool(is_tty) and os.environ.get("TERM", "dumb") != "dumb"
        self._clock = clock
        self._interval = interval or (LIVE_INTERVAL if self._live else PLAIN_INTERVAL)
        self._column = column
        self._descriptor: int | None = None
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._text = ""
        self._shown = self._silent = False
        # Nothing is drawn before pytest's first report: until then it writes headers without telling anybody.
        self._armed = False

    def start(self) -> None:
        """Begins to count and, on a terminal, to draw once ``paused()`` was used; called once, while nothing
        is captured."""
        self._tally.update()
        self._began = self._last = self._counted = self._clock()
        self._speed = Speed(self._began, self._tally.done)
        self._text = self._line(self._began)
        try:
            self._descriptor = os.dup(self._stream.fileno())
        except (OSError, ValueError):
            self._descriptor = None  # no real file, as in tests: its own write() will do
        self._thread = threading.Thread(target=self._run, name="touchstone-progress", daemon=True)
        self._thread.start()

    def set_total(self, total: int) -> None:
        """Tells how many items there are, when that is known only later."""
        self._total = total

    def stop(self) -> None:
        """Ends the thread and leaves no trace on a terminal; calling it again does nothing."""
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

    @property
    def live(self) -> bool:
        """Whether it is a line that moves with pytest's, so that ``paused()`` matters."""
        return self._live

    @contextmanager
    def paused(self) -> Generator[None]:
        """Keeps the line away while pytest writes; every write of pytest's during a run belongs inside."""
        if not self._live or self._silent:
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

    def tick(self) -> None:
        """Counts and shows; what the thread does at every interval."""
        with self._lock:
            self._tally.update()
            now = self._counted = self._clock()
            self._text = text = self._line(now)
            if self._live:
                self._draw()
            elif now - self._last >= max(self._interval, (now - self._began) / PLAIN_LINES):
                self._last = now
                # pytest may be in the midst of a line of dots
                start = "" if self._column is not None and self._column() == 0 else "\n"
                self._write(f"{start}{text}\n")

    def _run(self) -> None:
        while not self._ending.wait(self._interval):
            self.tick()

    def _line(self, now: float) -> str:
        done = min(self._tally.done, self._total)
        rate = self._speed.rate(now, self._tally.done)
        share = f" ({done / self._total:.0%})" if self._total else ""
        parts = [f"touchstone: {done}/{self._total} items{share}"]
        if done >= self._total:
            parts.append("all answered")
        elif rate is None:
            parts.append(f"{duration(now - self._began)} since the start")
        else:
            parts += [f"{_speed(rate)}", f"{duration((self._total - done) / rate)} left"]
        faults = self._tally.faults
        parts.append(f"{faults} error{'' if faults == 1 else 's'}")
        return ", ".join(parts)

    def _draw(self) -> None:
        if not self._armed or self._ending.is_set():
            return
        width = self._width()
        column = self._column() if self._column is not None else 1
        # In the last column a terminal wraps with the next character only; moving the cursor would undo that.
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


def _speed(rate: float) -> str:
    if rate >= 10:
        return f"{rate:.0f} items/s"
    return f"{rate:.1f} items/s" if rate >= 0.1 else f"{rate * 60:.1f} items/min"
