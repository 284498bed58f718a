"""An item that kills, hangs, eats memory, or gives or raises odd things is found and named, and costs itself alone."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytest_touchstone.results.journal import latest_records, read_journal
from pytest_touchstone.results.records import Record
from tests.drill.conftest import Drill
from tests.support.forking import Fork, Forks
from tests.support.killed_runs import CONFTEST, ROWS, Command, newest, words, write_project

KILLS = {
    "ends as if all were well": "__import__('ctypes').CDLL(None)._exit(0)",
    "ends with a code": "__import__('ctypes').CDLL(None)._exit(3)",
    "is killed": "__import__('os').kill(__import__('os').getpid(), 9)",
    "reads address 0": "__import__('ctypes').string_at(0)",
    "aborts": "__import__('os').abort()",
}
"""What ends the process of an item."""

FAULTS = {
    "raise SystemExit(0)": "SystemExit: 0",
    "import os; os._exit(0)": "SystemExit: os._exit(0)",
    "raise GeneratorExit": "GeneratorExit",
    "raise StopIteration": "generator raised StopIteration",
    "raise BaseException('odd')": "BaseException: odd",
    "raise type('Silent', (Exception,), {'__str__': lambda self: 1 / 0})()": "division by zero",
    "raise type('Wordless', (Exception,), {'__str__': lambda self: None})()": "__str__ returned non-string",
    "raise BaseExceptionGroup('many', [KeyError(1), SystemExit(2)])": "many (2 sub-exceptions)",
    "f = lambda: f(); f()": "maximum recursion depth exceeded",
    "raise ValueError(chr(0xd800) + chr(0) + chr(27) + ']0;x')": "ValueError: \\ud800",
    "raise ValueError('x' * 1_000_000)": "ValueError: xxx",
    "raise TimeoutError": "TimeoutError",
    "raise OSError(28, 'No space left on device')": "No space left on device",
    "bytearray(1 << 60)": "MemoryError",
    "while True: yield []": "yielded []",
    "return {'acc': float('nan')}": "finite",
    "return {'acc': float('inf')}": "finite",
    "return {'acc': 10**400}": "int too large",
    "return {'acc': 'much'}": "of type str",
    "return {'acc': example}": "of type dict",
    "return {1: 2}": "names are text",
    "return {'acc': object()}": "cannot travel between processes",
    "import numpy; return {'acc': numpy.zeros(3)}": "cannot travel between processes",
    "yield 'hello'": "yielded 'hello'",
    "return None": "returned nothing",
}
"""Statements of a benchmark, and words of the error that each is."""

ANSWERS = {
    "return LoglikelihoodAnswer(float('nan'), False, 1)": "the checkpoint answered with NaN",
    "return LoglikelihoodAnswer(-float('inf'), False, 1)": "finite",
    "return LoglikelihoodAnswer('much', False, 1)": "not str",
    "return None": "'NoneType' object has no attribute 'logprob'",
    "raise ValueError('it broke')": "ValueError: it broke",
    "raise SystemExit(0)": "SystemExit: 0",
    "__import__('os')._exit(0)": "SystemExit: os._exit(0)",
    "bytearray(1 << 60)": "MemoryError",
    "f = lambda: f(); f()": "maximum recursion depth exceeded",
}
"""The same of an engine."""

ENGINE = """
from pytest_touchstone.core.requests import LoglikelihoodAnswer

usual = FakeEngine._answer


def poisoned(self, request):
    context = getattr(request, "context", "")
    {statements}
    return usual(self, request)


FakeEngine._answer = poisoned
"""

RUN = ("pytest", "--checkpoint", "fake:causal", "--eval-set", "batch_items=8")

MOST_RUNS = 5
"""The runs after which an item that kills its process is given up: two with others, two alone, and the last."""


def in_benchmark(faults: Sequence[tuple[int, str]]) -> str:
    """The statements of a benchmark with faults of some items."""
    return "\n    ".join(f"if example['n'] == {number}:\n        {fault}" for number, fault in faults)


def in_engine(folder: Path, faults: Sequence[tuple[int, str]]) -> None:
    """Let the engine have faults at some items."""
    lines = "\n    ".join(
        f"if context.endswith(' {n}+1=') or context == '{n}+1=':\n        {fault}" for n, fault in faults
    )
    (folder / "conftest.py").write_text(CONFTEST + ENGINE.replace("{statements}", lines))


def poisoned(folder: Path, place: str, faults: Sequence[tuple[int, str]]) -> Path:
    """A project with faults at some items, in the benchmark's code or in the engine."""
    write_project(folder, in_benchmark(faults) if place == "benchmark" else "pass")
    if place == "engine":
        in_engine(folder, faults)
    return folder


def records(run: Path) -> dict[tuple[str, str], Record]:
    """The records of a run by checkpoint and example."""
    return {(one.checkpoint, one.example): one for one in latest_records(read_journal(run)).values()}


def once(forks: Forks, folder: Path, command: Command, before: str = "") -> Fork:
    """Give a command, which must end by itself and show no traceback of our own."""
    process = forks.start(*words(command), cwd=folder, before=before)
    process.wait(90)
    assert "INTERNALERROR" not in process.output, process.output
    return process


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("benchmark", ()),
        ("engine", ()),
        pytest.param("benchmark", ("-n", "2"), marks=pytest.mark.slow),
        pytest.param("engine", ("-n", "2"), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_what_an_item_raises_or_gives_is_its_own_error(
    place: str, options: Command, *, forks: Forks, drill: Drill, tmp_path: Path
) -> None:
    table = FAULTS if place == "benchmark" else ANSWERS
    folder = poisoned(tmp_path / "project", place, list(enumerate(table)))
    process = once(forks, folder, (*RUN, *options))
    assert process.returncode == 9, process.output
    found = records(newest(folder, "results/*"))
    assert len(found) == ROWS
    for number, (statement, said) in enumerate(table.items()):
        record = found.pop(("fake-causal", f"sums/{number}"))
        assert record.status == "error", statement
        assert said in str(record.message), statement
        assert len(str(record.message)) < 5000, statement
    assert {record.status for record in found.values()} == {"scored"}
    drill.figure("items that raise or give odd things, each an error of its own", len(table))


def given_up(forks: Forks, folder: Path, command: Command) -> tuple[Path, int]:
    """Give a command until it ends by itself; return its run, and how often it was given."""
    for number in range(1, MOST_RUNS + 5):
        process = once(forks, folder, command)
        if "passed" in process.output:
            assert process.returncode in (0, 9), process.output
            return newest(folder, "results/*"), number
    pytest.fail(process.output)


@pytest.mark.parametrize(
    ("way", "short", "whole"),
    [("alone", 2, 25), ("series", 0, 5), ("shards", 0, 10), ("workers", 1, 10), ("two of them", 0, 5)],
)
def test_an_item_that_kills_its_process_is_found_named_and_costs_itself_alone(
    way: str, short: int, whole: int, *, forks: Forks, drill: Drill, tmp_path: Path
) -> None:
    for seed in drill.seeds(short, whole):
        draw = random.Random(f"{way} {seed}")
        kill, place = draw.choice(list(KILLS)), draw.choice(("benchmark", "engine"))
        guilty = draw.sample(range(ROWS), 2 if way == "two of them" else 1)
        folder = poisoned(tmp_path / f"{seed}", place, [(number, KILLS[kill]) for number in guilty])
        told = f"seed {seed}: {guilty} {kill} in the {place}"
        options: list[Command] = [("-n", "2") if way == "workers" else ()]
        if way == "series":
            options = [("--checkpoint", "fake:other")]
        if way == "shards":
            options = [("--eval-shard", "1/2"), ("--eval-shard", "2/2")]
        found: dict[tuple[str, str], Record] = {}
        for one in options:
            run, times = given_up(forks, folder, (*RUN, *one))
            found |= records(run)
            checkpoints = 2 if way == "series" else 1
            assert times <= (1 if way == "workers" else 1 + 4 * len(guilty) * checkpoints), told
        wrong = {key: record for key, record in found.items() if record.status != "scored"}
        names = ("fake-causal", "fake-other") if way == "series" else ("fake-causal",)
        assert set(wrong) == {(name, f"sums/{number}") for name in names for number in guilty}, told
        assert len(found) == ROWS * len(names), told
        for record in wrong.values():
            assert re.search("(was killed [2-4]|died 2) times", str(record.message)), told
        drill.figure("items that kill their process, found and named", len(guilty))


@pytest.mark.parametrize("place", ["benchmark", pytest.param("engine", marks=pytest.mark.slow)])
def test_an_item_that_hangs_is_named_while_it_does_and_given_up_once_its_run_was_killed_four_times(
    place: str, *, forks: Forks, drill: Drill, tmp_path: Path
) -> None:
    folder = poisoned(tmp_path / "project", place, [(11, "__import__('time').sleep(1000)")])
    for number in range(1, MOST_RUNS):
        process = forks.start(*words(RUN), cwd=folder)
        assert not process.ended(0.3)
        end = time.monotonic() + 60
        while sum("sums/11" in path.read_text() for path in in_flight(folder)) < number:
            assert time.monotonic() < end, process.output
            time.sleep(0.02)
        process.ended(0.3)
        process.kill()
        process.wait()
    run, times = given_up(forks, folder, RUN)
    assert times == 1
    (wrong,) = (one for one in records(run).values() if one.status != "scored")
    assert wrong.example == "sums/11"
    drill.figure("items that hang, found and named", 1)


def in_flight(folder: Path) -> Iterator[Path]:
    """What all runs have said they compute."""
    return folder.glob("results/2*/details/in-flight-*.json")


def test_an_item_that_eats_memory_is_its_own_error_where_memory_is_limited(
    forks: Forks, drill: Drill, tmp_path: Path
) -> None:
    eats = "kept = []\n        while True: kept.append(bytes(1 << 22))"
    folder = poisoned(tmp_path / "project", "benchmark", [(11, eats)])
    limit = (
        "import resource\nsize = int(open('/proc/self/statm').read().split()[0]) * 4096 + (1 << 28)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size, size))"
    )
    process = once(forks, folder, RUN, limit)
    assert process.returncode == 9, process.output
    (wrong,) = (one for one in records(newest(folder, "results/*")).values() if one.status != "scored")
    assert (wrong.example, wrong.message) == ("sums/11", "MemoryError")
    drill.figure("items that eat memory, found and named", 1)
