"""The callback for trainers: it scores a model in the middle of its training, which goes on as if nothing had been."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerCallback

from pytest_touchstone import training
from pytest_touchstone.core.errors import HarnessError, OptionError
from pytest_touchstone.plugin.finished_run import FinishedRun
from pytest_touchstone.results.journal import read_journal
from pytest_touchstone.training import EvaluationCallback
from tests.support.lines import naming
from tests.support.trainings import train, write_project


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    return tmp_path


def small(**more: Any) -> EvaluationCallback:
    return EvaluationCallback(tasks="small", benchmarks="test_small.py", **more)


def recorded(output: Path) -> Counter[tuple[str, str]]:
    """How often each item was computed, by the weights and the example, over all runs."""
    counted: Counter[tuple[str, str]] = Counter()
    for manifest in output.glob("*/run.json"):
        prints = {row["name"]: row["fingerprint"] for row in json.loads(manifest.read_text())["checkpoints"]}
        for record in read_journal(manifest.parent, exchanges=False):
            if record.status == "scored" and record.reused_from is None:
                counted[prints[record.checkpoint], record.example] += 1
    return counted


class Tracker(TrainerCallback):  # type: ignore[misc]
    """What every tracker is told."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        self.rows.append((state.global_step, dict(logs)))


@pytest.mark.slow
def test_a_training_is_bit_by_bit_the_same_with_several_evaluations_within() -> None:
    import torch

    how: dict[str, Any] = {
        "max_steps": 7,
        "activation_checkpointing": True,
        "save_steps": 4,
        "eval_strategy": "steps",
        "eval_steps": 3,
    }
    plain = train("plain", [], **how)
    tracker = Tracker()
    how |= {"metric_for_best_model": "eval_small_acc", "save_steps": 6, "load_best_model_at_end": False}
    scored = train("runs/a", [tracker, small(every=3, stop_after=3)], **how)
    assert scored.losses == plain.losses
    assert scored.batches == plain.batches
    assert all(torch.equal(plain.weights[name], one) for name, one in scored.weights.items())

    found = [row for row in scored.trainer.state.log_history if "eval_small_acc" in row]
    assert [row["step"] for row in found] == [3, 6, 7]
    assert all(
        row["eval_small_acc_low"] <= row["eval_small_acc"] <= row["eval_small_acc_high"] for row in found
    )
    assert {row["eval_worse_running"] for row in found} == {0.0}
    assert [step for step, row in tracker.rows if "eval_small_acc" in row] == [3, 6, 7]
    assert scored.trainer.state.best_metric == max(row["eval_small_acc"] for row in found[:2])

    runs = sorted(Path("runs/a/results").glob("*/summary.json"))
    rows = [FinishedRun(path.parent).summary.checkpoints[0] for path in runs]
    assert [(row["series"], row["step"], row["training"]["max_steps"]) for row in rows] == [
        ("runs/a", step, 7) for step in (3, 6, 7)
    ]
    # Saved by the trainer, it is the same checkpoint: nothing is asked of it again.
    again = pytest.importorskip("pytest_touchstone").evaluate(
        "runs/a/checkpoint-6", tasks="small", benchmarks="test_small.py", output="runs/a/results"
    )
    assert again.summary.checkpoints[0]["fingerprint"] == rows[1]["fingerprint"]
    assert max(recorded(Path("runs/a/results")).values()) == 1


class Verdicts:
    """Stands for what is scored: a verdict of the gate, or an error, each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *said: str | Exception) -> None:
        self.said = list(said)
        monkeypatch.setattr(training, "check_evaluation", lambda *_: None)
        monkeypatch.setattr(training, "evaluate_with", self)

    def __call__(self, given: Any, benchmarks: Any, live: Any = None) -> Any:
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        gate = {"decision": said}
        summary = SimpleNamespace(gate=gate, results=[], checkpoints=[])
        return SimpleNamespace(summary=summary, results=(), problems=(), directory="results/x")


def test_a_training_stops_after_three_verdicts_of_worse_running(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Verdicts(monkeypatch, "failed", "failed", "passed", "failed", "not valid", "failed", "failed", "failed")
    trained = train("runs/a", [small(every=1, stop_after=3)], max_steps=9, save_strategy="no")
    assert trained.trainer.state.global_step == 7
    counts = [
        row["eval_worse_running"] for row in trained.trainer.state.log_history if "eval_worse_running" in row
    ]
    assert counts == [1, 2, 0, 1, 1, 2, 3]
    (line,) = (record.message for record in caplog.records if record.name == "pytest_touchstone")
    assert naming("step 7", "3 times", "stop_after=3").search(line)


def test_an_error_in_scoring_is_one_line_and_the_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Verdicts(monkeypatch, HarnessError("no\nspace"), ZeroDivisionError("by zero"))
    how: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "small_acc"}
    trained = train("runs/a", [small(every=2)], max_steps=4, save_strategy="no", **how)
    assert trained.trainer.state.global_step == 4
    first, second = (record.message for record in caplog.records if record.name == "pytest_touchstone")
    assert naming("step 2", "no space").search(first)
    assert naming("step 4", "ZeroDivisionError: by zero").search(second)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"every": 0}, "invalid every 0: expected a whole number from 1 up"),
        ({"stop_after": 0}, "invalid stop_after 0: expected a whole number from 1 up"),
        ({"tasks": []}, "invalid tasks []: name one at least"),
        ({"limt": 3}, "evaluate() has no setting 'limt'"),
        ({"limit": "many"}, "limit 'many'"),
        ({"device": "cuda:1"}, "invalid device 'cuda:1': the model is in memory already; leave it out"),
        ({"checkpoint": "x"}, "checkpoint is the callback's own; leave it out"),
    ],
)
def test_a_mistake_in_an_argument_is_refused_at_once(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError) as raised:
        EvaluationCallback(**{"tasks": "small", **wrong})
    assert told in str(raised.value)


def test_a_best_metric_that_would_not_be_there_is_refused_before_the_first_step() -> None:
    with pytest.raises(OptionError, match=naming("eval_steps", "every")):
        train(
            "runs/a",
            [small(every=2)],
            max_steps=2,
            metric_for_best_model="small_acc",
            save_strategy="no",
            eval_strategy="steps",
            eval_steps=3,
        )


def test_a_name_that_no_benchmark_has_is_refused_before_the_first_step() -> None:
    with pytest.raises(HarnessError, match=naming("--eval-tasks 'smal'", "small")):
        train("runs/a", [EvaluationCallback("smal", benchmarks="test_small.py")], max_steps=2)
    assert not Path("runs/a/checkpoint-2").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(50, id="50")])
def test_a_trainer_killed_at_any_moment_scores_nothing_twice_and_loses_nothing(
    kills: int, folder: Path
) -> None:
    drawn = random.Random(kills)
    killed = lives = 0
    scoring = 10.0
    while killed < kills:
        lives += 1
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.trainings", "4"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
        )
        assert process.stdout is not None
        # Eight lines for four steps: it is killed after one of them, where it is scored mostly in the midst of that.
        last, ended = drawn.choice([1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 8, 8]), time.monotonic()
        for seen, line in enumerate((one for one in process.stdout if one.startswith(("step", "end"))), 1):
            if seen == last:
                break
            if line.startswith("step") and seen == 5:
                scoring = time.monotonic() - ended
            ended = time.monotonic()
        time.sleep(drawn.random() * (scoring if last in (4, 8) else 1.0))
        killed += process.poll() is None
        process.kill()
        process.wait()
        process.stdout.close()
    subprocess.run(
        [sys.executable, "-m", "tests.support.trainings", "2"], cwd=folder, check=True, capture_output=True
    )
    results = folder / "runs/a/results"
    times = recorded(results)
    assert max(times.values()) == 1, "an item was scored twice"
    complete = set()
    for path in results.glob("*/summary.json"):
        run = FinishedRun(path.parent)
        if run.valid and all(one.scored == one.collected for one in run.summary.results):
            complete.add(int(run.summary.checkpoints[0]["global_step"]))
    last = max(int(path.name.rpartition("-")[2]) for path in (folder / "runs/a").glob("checkpoint-*"))
    assert complete >= set(range(2, last + 1, 2)), "a step has no result"
    print(
        f"{killed} kills in {lives} lives, {last} steps, {len(times)} items, each scored once",
        file=sys.stderr,
    )
