"""A training that a watch can follow in a test: tiny checkpoints of a format of its own, which need no model, and a
trainer that writes them slowly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support import forking
from tests.support.installed import install
from tests.support.places import ROOT, SOURCE

FORMAT = '''
from pathlib import Path

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.content import file_lines
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Loglikelihood

class Toy:
    """A folder with weights.toy: a line with the number of bytes that follow, and these."""

    name = "toy"

    def detect(self, path):
        return (path / "weights.toy").is_file()

    def inspect(self, path, asked):
        length, _, rest = (path / "weights.toy").read_bytes().partition(b"\\n")
        if not length.isdigit() or len(rest) != int(length):
            raise CheckpointError(f"{path}/weights.toy: cut off")
        return CheckpointInfo(
            name=path.name, source=asked.source, path=path, kind="causal", format="toy", model_type="toy",
            architecture="answers from hashes", seq_len=100, serves=(Loglikelihood,), engine="fake",
        )

    def files(self, info):
        return [info.path / "weights.toy"]

    def content(self, info):
        return file_lines(self.files(info), "weights")
'''

BENCHMARK = """
import time
from pathlib import Path

from pytest_touchstone import Loglikelihood, benchmark

@benchmark("mine", version=1, rows=[{"id": str(n)} for n in range(ROWS)], asks=Loglikelihood, primary="acc")
def test_mine(example, checkpoint):
    time.sleep(SECONDS)
    yield Loglikelihood("a", " b")
    path = checkpoint.path / "weights.toy"
    if path.exists():  # else the trainer has removed it
        length, _, weights = path.read_bytes().partition(b"\\n")
        assert len(weights) == int(length), "half of a checkpoint was scored"
    step = int(checkpoint.name.rpartition("-")[2])
    return {"acc": float(step not in WORSE or int(example["id"]) % 8 == 0)}
"""

TRAINER = """
import os, sys, time
from pathlib import Path

folder, steps, seconds, pieces = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), 8
step = 0
while step < steps:
    step += 1
    place = folder / f"checkpoint-{step}"
    if (place / "done").exists():  # goes on from the last one that it knows to be whole
        continue
    place.mkdir(parents=True, exist_ok=True)
    weights = f"weights of step {step};".encode() * 50
    with (place / "weights.toy").open("wb") as file:
        file.write(f"{len(weights)}\\n".encode())
        for piece in range(pieces):
            file.write(weights[len(weights) * piece // pieces : len(weights) * (piece + 1) // pieces])
            file.flush()
            time.sleep(seconds / pieces)
    (place / "done").touch()
"""


def checkpoint(folder: Path, step: int, *, whole: bool = True) -> Path:
    """Write a checkpoint as the trainer does, or the beginning of one."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True, exist_ok=True)
    weights = f"weights of step {step};".encode() * 50
    content = f"{len(weights)}\n".encode() + weights
    (path / "weights.toy").write_bytes(content if whole else content[: len(content) // 2])
    return path


def project(folder: Path, *, rows: int = 4, seconds: float = 0.0, worse: Sequence[int] = ()) -> Path:
    """Make a folder with a benchmark, whose items take so long, and the format; steps of ``worse`` get little right."""
    constants = {"ROWS": rows, "SECONDS": seconds, "WORSE": list(worse)}
    lines = [f"{name} = {value!r}\n" for name, value in constants.items()]
    (folder / "test_mine.py").write_text("".join([*lines, BENCHMARK]))
    (folder / "trainer.py").write_text(TRAINER)
    install(
        folder / "packages",
        "toy_format",
        FORMAT,
        {"touchstone.checkpoint_formats": {"toy": "toy_format:Toy"}},
    )
    return folder


def start(folder: Path, *options: str, python: str | None = None) -> subprocess.Popen[str]:
    """Start a watch of ``runs/a`` in a project, in a group of its own."""
    words = ("watch", "runs/a/checkpoint-*", "test_mine.py", "--poll", "0.2", *options)
    found = os.pathsep.join([str(folder / "packages"), str(SOURCE), str(ROOT)])
    return subprocess.Popen(
        [python or forking.python(), "-m", "pytest_touchstone.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": found, "TOUCHSTONE_CACHE": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@contextmanager
def watching(folder: Path, *options: str, python: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """The same; whatever is left of it at the end is killed."""
    with start(folder, *options, python=python) as process:
        try:
            yield process
        finally:
            kill_all(folder)


def watched(folder: Path, *options: str, timeout: float = 300, python: str | None = None) -> tuple[int, str]:
    """Watch until the end; return exit code and output."""
    with watching(folder, *options, python=python) as process:
        said, _ = process.communicate(timeout=timeout)
        return process.returncode, said


def running(folder: Path) -> list[int]:
    """The processes that were started in a folder, by what the system says of them."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                if place.joinpath("cwd").resolve(strict=True) == folder.resolve():
                    found.append(int(place.name))
            except OSError:
                continue
    return found


def kill_all(folder: Path) -> None:
    """Kill what was started in a folder."""
    for process in running(folder):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def asked(folder: Path) -> Counter[tuple[str, str]]:
    """How often each item was asked of each checkpoint, by the journals of all runs, without what was reused."""
    found: Counter[tuple[str, str]] = Counter()
    for journal in sorted(folder.glob("results/watch-*/items/items-*.jsonl")):
        for line in journal.read_text().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # the last line of what was killed
            if row.get("status") == "scored" and not row.get("reused_from"):
                found[row["checkpoint"], row["example"]] += 1
    return found
