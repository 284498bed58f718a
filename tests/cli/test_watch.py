"""``touchstone watch`` as a person sees it: lines, page, ends, mistakes."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.document import Section
from pytest_touchstone.reports.pages import live_page
from tests.support.lines import missing
from tests.support.watching import asked, checkpoint, project, start, watched, watching

RESTLESS = '<meta http-equiv="refresh"'


def page_of(folder: Path) -> str:
    (path,) = folder.glob("results/watch-a-*.html")
    return path.read_text()


def test_each_checkpoint_has_a_line_and_the_page_its_curve_and_a_worse_one_is_told(tmp_path: Path) -> None:
    folder = project(tmp_path, rows=24, worse=[2])
    for step in (1, 2):
        checkpoint(folder / "runs" / "a", step)
    command = 'echo "$WATCH_VERDICT $WATCH_CHECKPOINT" >> told'
    options = ("--until", "step=2", "--on-worse", command, "--stop-file", "stop")
    code, said = watched(folder, *options)
    assert code == 8, said
    assert re.search(
        r"^checkpoint-2\s+mine\s+0\.1250\s+\[0\.\d{4}, 0\.\d{4}\]\s+the first$", said, re.MULTILINE
    )
    assert not missing(said, "checkpoint-1 mine 1.0000 [0.8620, 1.0000]", "WORSE since: checkpoint-2")
    assert not missing(said.splitlines()[-1], "2 checkpoints", "1 worse")
    assert max(map(len, said.splitlines())) <= 80
    assert (folder / "told").read_text() == f"worse {folder}/runs/a/checkpoint-2\n"
    assert "WORSE" in (folder / "stop").read_text()
    page = page_of(folder)
    assert "<svg" in page
    assert "checkpoint-1 is the best" in page
    assert RESTLESS not in page  # nothing changes any more
    before = asked(folder)
    code, said = watched(folder, *options)
    assert (code, said.count("checkpoint-")) == (8, 1), said  # the pattern: no line twice
    assert "2 checkpoints scored before" in said
    assert asked(folder) == before
    assert (folder / "told").read_text().count("\n") == 1


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_scored_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = project(tmp_path, rows=60, seconds=0.3)
    checkpoint(folder / "runs" / "a", 1)
    with watching(folder, "--eval-set", "batch_items=4") as watch:
        end = time.monotonic() + 120
        while len(asked(folder)) < 3:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert "Scoring checkpoint-1 since " in page_of(folder)
        assert RESTLESS in page_of(folder)
        shutil.rmtree(folder / "runs")  # by the trainer; what is loaded is scored on
        watch.send_signal(signal.SIGINT)
        said, _ = watch.communicate(timeout=60)
    assert watch.returncode == 2, said
    assert not missing(said.splitlines()[-1], "0 checkpoints", "same command")
    kept = asked(folder)
    checkpoint(folder / "runs" / "a", 1)
    code, said = watched(folder, "--until", "step=1")
    assert code == 0, said
    assert asked(folder) == {("checkpoint-1", f"mine/{row}"): 1 for row in range(60)}
    assert kept


@pytest.mark.slow
def test_two_watches_without_locks_mix_no_scores_and_miss_no_worse_checkpoint(tmp_path: Path) -> None:
    """As in two machines on a network drive."""
    folder = project(tmp_path, rows=24, seconds=0.05, worse=[2])
    (folder / "packages" / "sitecustomize.py").write_text("import fcntl\nfcntl.flock = lambda *_: None\n")
    for step in (1, 2):
        checkpoint(folder / "runs" / "a", step)
    with (
        watching(folder, "--until", "step=2", python=sys.executable) as one,
        watching(folder, "--until", "step=2", python=sys.executable) as other,
    ):
        texts = [watch.communicate(timeout=120)[0] for watch in (one, other)]
    assert [one.returncode, other.returncode] == [0, 0], texts
    assert "WORSE since: checkpoint-2" in "".join(texts)
    assert "given up" not in "".join(texts)
    values = [
        (result["checkpoint"], result["metrics"]["acc"]["value"])
        for path in folder.glob("results/watch-*/summary.json")
        for result in json.loads(path.read_text())["results"]
    ]
    assert set(values) == {("checkpoint-1", 1.0), ("checkpoint-2", 0.125)}


@pytest.mark.slow
def test_a_run_that_crashes_is_told_in_a_line_and_tried_again_once(tmp_path: Path) -> None:
    folder = project(tmp_path)
    with (folder / "test_mine.py").open("a") as file:
        file.write("\nimport os, sys\n\nif '--eval-dry-run' not in sys.argv:\n    os._exit(77)\n")
    checkpoint(folder / "runs" / "a", 1)
    code, said = watched(folder, "--until", "idle=2s")
    assert code == 9
    assert said.count("tried again") == said.count("given up") - 1 == 1, said
    assert "exit code 77" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["runs/*", "--until", "step=x"], "--until: invalid 'step=x': expected step=N or idle=TIME"),
        (["runs/*", "--poll", "0"], "--poll 0: expected seconds above 0"),
        (["runs/*", "--checkpoint", "x"], "--checkpoint: a watch has its own"),
        (["runs/*", "--eval-limit", "-3"], "--eval-limit"),
        (["runs/*", "--eval-steps", "5:1"], "--eval-steps"),
        (["fake:causal"], "fake:causal: expected checkpoints on disk"),
        (["runs/*", "--stop-file", "results"], "--stop-file results: is a folder"),
        (["runs/*", "--on-worse", "https://x.example/hook"], "--on-worse: give a command that sends it"),
        (["runs/*", "--tasks", "arc_esy"], "did you mean arc_easy?"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_scored(
    options: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    assert main(["watch", *options]) == 4
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_a_second_watch_of_the_same_waits_for_the_first(tmp_path: Path) -> None:
    folder = project(tmp_path)
    with watching(folder) as first:
        while not list(folder.glob("results/.watch-*.lock")):
            time.sleep(0.1)
        with start(folder, "--until", "idle=1s") as second:
            assert second.stdout is not None
            said = second.stdout.readline()
            first.kill()
            rest, _ = second.communicate(timeout=120)
    assert "another watch of the same" in said
    assert second.returncode == 0
    assert rest.endswith("ended: 0 checkpoints scored\n")


def test_the_name_of_a_training_is_no_markup_on_the_page(tmp_path: Path) -> None:
    title = "Checkpoints of runs/<script>alert(1)</script>/*"
    evil = Section(parts=("<img src=x onerror=alert(1)>",), urgent=True)
    text = live_page([evil], title=title, reload=10)
    assert "<script" not in text
    assert "<img" not in text
    assert '<meta http-equiv="refresh" content="10">' in text
