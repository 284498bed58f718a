"""Runs whole processes and reports what they cost; ratios of pairs; tables.

Memory is the high-water mark of each process (``VmHWM``), read while it runs, so what this process itself has loaded
does not count.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""

OURS = {"PYTHONPATH": f"{ROOT / 'harness'}{os.pathsep}{ROOT}"}
"""The environment of processes that run this checkout's harness, wherever they start."""

LOOK_EVERY = 0.1
"""The seconds between two readings of the processes' memory at least."""

LOOK_SHARE = 0.01
"""The most of a core that the readings take: with many processes a reading is long, and the next one waits longer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a process and its descendants: seconds, seconds of CPU, peak bytes.

    ``peak`` is the process's own, ``peak_tree`` the sum of the peaks of all, and ``together`` the most that all had at
    one time, with shared pages counted once; 0 where /proc is missing.
    """

    wall: float
    cpu: float
    peak: int
    peak_tree: int
    together: int = 0


class Ratios(NamedTuple):
    """The least, middle and largest of the pairs' ratios."""

    least: float
    median: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


@dataclass(slots=True)
class _Memory:
    """High-water marks by process id, for one process and its descendants."""

    root: int
    peaks: dict[int, int] = field(default_factory=dict)
    together: int = 0

    def look(self) -> None:
        known = _tree(self.root)
        for pid in known:
            self.peaks[pid] = max(self.peaks.get(pid, 0), _kilobytes(pid, "status", "VmHWM:"))
        self.together = max(self.together, sum(_kilobytes(pid, "smaps_rollup", "Pss:") for pid in known))


def run(command: Sequence[str | Path], *, cwd: Path, log: Path, env: Mapping[str, str] | None = None) -> Cost:
    """Return the cost of a command, which must succeed; what it prints goes to ``log``.

    Raises ``SystemExit`` with the end of the log when it fails.
    """
    words = [str(word) for word in command]
    began = time.perf_counter()
    with log.open("wb") as file:
        process = subprocess.Popen(
            words, cwd=cwd, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}
        )
        memory, ended = _Memory(process.pid), threading.Event()
        thread = threading.Thread(target=_watch, args=(memory, ended), daemon=True)
        thread.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            ended.set()
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    thread.join()
    if process.returncode:
        tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        raise SystemExit(f"{tail}\n{' '.join(words)}\nended with exit code {process.returncode}")
    peaks = memory.peaks
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(wall, cpu, peaks.get(process.pid, 0), sum(peaks.values()), memory.together)


def in_turn(
    pairs: int, first: Callable[[int], Any], second: Callable[[int], Any]
) -> tuple[list[Any], list[Any]]:
    """Run both ``pairs`` times, A B, B A, A B, ...: so that drift affects both alike."""
    found: tuple[list[Any], list[Any]] = ([], [])
    for number in range(pairs):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            found[side].append((first, second)[side](number))
    return found


def ratios(above: Sequence[float], below: Sequence[float]) -> Ratios:
    """Return the ratios pair by pair: their least, median and largest."""
    each = [a / b if b else math.nan for a, b in zip(above, below, strict=True)]
    return Ratios(min(each), statistics.median(each), max(each))


def cpu_of(pid: int | None) -> float:
    """Return the seconds of CPU that a process and its descendants have taken so far; 0 without a process."""
    if pid is None:
        return 0.0
    ticks = 0
    for one in _tree(pid):
        try:
            stat = Path(f"/proc/{one}/stat").read_text()
        except OSError:
            continue
        # user, system, and those of children that have ended
        ticks += sum(int(value) for value in stat.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def growth(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the exponent b of the fit seconds = a * size ** b (least squares of the logarithms; positive sizes
    only)."""
    points = [(math.log(n), math.log(s)) for n, s in zip(sizes, seconds, strict=True) if n > 0 and s > 0]
    if len(points) < 2:
        return math.nan
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the rows as text, the first column to the left, the others to the right."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return median, least and largest of several measurements."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def mebibytes(count: float) -> float:
    """Return bytes as MiB."""
    return count / 2**20


def costs(many: Sequence[Cost]) -> list[dict[str, Any]]:
    """Return the costs as plain data."""
    return [asdict(one) for one in many]


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _watch(memory: _Memory, ended: threading.Event) -> None:
    took = 0.0
    while not ended.wait(max(LOOK_EVERY, took / LOOK_SHARE)):
        began = time.perf_counter()
        memory.look()
        took = time.perf_counter() - began


def _tree(root: int) -> list[int]:
    """Return the process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        # the name, in parentheses, may contain anything
        children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def _kilobytes(pid: int, file: str, name: str) -> int:
    """Return a number of a file of /proc, in bytes."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)
