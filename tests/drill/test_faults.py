"""Kills at random moments, in every way to use the product: the same command goes on, and the results are those of a
run that nothing has disturbed."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.drill.conftest import Drill
from tests.support import watching
from tests.support.fault_server import FaultServer
from tests.support.forking import Fork, Forks
from tests.support.killed_runs import Disturbed, Way, Ways, computed, key, outcome, words, write_project
from tests.support.project import write_benchmark

RUN = ("pytest", "--checkpoint", "fake:causal", "--eval-set", "batch_items=8")
SERIES = ("pytest", "--checkpoint", "fake:causal", "--checkpoint", "fake:other")
BASE = ("pytest", "--checkpoint", "fake:other", "--eval-run-id", "base")
DONE = ("pytest", "--checkpoint", "fake:causal", "--eval-run-id", "done")
SHARDS = tuple(("pytest", "--checkpoint", "fake:causal", "--eval-shard", f"{n}/2") for n in (1, 2))
GRADE = (
    "touchstone",
    "score",
    "humaneval",
    "samples.jsonl",
    "--data",
    "tasks",
)

WAYS = {
    "run": Way((RUN,)),
    "series": Way((SERIES,)),
    "gate": Way(((*RUN, "--gate", "--baseline", "base"),), prepared=(BASE,)),
    "shards": Way((*SHARDS, ("touchstone", "merge", "results", "-o", "whole")), last="whole"),
    "workers": Way(((*RUN, "-n", "2"),), workers=True),
    "commands": Way(
        (
            ("touchstone", "score", "done"),
            ("touchstone", "export", "done", "-o", "exported"),
            ("touchstone", "report", "done", "-o", "page.html"),
            ("touchstone", "compare", "base", "done"),
            ("touchstone", "report", "done"),
        ),
        prepared=(BASE, DONE),
        files=("page.html",),
    ),
    "grade": Way((GRADE,)),
}


@pytest.fixture(scope="module")
def ways(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Ways:
    return Ways(forks, tmp_path_factory.mktemp("ways"))


@pytest.mark.parametrize(
    ("name", "short", "whole"),
    [
        ("run", 2, 170),
        ("series", 0, 30),
        ("gate", 1, 30),
        ("shards", 0, 30),
        ("workers", 1, 15),
        ("commands", 1, 15),
        ("grade", 1, 8),
    ],
)
def test_commands_that_are_killed_at_any_moment_go_on_and_end_as_if_nothing_had_happened(
    name: str, short: int, whole: int, *, drill: Drill, forks: Forks, ways: Ways, tmp_path: Path
) -> None:
    way = WAYS[name]
    for seed in drill.seeds(short, whole):
        template, right = ways.of(name, way)
        draw = random.Random(f"{name} {seed}")
        disturbed = Disturbed(forks, tmp_path / str(seed), template, draw)
        disturbed.told.append(f"seed {seed} of {name}")
        for number, command in enumerate(way.commands):
            for _ in range(draw.choice((2, 4, 6) if len(way.commands) == 1 else (0, 1, 2, 3))):
                disturbed.disturb(command, right.seconds[number], right.points[number], way.workers)
            disturbed.finish(command, right.codes[number])
        assert outcome(disturbed.folder, way) == right.outcome, disturbed.why("other results")
        twice = [one for one, n in Counter(map(key, computed(disturbed.folder))).items() if n > 1]
        assert way.workers or not twice, disturbed.why(f"scored twice: {twice}")
        drill.figure(f"kills of {name} before its end", disturbed.kills.all)
        drill.figure("kills that met a run with records", disturbed.kills.in_the_middle)
        shutil.rmtree(disturbed.folder)


# Before anything is begun

DYING = """
import os
if "DYING" in os.environ:
    os.kill(os.getpid(), 9)
os.environ["DYING"] = ""
"""
"""Kills a worker before it has said a word."""


@pytest.mark.slow
def test_workers_that_are_killed_before_they_answer_end_the_run_in_one_line(
    forks: Forks, ways: Ways, tmp_path: Path
) -> None:
    template, right = ways.of("run", WAYS["run"])
    folder = Path(shutil.copytree(template, tmp_path / "project"))
    process = forks.start(*words((*RUN, "-n", "2")), cwd=folder, before=DYING)
    assert process.wait() == 9, process.output
    (line,) = (line for line in process.output.splitlines() if "xdist" in line)
    assert "give the same command again" in line
    assert "INTERNALERROR" not in process.output
    process = forks.start(*words((*RUN, "-n", "2")), cwd=folder)
    assert process.wait() == 0, process.output
    assert outcome(folder, WAYS["run"]) == right.outcome


# A served model

SAYS = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="says", version=1, data="sums/test", asks=Generate, primary="acc", most_unusable=1.0)
def test_says(example):
    answer = yield Generate(example["q"], max_new_tokens=4)
    return {"acc": "5" in answer.text}
"""


def saying(folder: Path) -> Path:
    """A project that asks for texts."""
    write_project(folder)
    (folder / "test_sums.py").write_text(SAYS)
    return folder


def test_a_run_of_a_served_model_that_is_killed_asks_only_what_is_not_on_disk(
    drill: Drill, forks: Forks, tmp_path: Path
) -> None:
    with FaultServer(delay=0.004) as server:
        command = ("pytest", "--checkpoint", f"{server.base}/v1", "--eval-concurrency", "2")
        way = Way((command,))
        ways = Ways(forks, tmp_path / "ways")
        template, right = ways.of("served", way, saying)
        for seed in drill.seeds(1, 25):
            draw = random.Random(f"served {seed}")
            disturbed = Disturbed(forks, tmp_path / str(seed), template, draw)
            disturbed.told.append(f"seed {seed} of a served model")
            for _ in range(draw.choice((1, 2))):
                disturbed.disturb(command, right.seconds[0], right.points[0], workers=False)
            kept = {example for _, example in map(key, computed(disturbed.folder))}
            server.asked.clear()
            disturbed.finish(command, right.codes[0])
            assert outcome(disturbed.folder, way) == right.outcome, disturbed.why("other results")
            asked = re.findall(r'"prompt": "(\d+)\+1="', " ".join(server.asked))
            twice = [number for number in asked if f"sums/{number}" in kept]
            assert not twice, disturbed.why(f"asked again: {twice}")
            drill.figure("kills of served before its end", disturbed.kills.all)
            drill.figure("kills that met a run with records", disturbed.kills.in_the_middle)
            shutil.rmtree(disturbed.folder)


# Watches


WATCHED = 6
"""The items of a checkpoint."""


def each_once(steps: int) -> dict[tuple[str, str], int]:
    """Each item of each checkpoint, asked once."""
    return {
        (f"checkpoint-{step}", f"mine/{row}"): 1 for step in range(1, steps + 1) for row in range(WATCHED)
    }


def finished(folder: Path) -> list[str]:
    """The checkpoints with a run that has summed up, each as often as there are such runs."""
    runs = folder.glob("results/watch-*/summary.json")
    return sorted(path.parent.name.split("-")[3] + path.parent.name.split("-")[4] for path in runs)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 6))])
def test_a_watch_that_is_killed_at_any_moment_goes_on(
    part: int, drill: Drill, forks: Forks, tmp_path: Path
) -> None:
    python = str(forks.python)
    for seed in drill.seeds(1, 6)[part::6]:
        kills, steps = (6, 4) if drill.whole else (2, 2)
        chance = random.Random(f"watch {seed}")
        (tmp_path / str(seed)).mkdir()
        folder = watching.project(tmp_path / str(seed), rows=WATCHED, seconds=0.1)
        for step in range(1, steps + 1):
            watching.checkpoint(folder / "runs" / "a", step)
        watching.checkpoint(folder / "runs" / "a", steps + 1, whole=False)
        for kill in range(kills):
            with watching.start(folder, python=python) as process:
                time.sleep(chance.uniform(0.0, 2.0 * steps))
                process.kill()
            if kill % 2:  # else its run goes on alone
                watching.kill_all(folder)
        until = ("--until", f"step={steps}", "--until", "idle=3s")
        code, said = watching.watched(folder, *until, python=python)
        assert code == 0, f"seed {seed}: {said}"
        assert watching.asked(folder) == each_once(steps), f"seed {seed}"
        assert finished(folder) == [f"checkpoint{step}" for step in range(1, steps + 1)], f"seed {seed}"
        drill.figure("kills of watch before its end", kills)


@pytest.mark.slow
def test_a_trainer_that_is_killed_at_any_moment_leaves_nothing_that_is_scored_by_half(
    drill: Drill, forks: Forks, tmp_path: Path
) -> None:
    folder, chance = watching.project(tmp_path, rows=WATCHED), random.Random(11)
    kills = 30 if drill.whole else 2

    def trainer(steps: int) -> subprocess.Popen[bytes]:
        words = ("-S", "trainer.py", "runs/a", str(steps), "1.0")  # a second for each checkpoint
        return subprocess.Popen([sys.executable, *words], cwd=folder)

    with watching.watching(folder, "--until", "idle=5s", python=str(forks.python)) as watch:
        for _ in range(kills):
            process = trainer(1000)
            time.sleep(chance.uniform(0.0, 1.4))
            assert process.poll() is None
            process.kill()
            process.wait()
        steps = len(list(folder.glob("runs/a/checkpoint-*")))
        assert trainer(steps).wait() == 0  # the last one is written anew, and whole
        said, _ = watch.communicate(timeout=600)
    assert watch.returncode == 0, said
    assert watching.asked(folder) == each_once(steps)
    assert finished(folder) == sorted(f"checkpoint{step}" for step in range(1, steps + 1))
    drill.figure("kills of a trainer that is watched", kills)


# What a machine may lack


LIMITED = "import resource\nresource.setrlimit(resource.{limit}, ({size}, {size}))"

MEMORY = """
import resource
size = int(open("/proc/self/statm").read().split()[0]) * 4096 + {more}
resource.setrlimit(resource.RLIMIT_AS, (size, size))
"""

NO_OVERRIDE = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
header, data = struct.pack("II", 0x20080522, 0), ctypes.create_string_buffer(24)
assert libc.capget(header, data) == 0
effective, permitted, *others = struct.unpack("6I", data.raw)
assert libc.capset(header, struct.pack("6I", effective & ~0b110, permitted & ~0b110, *others)) == 0
"""
"""The superuser then has no more rights to files of others than anybody has."""

SMALL_SHM = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0
assert libc.mount(b"none", b"/", None, 0x44000, None) == 0
assert libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=64k") == 0
"""

JUMPING = """
import time
real, calls = time.time, 0


def jumping():
    global calls
    calls += 1
    return real() + ({seconds} if calls > {at} else 0)


time.time = jumping
"""

SOMEBODY = 12345

superuser = pytest.mark.skipif(
    os.getuid() != 0, reason="only the superuser can mount, and make files of others"
)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A file system in memory at a folder; skips the test where a container forbids it."""
    folder.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class Machine:
    """Runs on a machine that lacks something; ``right`` is what an undisturbed run gives."""

    def __init__(self, forks: Forks, ways: Ways, drill: Drill) -> None:
        self.way = WAYS["run"]
        self.template, undisturbed = ways.of("run", self.way)
        self.right = undisturbed.outcome
        self._forks, self._drill = forks, drill

    def run(self, folder: Path, before: str = "", *options: str) -> Fork:
        """Run; a result is right, and what is none says in one line what is wrong and what to do."""
        process = self._forks.start(*words((*RUN, *options)), cwd=folder, before=before)
        code = process.wait(60)
        text = process.output
        said = " ".join(text.split())
        assert "Traceback" not in text, text
        assert "INTERNALERROR" not in text, text
        if code == 0:
            assert outcome(folder, self.way) == self.right
        else:
            assert code in (4, 9), text
            assert re.search(r"(ERROR: |error \(exit code 9\): |not valid: )[^;]+; \w+", said), text
        self._drill.figure("runs on machines that lack something", 1)
        self._drill.figure("of these with a result, which was right", code == 0)
        return process

    def again(self, folder: Path, kept: int | None = None) -> None:
        """Run the same command where nothing is lacking."""
        process = self._forks.start(*words(RUN), cwd=folder)
        assert process.wait() == 0, process.output
        assert outcome(folder, self.way) == self.right
        if kept is not None:
            assert len(computed(folder)) == kept


@pytest.fixture
def machine(forks: Forks, ways: Ways, drill: Drill) -> Machine:
    return Machine(forks, ways, drill)


@pytest.fixture
def folder(machine: Machine, tmp_path: Path) -> Path:
    return Path(shutil.copytree(machine.template, tmp_path / "project"))


@superuser
def test_a_disk_that_is_full_ends_the_run_in_one_line_and_with_more_space_it_goes_on(
    machine: Machine, drill: Drill, tmp_path: Path
) -> None:
    sizes = (4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 80, 96, 112, 128, 192, 256)
    for size in sizes if drill.whole else (8, 24, 40, 96):
        folder = Path(shutil.copytree(machine.template, tmp_path / str(size)))
        with mounted(folder / "results", f"size={size}k"):
            machine.run(folder)
            subprocess.run(["mount", "-o", "remount,size=64m", str(folder / "results")], check=True)
            machine.again(folder, 30)


@superuser
def test_a_results_folder_that_cannot_be_written_is_one_line(machine: Machine, folder: Path) -> None:
    with mounted(folder / "results", "ro"):
        assert machine.run(folder).returncode == 4
    os.chown(folder / "results", SOMEBODY, SOMEBODY)
    assert machine.run(folder, NO_OVERRIDE).returncode == 4
    os.chown(folder / "results", 0, 0)
    machine.again(folder)
    os.chown(folder / "results" / "saved", SOMEBODY, SOMEBODY)
    machine.run(folder, NO_OVERRIDE)


@superuser
def test_rights_that_are_lost_meanwhile_are_one_line(machine: Machine, folder: Path) -> None:
    write_benchmark(
        folder / "test_sums.py",
        f"import os; example['n'] == 10 and os.chown('results', {SOMEBODY}, {SOMEBODY})",
    )
    assert machine.run(folder, NO_OVERRIDE).returncode == 9


@pytest.mark.parametrize("at", [0, 3, 12, 29])
@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=str)
def test_a_results_folder_that_is_removed_meanwhile_is_one_line(
    at: int, options: tuple[str, ...], *, machine: Machine, folder: Path
) -> None:
    write_benchmark(
        folder / "test_sums.py",
        f"import shutil; example['n'] == {at} and shutil.rmtree('results', ignore_errors=True)",
    )
    assert machine.run(folder, "", *options).returncode in (4, 9)


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=str)
def test_a_run_needs_few_descriptors(options: tuple[str, ...], machine: Machine, folder: Path) -> None:
    limit = LIMITED.format(limit="RLIMIT_NOFILE", size=64)
    assert machine.run(folder, limit, *options).returncode == 0


def test_memory_that_does_not_suffice_is_one_line(machine: Machine, drill: Drill, tmp_path: Path) -> None:
    sizes = (0, 1 << 16, 1 << 17, 1 << 18, 3 << 17, 1 << 19, 3 << 18, 1 << 20, 3 << 19, 1 << 21, 1 << 22)
    for more in sizes if drill.whole else (0, 1 << 19):
        folder = Path(shutil.copytree(machine.template, tmp_path / str(more)))
        machine.run(folder, MEMORY.format(more=more))
        machine.again(folder, 30)


def test_a_clock_that_jumps_changes_no_score_and_forgets_none(
    machine: Machine, drill: Drill, tmp_path: Path
) -> None:
    for seed in drill.seeds(3, 30):
        draw = random.Random(f"clock {seed}")
        seconds = draw.choice((-1, 1)) * 10 ** draw.uniform(0.0, 9.0)
        folder = Path(shutil.copytree(machine.template, tmp_path / str(seed)))
        process = machine.run(folder, JUMPING.format(seconds=seconds, at=draw.randint(0, 60)))
        assert process.returncode == 0, f"seed {seed}, {seconds} s: {process.output}"
        machine.again(folder, 30)


@superuser
@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=str)
def test_shared_memory_of_64_kib_suffices(options: tuple[str, ...], machine: Machine, folder: Path) -> None:
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no namespace of mounts here")
    assert machine.run(folder, SMALL_SHM, *options).returncode == 0
