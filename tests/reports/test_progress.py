"""The progress line never disturbs what pytest writes, counts what the journal holds, and never raises."""

from __future__ import annotations

import io
import math
import os
import re
import threading
import time
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.reports.progress import ProgressLine, ProgressText, item_status, letters_text
from pytest_touchstone.results.run_directory import ProcessProgress, write_progress
from tests.support.lines import missing

NEVER = 3600.0


class Terminal(io.TextIOBase):
    """A terminal as small as the progress line needs: text, line feeds, and the control sequences it uses.

    Like a real one it wraps only when a character follows the one in the last column. ``lines`` is everything
    that was ever shown, scrolled off or not.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.lines = [""]
        self.top = self.row = self.column = 0
        self.pending = False
        self.saved = (0, 0, False)

    def write(self, text: str) -> int:
        index = 0
        while index < len(text):
            for sequence, action in self.ACTIONS.items():
                if text.startswith(sequence, index):
                    action(self)
                    index += len(sequence)
                    break
            else:
                self.put(text[index])
                index += 1
        return len(text)

    def put(self, character: str) -> None:
        assert character.isprintable(), repr(character)
        if self.pending:
            self.feed()
        line = self.lines[self.top + self.row].ljust(self.column)
        self.lines[self.top + self.row] = line[: self.column] + character + line[self.column + 1 :]
        self.pending = self.column == self.width - 1
        self.column = min(self.column + 1, self.width - 1)

    def feed(self) -> None:
        self.index()
        self.column = 0

    def index(self) -> None:
        self.pending = False
        if self.row == self.height - 1:
            self.top += 1
        else:
            self.row += 1
        while len(self.lines) <= self.top + self.row:
            self.lines.append("")

    def up(self) -> None:
        self.row, self.pending = max(0, self.row - 1), False

    def down(self) -> None:
        self.row, self.pending = min(self.height - 1, self.row + 1), False
        while len(self.lines) <= self.top + self.row:
            self.lines.append("")

    def home(self) -> None:
        self.column, self.pending = 0, False

    def clear(self) -> None:
        self.lines[self.top + self.row] = ""

    def save(self) -> None:
        self.saved = (self.row, self.column, self.pending)

    def restore(self) -> None:
        self.row, self.column, self.pending = self.saved

    ACTIONS = {  # noqa: RUF012
        "\x1bD": index,
        "\x1b[A": up,
        "\x1b[B": down,
        "\x1b[2K": clear,
        "\x1b7": save,
        "\x1b8": restore,
        "\r": home,
        "\n": feed,
    }

    @property
    def shown(self) -> list[str]:
        lines = [line.rstrip() for line in self.lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def on_terminal(directory, stream, total=10, **more) -> ProgressLine:
    progress = ProgressLine(directory, total, stream, True, interval=NEVER, **more)
    progress.start()
    return progress


@pytest.fixture(autouse=True)
def terminal_of_20_columns(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")


writes = st.lists(
    st.one_of(st.text("abc", min_size=1, max_size=50), st.just("\n"), st.just("tick")),
    min_size=1,
    max_size=40,
)


@given(writes=writes, height=st.integers(2, 6))
def test_pytests_own_output_is_the_same_with_and_without_the_line(writes, height):
    plain, shared = Terminal(40, height), Terminal(40, height)
    line = ""
    with mock.patch.dict(os.environ, {"TERM": "xterm", "COLUMNS": "40"}):
        progress = on_terminal(mock.MagicMock(), shared, column=lambda: len(line))
        for text in writes:
            if text == "tick":
                progress.tick()
                continue
            with progress.paused():
                plain.write(text)
                shared.write(text)
                line = "" if text == "\n" else line + text
        progress.stop()
    assert shared.shown == plain.shown


def test_the_line_stands_right_below_the_one_pytest_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal(60, 3)
    progress = on_terminal(tmp_path, terminal)
    for _ in range(5):
        with progress.paused():
            terminal.write("dots...\n")
    with progress.paused():
        terminal.write("more")
    above, line = terminal.shown[-2:]
    assert above == "more"
    assert re.fullmatch("touchstone: +0/10 items -:--:-- left", line)
    progress.stop()
    assert terminal.shown[-1] == "more"


def test_nothing_is_drawn_before_pytests_first_report(tmp_path):
    terminal = Terminal(40, 5)
    progress = on_terminal(tmp_path, terminal)
    progress.tick()
    assert terminal.shown == []
    progress.stop()


def test_it_shows_items_their_rate_the_time_left_and_errors(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    now = [0.0]
    terminal = Terminal(100, 5)
    progress = on_terminal(tmp_path, terminal, total=100, clock=lambda: now[0])
    with progress.paused():
        pass
    write_progress(tmp_path, ProcessProgress(who="gw0", ended=12, faults=2))
    write_progress(tmp_path, ProcessProgress(who="gw1", ended=8))
    now[0] = 10.0
    progress.tick()
    assert not missing(terminal.shown[-1], "20/100 items", "2 errors", "-:--:-- left")
    write_progress(tmp_path, ProcessProgress(who="gw1", ended=28))
    now[0] = 20.0
    progress.tick()
    assert not missing(terminal.shown[-1], "40/100 items", "2.0 items/s", "2 errors", "0:00:30 left")
    write_progress(tmp_path, ProcessProgress(who="gw1", ended=88))
    progress.tick()
    assert not missing(terminal.shown[-1], "100/100 items", "8.0 items/s", "2 errors", "0:00:00 left")
    progress.stop()


def plain_lines(directory, seconds: list[float], column=None) -> str:
    now = [0.0]
    stream = io.StringIO()
    progress = ProgressLine(directory, 10, stream, False, clock=lambda: now[0], column=column)
    progress.start()
    for now[0] in seconds:
        with progress.paused():
            progress.tick()
    progress.stop()
    return stream.getvalue()


def test_a_short_run_into_a_file_has_no_lines(tmp_path):
    assert plain_lines(tmp_path, [1, 5, 19.9]) == ""


def test_a_file_gets_a_line_every_twenty_seconds_at_most(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = plain_lines(tmp_path, [1, 20, 22, 39, 41, 60.9, 61.1])
    assert [line for line in text.splitlines() if line] == ["touchstone: 0/10 items -:--:-- left"] * 3
    assert text.isascii()
    assert "\x1b" not in text


@pytest.mark.slow
def test_long_runs_get_rarer_lines(tmp_path):
    day = [float(second) for second in range(0, 86400, 100)]
    assert plain_lines(tmp_path, day).count("touchstone") < 200


def test_a_line_in_a_file_starts_on_a_line_of_its_own(tmp_path):
    assert plain_lines(tmp_path, [21], column=lambda: 5).startswith("\ntouchstone")
    assert plain_lines(tmp_path, [21], column=lambda: 0).startswith("touchstone")


def test_a_dumb_terminal_is_treated_as_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = io.StringIO()
    progress = on_terminal(tmp_path, stream)
    with progress.paused():
        progress.tick()
    progress.stop()
    assert stream.getvalue() == ""


def test_a_stream_that_breaks_silences_the_line_and_nothing_else(tmp_path):
    stream = io.StringIO()
    progress = on_terminal(tmp_path, stream)
    stream.close()
    with progress.paused():
        progress.tick()
    progress.stop()
    progress.stop()


def test_an_error_of_pytests_passes_through_and_the_line_comes_back(tmp_path):
    terminal = Terminal(40, 5)
    progress = on_terminal(tmp_path, terminal)
    with pytest.raises(KeyboardInterrupt), progress.paused():
        raise KeyboardInterrupt
    assert terminal.shown
    progress.stop()
    assert terminal.shown == []


def test_stopping_ends_the_thread_and_leaves_the_stream_open(tmp_path):
    with (tmp_path / "out").open("w") as file:
        progress = ProgressLine(tmp_path, 3, file, False, interval=0.01)
        progress.start()
        assert "touchstone-progress" in {thread.name for thread in threading.enumerate()}
        progress.stop()
        assert "touchstone-progress" not in {thread.name for thread in threading.enumerate()}
        file.write("still open")


def test_the_thread_draws_by_itself(tmp_path):
    drawn = threading.Event()

    class Noticing(io.StringIO):
        def write(self, text):
            if "1/3 items" in text:
                drawn.set()
            return super().write(text)

    progress = ProgressLine(tmp_path, 3, Noticing(), True, interval=0.01)
    progress.start()
    with progress.paused():
        write_progress(tmp_path, ProcessProgress(who="main", ended=1))
    assert drawn.wait(10)
    progress.stop()


def test_pytests_own_reports_refresh_the_line_when_the_thread_gets_no_turn(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    now = [0.0]
    terminal = Terminal(60, 5)
    progress = on_terminal(tmp_path, terminal, clock=lambda: now[0])
    write_progress(tmp_path, ProcessProgress(who="main", ended=1))
    with progress.paused():
        pass
    assert "0/10 items" in terminal.shown[-1]
    now[0] = 3 * NEVER
    with progress.paused():
        pass
    assert "1/10 items" in terminal.shown[-1]
    progress.stop()


def test_the_line_says_what_the_run_s_files_tell(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    now = [0.0]
    terminal = Terminal(90, 5)
    progress = on_terminal(tmp_path, terminal, total=32, clock=lambda: now[0])
    for now[0], done, tokens in ((1.0, 1.0, 0), (2.0, 4.0, 100), (3.0, 16.0, 1700)):
        states = [
            ProcessProgress(who=who, doing="gsm8k", work=32.0, done=done / 2, tokens=tokens)
            for who in ("gw0", "gw1")
        ]
        for state in states:
            write_progress(tmp_path, state)
        progress.tick()
    with progress.paused():
        pass
    shown = terminal.shown[-1]
    assert not missing(shown, "0/32 items", "3,200 tokens/s", "0:00:03 left", "gsm8k")
    progress.stop()


@pytest.mark.parametrize(
    "told",
    [
        "7",
        '{"schema": 1, "who": "main", "work": "x"}',
        '{"schema": 1, "who": "main", "work": 1e999, "done": -1e999}',
        '{"schema": 1, "who": "main", "tokens": [1]}',
    ],
)
def test_files_that_are_broken_leave_a_line_without_them(tmp_path, monkeypatch, told):
    (tmp_path / "details").mkdir()
    (tmp_path / "details" / "progress-main.json").write_text(told)
    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal(60, 5)
    progress = on_terminal(tmp_path, terminal)
    with progress.paused():
        pass
    assert terminal.shown[-1].startswith("touchstone:")
    assert terminal.shown[-1].endswith("0/10 items -:--:-- left")
    progress.stop()


@given(st.text(max_size=60), st.integers(0, 99_999), st.integers(50, 200))
def test_the_line_fits_whatever_a_benchmark_or_a_server_calls_itself(doing, done, width):
    progress = ProgressText(100_000, io.StringIO(), live=True, clock=time.monotonic)
    state = ProcessProgress(who="main", doing=doing, work=1e12, done=done * 1e7, tokens=done)
    text = progress.render([state], width)
    assert len(text) < width
    assert text.isprintable()


# The letter and the word that pytest shows of an item


@pytest.mark.parametrize(
    ("score", "letter", "word"),
    [
        (1.0, "+", "1.00"),
        (1, "+", "1.00"),
        (0.0, "-", "0.00"),
        (0.83, "8", "0.83"),
        (0.05, "0", "0.05"),
        (0.999, "9", "0.99"),
        (-12.414, "~", "-12.41"),
        (2.0, "~", "2.00"),
        (None, "~", "SCORED"),
        (math.nan, "~", "SCORED"),
    ],
)
def test_a_score_has_its_letter_and_its_word(score, letter, word):
    assert item_status(score) == (letter, word)


@given(st.floats())
def test_every_number_has_one_letter_and_a_short_or_plain_word(score):
    letter, word = item_status(score)
    assert len(letter) == 1
    assert 0 < len(word) < 12
    assert "nan" not in word
    assert "inf" not in word


def test_letters_are_explained_as_far_as_they_occur() -> None:
    assert letters_text([1.0, 0.0, 1.0]) == "+ right   - wrong"
    assert not missing(letters_text([0.83, 1.0, 0.41]), "+ right", "4 8 tenths")
    assert re.fullmatch(r"~ [^~+-]+", letters_text([-12.4]))
