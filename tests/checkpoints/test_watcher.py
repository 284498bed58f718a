"""Checkpoints are given once they are whole, the newest first, whatever a trainer does meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_touchstone.checkpoints.resolve import resolve
from pytest_touchstone.checkpoints.watcher import CheckpointWatcher
from tests.support.tiny import split_weights, tiny_causal, trainer_state

SETTLE = 5.0


class Watcher:
    """Looks at a folder's checkpoints every ten seconds of its own clock."""

    def __init__(self, folder: Path, pattern: str = "*") -> None:
        self.now = 0.0
        self.arrivals = CheckpointWatcher(
            str(folder / pattern), SETTLE, lambda path: resolve(str(path), seq_len=None)[0], 0.0
        )

    def look(self, seconds: float = 10.0) -> list[str]:
        """The names of those that are whole after some time."""
        self.now += seconds
        return [one.path.name for one in self.arrivals.look(self.now)]


def copied(whole: Path, folder: Path, step: int) -> Path:
    path = Path(shutil.copytree(whole, folder / f"checkpoint-{step}"))
    return trainer_state(path, global_step=step, epoch=1.0)


def test_the_newest_by_its_step_comes_first(whole: Path, tmp_path: Path) -> None:
    for step in (1000, 200, 30):
        copied(whole, tmp_path, step)
    watcher = Watcher(tmp_path)
    assert watcher.look() == []
    assert watcher.look() == ["checkpoint-1000", "checkpoint-200", "checkpoint-30"]


def test_what_is_written_to_is_left_alone_until_it_rests(whole: Path, tmp_path: Path) -> None:
    path, watcher = copied(whole, tmp_path, 10), Watcher(tmp_path)
    watcher.look()
    for size in range(1, 4):
        (path / "optimizer.pt").write_bytes(b"x" * size)
        assert watcher.look() == []
    assert watcher.look(SETTLE - 1) == []
    assert watcher.look(1.0) == ["checkpoint-10"]


def test_a_checkpoint_that_is_written_anew_is_another_one(whole: Path, tmp_path: Path) -> None:
    path, watcher = copied(whole, tmp_path, 10), Watcher(tmp_path)
    watcher.look()
    (first,) = watcher.arrivals.look(20.0)
    assert not first.changed()
    (path / "notes.txt").write_text("the trainer's")  # on which no answer depends
    assert not first.changed()
    os.utime(path / "model.safetensors", ns=(5, 5))
    assert first.changed()
    watcher.look(30.0)
    (second,) = watcher.arrivals.look(60.0)
    assert second.stamp != first.stamp
    shutil.rmtree(path)
    assert not second.changed()


@pytest.mark.parametrize(
    "name", ["tmp-checkpoint-5", ".checkpoint-5", "checkpoint-5.tmp", "_temp_checkpoint-5"]
)
def test_a_temporary_folder_is_not_looked_at_until_it_is_renamed(
    name: str, whole: Path, tmp_path: Path
) -> None:
    path, watcher = Path(shutil.copytree(whole, tmp_path / name)), Watcher(tmp_path)
    assert [watcher.look(), watcher.look()] == [[], []]
    path.rename(tmp_path / "checkpoint-5")
    watcher.look()
    assert watcher.look() == ["checkpoint-5"]


def test_what_is_removed_or_renamed_is_no_longer_there(whole: Path, tmp_path: Path) -> None:
    paths, watcher = [copied(whole, tmp_path, step) for step in (1, 2)], Watcher(tmp_path, "checkpoint-*")
    watcher.look()
    assert watcher.look() == ["checkpoint-2", "checkpoint-1"]
    shutil.rmtree(paths[0])
    paths[1].rename(tmp_path / "best")
    assert watcher.look() == []
    assert watcher.arrivals.last_change == watcher.now
    shutil.rmtree(tmp_path)
    assert watcher.look() == []


@pytest.mark.parametrize("lacks", ["model-00002-of-00002.safetensors", "tokenizer.json", "config.json"])
def test_without_one_of_its_files_it_waits_and_says_why(lacks: str, tmp_path: Path) -> None:
    path = tiny_causal(tmp_path / "checkpoint-7")
    split_weights(path)
    kept, watcher = (path / lacks).read_bytes(), Watcher(tmp_path)
    (path / lacks).unlink()
    watcher.look()
    assert watcher.look() == []
    assert list(watcher.arrivals.refused()) == [path]
    (path / lacks).write_bytes(kept)
    watcher.look()
    assert watcher.look() == ["checkpoint-7"]
    assert watcher.arrivals.refused() == {}


@pytest.fixture(scope="module")
def cut(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(whole, tmp_path_factory.mktemp("cut"), 9)


@example(share=0.0)
@example(share=0.9999)
@given(share=st.floats(0.0, 0.9999))
def test_no_beginning_of_the_weights_is_whole(share: float, whole: Path, cut: Path) -> None:
    content = (whole / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(content[: int(share * len(content))])
    watcher = Watcher(cut.parent)
    assert [watcher.look(), watcher.look()] == [[], []]
    assert str(cut) in next(iter(watcher.arrivals.refused().values()))
