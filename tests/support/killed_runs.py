"""Commands that are killed at random moments and given again, and what must then be the same as if nothing had
happened."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_touchstone.core.files import read_checked
from pytest_touchstone.plugin.controller import WORKERS_ENDED
from pytest_touchstone.results.journal import latest_records, read_journal
from pytest_touchstone.results.records import Record
from tests.support.forking import Fork, Forks
from tests.support.project import ALONE, write_benchmark, write_rows
from tests.support.rows import write_jsonl
from tests.support.watching import running

ROWS: Final = 30

CONFTEST: Final = """
import dataclasses
import json
import os

from pytest_touchstone.checkpoints import formats
from pytest_touchstone.engines.fake import FakeEngine

LOG = os.path.abspath("asked.log")
inspect, answer = formats.FakeFormat.inspect, FakeEngine._answer
formats._KINDS |= {"fake:other": "causal"}


def counted(self, request):
    note = json.dumps([self.info.name, getattr(request, "context", "")]) + "\\n"
    descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, note.encode())
    os.close(descriptor)
    if self.info.name == "fake-other" and hasattr(request, "context"):
        request = dataclasses.replace(request, context="otherwise " + request.context)
    return answer(self, request)


formats.FakeFormat.inspect = lambda self, path, asked: dataclasses.replace(inspect(self, path, asked), cacheable=True)
FakeEngine._answer = counted
"""
"""The fake checkpoint's answers are reused here as those of any other, and each request is noted."""

PROBLEMS: Final = [
    {
        "task_id": f"test/{number}",
        "prompt": f"def f{number}():\n",
        "canonical_solution": "    return 1",
        "test": "def check(candidate):\n    assert candidate() == 1",
        "entry_point": f"f{number}",
    }
    for number in range(3)
]

SLOWLY: Final = "__import__('time').sleep(0.004)"

POINTS: Final = """
import os, signal, sys

EVENTS = {{"open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.link", "os.listdir"}}
reached, last = 0, {last}


def count(where):
    global reached
    if "results" in where or where.isdigit():
        reached += 1
        if reached == last:
            os.kill(os.getpid(), signal.{name})


def counted(call):
    def counting(descriptor, *arguments):
        if descriptor > 2:
            count(str(descriptor))
        return call(descriptor, *arguments)
    return counting


sys.addaudithook(lambda event, arguments: count(str(arguments[0])) if event in EVENTS else None)
for name in ("write", "pwrite", "fsync"):
    setattr(os, name, counted(getattr(os, name)))
if {last} < 0:
    import atexit
    atexit.register(lambda: print("points:", reached))
"""
"""Sends the process a signal when it comes to the point of this number: a file of results that is opened, renamed, cut
or removed, or a write, each time before it is done. With -1 it says how many points there are."""

SECONDS: Final = re.compile(rb'"seconds": [^,}]*')
"""What may differ in a file."""

VOLATILE: Final = ("seconds", "reused", "reused_from")
"""What may differ in a result: the time, and how much of it was taken from earlier runs."""

Command: TypeAlias = tuple[str, ...]
Outcome: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """A way to use the product: commands one after the other, of pytest or ``touchstone``, in a folder that was
    prepared by other ones; ``files`` are what must be there at the end besides the results of ``last``, byte by byte.
    """

    commands: tuple[Command, ...]
    prepared: tuple[Command, ...] = ()
    last: str = "results/*"
    files: tuple[str, ...] = ()
    workers: bool = False


def words(command: Command) -> Command:
    """Return the arguments of Python for a command."""
    kind, *arguments = command
    if kind == "touchstone":
        return ("-m", "pytest_touchstone.cli", *arguments)
    return ("-m", "pytest", "--eval-data", "data", "-q", *ALONE, *arguments)


def write_project(folder: Path, extra: str = SLOWLY, rows: int = ROWS) -> Path:
    """Write a project whose requests are noted."""
    folder.mkdir(parents=True)
    write_benchmark(folder / "test_sums.py", extra)
    write_rows(folder, rows)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "tasks" / "humaneval").mkdir(parents=True)
    write_jsonl(folder / "tasks" / "humaneval" / "HumanEval.jsonl", PROBLEMS)
    samples = [{"task_id": one["task_id"], "completion": f"    return {n}"} for n, one in enumerate(PROBLEMS)]
    write_jsonl(folder / "samples.jsonl", samples)
    return folder


def computed(folder: Path) -> list[Record]:
    """The scores of all runs that were not taken from others."""
    runs = sorted(path.parent for path in folder.glob("results/*/items"))
    records = [one for run in runs for one in read_journal(run)]
    return [one for one in records if one.status == "scored" and one.reused_from is None]


def key(record: Record) -> tuple[str, str]:
    """The checkpoint and the example."""
    return record.checkpoint, record.example


def asked(folder: Path, begin: int = 0) -> Counter[tuple[str, str]]:
    """How often each item was asked, from a place in the notes on; an item asks twice."""
    path = folder / "asked.log"
    found: Counter[tuple[str, str]] = Counter()
    for line in path.read_bytes()[begin:].splitlines() if path.exists() else ():
        checkpoint, context = json.loads(line)
        if (number := re.search(r"(\d+)\+1=$", context)) is not None:
            found[checkpoint, f"sums/{number[1]}"] += 1
    return found


def newest(folder: Path, pattern: str) -> Path:
    """The run that was begun last of those that have summed up."""
    runs = [path.parent for path in folder.glob(f"{pattern}/summary.json")]
    return max(runs, key=lambda run: float(json.loads((run / "run.json").read_text())["began"]))


def without_seconds(exchange: dict[str, Any]) -> dict[str, Any]:
    """An exchange without the time that its program took, which no two runs share."""
    answer = {name: value for name, value in exchange["answer"].items() if name != "seconds"}
    return {**exchange, "answer": answer}


def outcome(folder: Path, way: Way) -> Outcome:
    """All scores and statistics of the last run, and the files that a way leaves."""
    found: Outcome = {name: SECONDS.sub(b"", (folder / name).read_bytes()) for name in way.files}
    if not way.last:
        return found
    run = newest(folder, way.last)
    summary = read_checked(run / "summary.json")
    found["records"] = {
        (one.checkpoint, one.item): (
            one.status,
            one.scores,
            [without_seconds(pair) for pair in one.exchanges],
        )
        for one in latest_records(read_journal(run)).values()
    }
    found["results"] = [
        {name: value for name, value in one.items() if name not in VOLATILE} for one in summary["results"]
    ]
    found["totals"], found["faults"] = summary["totals"], summary["faults"]
    found["gate"] = summary["gate"]
    found["table"] = (run / "results.csv").read_text()
    return found


@dataclass
class Undisturbed:
    """What a way gives that nothing disturbs: its outcome, and of each command its exit code, seconds and points."""

    outcome: Outcome
    codes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    points: list[int] = field(default_factory=list)


@dataclass
class Kills:
    """Kills that have met a command before it ended, and those of them that met a run with some of its records."""

    all: int = 0
    in_the_middle: int = 0


class Disturbed:
    """A folder in which the commands of a way are given, killed, and given again."""

    def __init__(self, forks: Forks, folder: Path, template: Path, draw: random.Random) -> None:
        self.folder = Path(shutil.copytree(template, folder, symlinks=True))
        self.draw, self._forks = draw, forks
        self.kills = Kills()
        self.told: list[str] = []

    def give(self, command: Command, before: str = "", **environment: str) -> Fork:
        """Begin a command."""
        return self._forks.start(*words(command), cwd=self.folder, before=before, environment=environment)

    def disturb(self, command: Command, seconds: float, points: int, workers: bool) -> None:
        """Give a command, and end it by force at a random moment, or at a random point."""
        way = self.draw.choice(
            ("kill", "kill", "kill", "point", "point", "SIGTERM", "SIGINT", "point, SIGINT")
        )
        ours = command[0] == "touchstone"
        if "point" in way or (ours and way == "SIGINT"):
            name, last = "SIGINT" if "SIGINT" in way else "SIGKILL", self.draw.randint(1, max(1, points))
            self.told.append(f"{name} at point {last} of {points}")
            process = self.give(command, POINTS.format(last=last, name=name))
        else:
            moment = self.draw.uniform(0.0, 1.1 * seconds)
            self.told.append(f"{way} after {moment:.3f} s of {seconds:.3f}")
            process = self.give(command)
            if way == "kill" and workers and self.draw.random() < 0.4:
                process.ended(moment)
                self._kill_worker(process)
            elif way == "kill" or ours:
                process.ended(moment)
                process.kill(signal.SIGTERM if ours and way == "SIGTERM" else signal.SIGKILL)
            else:
                self._press(
                    process, signal.Signals[way], moment, terminal=workers and self.draw.random() < 0.5
                )
        process.wait()
        self.told[-1] += f": exit code {process.returncode}"
        output = process.output
        # A worker whose controller is gone before it has sent its program shows a traceback of execnet's.
        orphans = workers and process.returncode in (-signal.SIGKILL, 2)
        assert orphans or "Traceback" not in output, self.why(output)
        assert "INTERNALERROR" not in output, self.why(output)
        wanted = (
            {0, 8, -9} | ({2, -15} if "SIG" in way else set()) | ({9} if WORKERS_ENDED in output else set())
        )
        assert process.returncode in wanted, self.why(output)
        if process.returncode not in (0, 8):
            self.kills.all += 1
            self.kills.in_the_middle += bool(computed(self.folder))

    def _press(self, process: Fork, number: signal.Signals, moment: float, *, terminal: bool) -> None:
        """Send a signal that pytest answers by itself, once our plug-in has begun; from a terminal to the workers
        too."""
        while not process.ended(0.002) and not process.catches(signal.SIGTERM):
            continue
        process.ended(moment)
        process.kill(number, group=terminal and number == signal.SIGINT)
        self.told[-1] += ", to its group" if terminal else ""

    def _kill_worker(self, process: Fork) -> None:
        """Kill one of the processes that the command has started, if there are some."""
        others = [pid for pid in running(self.folder) if pid != process.pid]
        if others:
            self.told[-1] += ", a worker"
            try:
                os.kill(self.draw.choice(others), signal.SIGKILL)
            except ProcessLookupError:
                return

    def finish(self, command: Command, code: int) -> None:
        """Give a command again, and let it end; nothing is asked that is on disk."""
        kept = {key(one) for one in computed(self.folder)}
        notes = self.folder / "asked.log"
        begin = notes.stat().st_size if notes.exists() else 0
        process = self.give(command)
        ended = process.wait()
        assert ended == code, self.why(process.output)
        twice = sorted(kept & set(asked(self.folder, begin)))
        assert not twice, self.why(f"asked again: {twice}")

    def why(self, text: str) -> str:
        """What happened, for the message of a failure."""
        return "\n".join((*self.told, text))


class Ways:
    """Folders that ways begin in, each made once, and what they give undisturbed."""

    def __init__(self, forks: Forks, folder: Path) -> None:
        self._forks, self._folder = forks, folder
        self._known: dict[str, tuple[Path, Undisturbed]] = {}

    def of(
        self, name: str, way: Way, project: Callable[[Path], Path] = write_project
    ) -> tuple[Path, Undisturbed]:
        """Return the folder that a way begins in, and what it gives when nothing disturbs it."""
        if name not in self._known:
            template = project(self._folder / name)
            self._run(template, way.prepared)
            free = Path(shutil.copytree(template, self._folder / f"{name}-undisturbed", symlinks=True))
            found = Undisturbed({})
            for command in way.commands:
                began = time.monotonic()
                process = self._forks.start(*words(command), cwd=free)
                found.codes.append(process.wait())
                found.seconds.append(time.monotonic() - began)
                assert found.codes[-1] in (0, 8), process.output
            found.outcome = outcome(free, way)
            counted = Path(shutil.copytree(template, self._folder / f"{name}-counted", symlinks=True))
            for command in way.commands:
                process = self._forks.start(
                    *words(command), cwd=counted, before=POINTS.format(last=-1, name="SIGKILL")
                )
                process.wait()
                found.points.append(int(process.output.rpartition("points: ")[2]))
            self._known[name] = template, found
        return self._known[name]

    def _run(self, folder: Path, commands: Sequence[Command]) -> None:
        for command in commands:
            process = self._forks.start(*words(command), cwd=folder)
            assert process.wait() == 0, process.output
