"""A watch, or the trainer that it watches, is killed at random moments: nothing is lost, nothing scored twice, and no
half of a checkpoint scored."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.watching import asked, checkpoint, kill_all, project, start, watched, watching

ROWS = 6


def once(steps: int) -> dict[tuple[str, str], int]:
    """Each item of each checkpoint, asked once."""
    return {(f"checkpoint-{step}", f"mine/{row}"): 1 for step in range(1, steps + 1) for row in range(ROWS)}


def finished(folder: Path) -> list[str]:
    """The checkpoints with a run that has summed up, each as often as there are such runs."""
    runs = folder.glob("results/watch-*/summary.json")
    return sorted(path.parent.name.split("-")[3] + path.parent.name.split("-")[4] for path in runs)


@pytest.mark.parametrize(("kills", "steps"), [(1, 2), pytest.param(50, 6, marks=pytest.mark.slow)])
def test_a_watch_that_is_killed_at_any_moment_goes_on(kills: int, steps: int, tmp_path: Path) -> None:
    folder, chance = project(tmp_path, rows=ROWS, seconds=0.2), random.Random(7)
    for step in range(1, steps + 1):
        checkpoint(folder / "runs" / "a", step)
    checkpoint(folder / "runs" / "a", steps + 1, whole=False)
    for kill in range(kills):
        with start(folder) as process:
            time.sleep(chance.uniform(0.0, 5.0 * steps))
            process.kill()
        if kill % 2:  # else its run goes on alone
            kill_all(folder)
    code, said = watched(folder, "--until", f"step={steps}", "--until", "idle=5s", timeout=1200)
    assert code == 0, said
    assert asked(folder) == once(steps)
    assert finished(folder) == [f"checkpoint{step}" for step in range(1, steps + 1)]


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_a_trainer_that_is_killed_at_any_moment_leaves_nothing_that_is_scored_by_half(
    kills: int, tmp_path: Path
) -> None:
    folder, chance = project(tmp_path, rows=ROWS), random.Random(11)

    def trainer(steps: int) -> subprocess.Popen[bytes]:
        words = ("-S", "trainer.py", "runs/a", str(steps), "1.0")  # a second for each checkpoint
        return subprocess.Popen([sys.executable, *words], cwd=folder)

    with watching(folder, "--until", "idle=10s") as watch:
        for _ in range(kills):
            process = trainer(1000)
            time.sleep(chance.uniform(0.0, 1.4))
            assert process.poll() is None
            process.kill()
            process.wait()
        steps = len(list(folder.glob("runs/a/checkpoint-*")))
        assert trainer(steps).wait() == 0  # the last one is written anew, and whole
        said, _ = watch.communicate(timeout=1200)
    assert watch.returncode == 0, said
    assert asked(folder) == once(steps)
    assert finished(folder) == sorted(f"checkpoint{step}" for step in range(1, steps + 1))
