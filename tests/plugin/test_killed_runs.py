"""A run that is killed goes on by the same command, and so do shards; an item that kills every process is named.

The checkpoint is the fake one, whose answers are taken from earlier runs here as those of any other.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints.registry import Fake
from pytest_touchstone.cli import main
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.results.journal import latest, read_journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.reuse import InFlight, ItemKey
from tests.support.project import ALONE, Project

CACHEABLE = """
import dataclasses
import os
import signal

from pytest_touchstone.checkpoints.registry import Fake
from pytest_touchstone.engines.fake import FakeEngine

inspect, answer = Fake.inspect, FakeEngine._answer


def killing(self, request):
    if getattr(request, "context", None) == os.environ.get("POISON", "none"):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(self, request)


Fake.inspect = lambda self, path, asked: dataclasses.replace(inspect(self, path, asked), cacheable=True)
FakeEngine._answer = killing
"""

SLOWLY = "__import__('time').sleep(0.004)"


def command(*arguments: str) -> list[str]:
    fixed = ("--checkpoint", "fake:causal", "--eval-data", "data", "-q", *ALONE)
    return [sys.executable, "-m", "pytest", *fixed, *arguments]


def run_apart(project: Path, *arguments: str, **environment: str) -> int:
    """One run in a process of its own; return its exit code, negative where it was killed."""
    done = subprocess.run(
        command(*arguments),
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
        timeout=250,
    )
    return done.returncode


def journals(project: Path) -> list[Path]:
    return sorted(project.glob("results/*/items/items-main.jsonl"))


def lines(project: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in journals(project))


def records(project: Path) -> list[Record]:
    """The records that were computed, of all runs."""
    folders = [path.parent for path in journals(project)]
    return [one for folder in folders for one in read_journal(folder) if one.reused_from is None]


def scores(found: list[Record]) -> dict[str, Any]:
    return {one.item: (one.status, one.scores, one.exchanges) for one in found}


def killed_at_random(draw: random.Random, project: Path, *arguments: str, most: int = 40) -> bool:
    """Start a run, and kill it at a random moment, mostly when it has written ``most`` lines or fewer.

    Return whether it was killed before it ended by itself.
    """
    before, wanted = lines(project), draw.randint(0, most)
    with subprocess.Popen(
        command(*arguments), cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and lines(project) < before + wanted:
            time.sleep(0.01)
        if not wanted:
            time.sleep(draw.uniform(0.0, 1.5))
        time.sleep(draw.uniform(0.0, 0.01))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        return process.wait() == -signal.SIGKILL


def once(found: list[Record]) -> bool:
    return set(Counter(one.item for one in found).values()) == {1}


@pytest.fixture
def killable(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    for kind, name in ((Fake, "inspect"), (FakeEngine, "_answer")):  # which runs in this process change too
        monkeypatch.setattr(kind, name, getattr(kind, name))
    project.rows(60)
    project.write(SLOWLY)
    (project.path / "conftest.py").write_text(CACHEABLE, encoding="utf-8")
    return project


@dataclass
class Kills:
    """The kills of this module's runs: all of them, and those that met a run in the middle."""

    all: int = 0
    in_the_middle: int = 0

    def count(self, journals: Sequence[Path], killed: int) -> None:
        """Count those of one command; its journals are in order, the last of a run that ended by itself."""
        sizes = [path.read_bytes().count(b"\n") for path in journals]
        self.all += killed
        self.in_the_middle += sum(0 < size < sizes[-1] for size in sizes[:-1])


@pytest.fixture(scope="module")
def kills() -> Iterator[Kills]:
    """The kills of all tests that ran; most of them must have met a journal neither empty nor complete."""
    found = Kills()
    yield found
    print(f"\n{found.in_the_middle} of {found.all} kills met a run in the middle")
    assert found.in_the_middle >= 0.6 * found.all or found.all < 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_a_run_that_is_killed_goes_on_by_the_same_command(killable: Project, seed: int, kills: Kills) -> None:
    draw = random.Random(seed)
    options = ("--eval-batch-items", str(draw.choice((1, 8, 64))))
    killed = sum(killed_at_random(draw, killable.path, *options) for _ in range(draw.choice((1, 1, 2))))
    assert run_apart(killable.path, *options) == 0
    kills.count(journals(killable.path), killed)
    found = records(killable.path)
    assert once(found), seed
    last = read_journal(journals(killable.path)[-1].parent)
    assert len(last) == 60
    assert scores(found) == scores(last) == right(killable), seed


def right(project: Project) -> dict[str, Any]:
    """The scores of the same run, of which nothing is killed, in this process."""
    assert project.run("--eval-output", "unkilled").ret == 0
    (folder,) = (project.path / "unkilled").glob("*/run.json")
    return scores(read_journal(folder.parent))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25, 40))
def test_shards_that_are_killed_go_on_by_the_same_command(
    killable: Project, seed: int, monkeypatch: pytest.MonkeyPatch, kills: Kills
) -> None:
    draw = random.Random(seed)
    monkeypatch.chdir(killable.path)
    for number in (1, 2):
        shard, before = ("--eval-shard", f"{number}/2", "--eval-batch-items", "8"), journals(killable.path)
        killed = draw.random() < 0.8 and killed_at_random(draw, killable.path, *shard, most=20)
        assert run_apart(killable.path, *shard) == 0
        kills.count([path for path in journals(killable.path) if path not in before], killed)
    assert once(records(killable.path)), seed
    assert main(["merge", "results", "-o", "whole"]) == 0
    merged = latest(read_journal(killable.path / "whole"))
    assert scores(list(merged.values())) == right(killable), seed


@pytest.mark.slow
def test_a_shard_that_dies_of_an_item_finds_it_by_the_same_command(
    killable: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    killable.write()
    killable.rows(10_000)
    monkeypatch.chdir(killable.path)
    codes = {}
    for shard in ("1/2", "2/2"):
        codes[shard] = [run_apart(killable.path, "--eval-shard", shard, POISON="4321+1=") for _ in range(5)]
    assert sorted(codes.values()) == [[-9, -9, -9, -9, 9], [0, 0, 0, 0, 0]]
    main(["merge", "results", "-o", "whole"])
    merged = latest(read_journal(killable.path / "whole"))
    assert len(merged) == 10_000
    (guilty,) = (one for one in merged.values() if one.status != "scored")
    assert guilty.example == "sums/4321"
    assert "was killed 2 times while it computed nothing but this item" in str(guilty.message)


def test_items_that_were_in_flight_twice_run_alone_and_after_two_more_kills_not_at_all(
    killable: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    killable.write()
    noted: list[list[str]] = []
    begin = InFlight.begin

    def noting(self: InFlight, items: Iterable[ItemKey]) -> None:
        kept = list(items)
        noted.append([one.example for one in kept])
        begin(self, kept)

    def left_by(run: str, *numbers: int) -> None:
        """A run that scored two items, and was killed with others in flight."""
        assert killable.run("--eval-run-id", run, "--eval-limit", "2").ret == 0
        items = [["fake-causal", "sums", f"sums/{number}"] for number in numbers]
        (killable.path / "results" / run / "details" / "in-flight-main.json").write_text(
            json.dumps({"items": items})
        )

    monkeypatch.setattr(InFlight, "begin", noting)
    for run in "ab":
        left_by(run, 5, 6, 7)
    noted.clear()
    assert killable.run("--eval-run-id", "c", "--eval-limit", "20").ret == 0
    assert [one for one in noted if len(one) == 1] == [["sums/5"], ["sums/6"], ["sums/7"]]
    for run in "de":
        left_by(run, 30)
    result = killable.run("--eval-run-id", "f")
    assert result.ret == 9
    (lost,) = (one for one in read_journal(killable.path / "results" / "f") if one.status != "scored")
    assert lost.example == "sums/30"
    assert not (killable.path / "results" / "f" / "details" / "in-flight-main.json").exists()
    assert "was killed 2 times while it computed nothing but this item" in str(lost.message)
    result.stdout.fnmatch_lines(["*sums/30*"])
