"""Measure how well the progress line knows the time left: run pytest, note the line at every look, compare it with
the truth.

    python -m perf time_left [--cpu] [--json FILE] -- evals/ [any option of pytest]
    python -m perf time_left --replay FILE

It prints the time left after 25, 50 and 75 % of the run's time: as the line had it, the geometric middle where that
was a range, and the truth. The error of the middle is in per cent of the truth. The run ends with pytest's process, so
the time after the last answer counts too.

The file has the lines, and what they were made of: all that the processes told of themselves. ``--replay`` reckons the
time left from such a file again, by today's code.

With ``--cpu`` all clocks of the line are the process's own CPU time, for a machine on which others compute too; only
without xdist, and with one thread best (``taskset -c 0``).
"""

from __future__ import annotations

import argparse
import atexit
import fcntl
import importlib
import json
import math
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from pytest_touchstone.reports.progress_line import Live, Moment, remaining
from pytest_touchstone.results.live import PROGRESS, WORKLOAD

COLUMNS: Final = 120
SHARES: Final = (0.25, 0.5, 0.75)
NOTES: Final = "TOUCHSTONE_TIME_LEFT_NOTES"
CPU: Final = "TOUCHSTONE_TIME_LEFT_CPU"

SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0}
RANGE: Final = re.compile(r"(?:about )?([\d.]+)(?: (s|min|h))?(?: to ([\d.]+) (s|min|h))? left")
SINGLE: Final = re.compile(r"(?:(\d+):)?(\d+):(\d\d) left")


@dataclass(frozen=True, slots=True)
class Row:
    """The time left by the line at a share of the run's time, ``low`` to ``high`` seconds, and the truth."""

    share: float
    line: str
    low: float | None
    high: float | None
    truth: float

    @property
    def middle(self) -> float | None:
        """The geometric middle."""
        return None if self.low is None or self.high is None else math.sqrt(self.low * self.high)

    @property
    def error(self) -> float | None:
        """The middle's difference from the truth, as a share of it."""
        return None if self.middle is None else (self.middle - self.truth) / self.truth

    @property
    def within(self) -> bool | None:
        """True where the truth lay in the range; None where there was no range."""
        if self.low is None or self.high is None or self.low == self.high:
            return None
        return self.low <= self.truth <= self.high


def seconds_left(line: str) -> tuple[float, float] | None:
    """Return the least and the most seconds that a line says are left."""
    if found := SINGLE.search(line):
        hours, minutes, seconds = (int(one or 0) for one in found.groups())
        whole = 3600.0 * hours + 60.0 * minutes + seconds
        return whole, whole
    if not (found := RANGE.search(line)):
        return None
    low, unit, high, other = found.groups()
    first = float(low) * SECONDS[unit or other]
    return first, float(high) * SECONDS[other] if high else first


def rows_of(lines: Sequence[tuple[float, str]], end: float, shares: Sequence[float] = SHARES) -> list[Row]:
    """Return what the lines, each with its time since the start, said at shares of a run that took ``end`` seconds."""
    found = []
    for share in shares:
        at = share * end
        before = [line for seconds, line in lines if seconds <= at]
        line = before[-1] if before else ""
        low, high = seconds_left(line) or (None, None)
        found.append(Row(share, line, low, high, end - at))
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the rows for people."""
    text = [f"{'share':>6} {'said':>22} {'middle':>8} {'truth':>8} {'error':>7}  in the range"]
    for row in rows:
        said = row.line.rpartition(", ")[2] if "left" in row.line.rpartition(", ")[2] else row.line[-22:]
        middle = "-" if row.middle is None else f"{row.middle:.0f} s"
        error = "-" if row.error is None else f"{row.error:+.0%}"
        within = {True: "yes", False: "no", None: "-"}[row.within]
        text.append(f"{row.share:6.0%} {said:>22} {middle:>8} {row.truth:6.0f} s {error:>7}  {within}")
    return "\n".join(text)


def pytest_configure(config: pytest.Config) -> None:
    """Called where this module is a plugin of pytest: notes every line, by another clock where that is wanted."""
    names = (
        "pytest_touchstone.plugin.watch",
        "pytest_touchstone.reports.progress",
        "pytest_touchstone.reports.progress_line",
    )
    modules: list[Any] = [importlib.import_module(name) for name in names]
    clock = time.process_time if os.environ.get(CPU) else time.monotonic
    if os.environ.get(CPU):
        clocks: Any = SimpleNamespace(monotonic=clock, time=clock, thread_time=time.thread_time)
        for module in modules:
            module.time = clocks
    if hasattr(config, "workerinput"):
        return
    text_of = modules[1].line

    def note(**told: Any) -> None:
        with Path(os.environ[NOTES]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": clock(), **told}) + "\n")

    def noted(*arguments: Any) -> str:
        text: str = text_of(*arguments)
        note(line=text)
        return text

    class NotedLive(Live):
        """Notes the files that it reads."""

        def __init__(self, directory: Path, processes: int) -> None:
            super().__init__(directory, processes)
            self.directory, self.processes = directory, processes

        def moment(self, now: float) -> Moment:
            files = {
                path.name: path.read_text(encoding="utf-8")
                for path in (self.directory / WORKLOAD, *self.directory.glob(PROGRESS))
                if path.is_file()
            }
            note(now=now, processes=self.processes, files=files)
            return super().moment(now)

    modules[1].line, modules[1].Live = noted, NotedLive
    atexit.register(note)


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of pytest: its ``lines`` with their times since the start, its ``looks`` at the files of its processes, and
    how long it took."""

    lines: Sequence[tuple[float, str]]
    looks: Sequence[Mapping[str, Any]]
    seconds: float


def replayed(looks: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """Return the time left in words by today's code, with its times, from what an earlier run looked at."""
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        live = Live(Path(temporary), looks[0]["processes"])
        for look in looks:
            for name, text in look["files"].items():
                (Path(temporary) / name).write_text(text, encoding="utf-8")
            left = live.moment(look["now"]).left
            lines.append((look["at"], remaining(left) if left is not None else ""))
    return lines


def run(arguments: Sequence[str], *, cpu: bool) -> Ran:
    """Run pytest in a terminal of its own."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as notes:
        environ = {
            **os.environ,
            NOTES: notes.name,
            "TERM": "xterm",
            **({CPU: "1"} if cpu else {}),
        }
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        began = 0.0 if cpu else time.monotonic()
        command = [sys.executable, "-m", "pytest", "-p", "perf.time_left", *arguments]
        child = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environ)
        os.close(side)
        written = b""
        while True:
            try:
                written = (written + (more := os.read(main, 65536)))[-20000:]
            except OSError:
                break
            if not more:
                break
        child.wait()
        found = [json.loads(line) for line in Path(notes.name).read_text(encoding="utf-8").splitlines()]
    if len(found) < 2:
        sys.exit(
            f"pytest showed no progress line (exit code {child.returncode}):\n{written.decode(errors='replace')}"
        )
    end = found[-1]["at"] if found[-1].keys() == {"at"} else time.monotonic()
    for one in found:
        one["at"] -= began
    return Ran(
        lines=[(one["at"], one["line"]) for one in found if "line" in one],
        looks=[one for one in found if "files" in one],
        seconds=end - began,
    )


def main() -> None:
    """Run as the module's docstring says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", action="store_true", help="measure by the process's CPU time")
    parser.add_argument(
        "--json", type=Path, help="write the table's rows and all lines and looks to this file"
    )
    parser.add_argument(
        "--replay", type=Path, help="reckon again from a file that --json wrote; runs nothing"
    )
    parser.add_argument("arguments", nargs="*", help="of pytest, after --")
    options = parser.parse_args()
    if (options.replay is None) == (not options.arguments):
        parser.error("give either the arguments of pytest after -- or --replay FILE")
    if options.replay is not None:
        told = json.loads(options.replay.read_text(encoding="utf-8"))
        print(table(rows_of(replayed(told["looks"]), told["seconds"])))
        return
    ran = run(options.arguments, cpu=options.cpu)
    rows = rows_of(ran.lines, ran.seconds)
    print(f"pytest {' '.join(options.arguments)}: {ran.seconds:.0f} s{' of CPU time' if options.cpu else ''}")
    print(table(rows))
    if options.json is not None:
        told = {**asdict(ran), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main()
