"""``--eval-set beside``: the results of checkpoints beside the checkpoints, in a run of pytest."""

from __future__ import annotations

import json

import pytest

from tests.support.lines import missing
from tests.support.project import Project
from tests.support.tiny import tiny_causal, trainer_state


@pytest.mark.slow
def test_a_run_writes_beside_its_checkpoints_and_says_what_it_could_not_write(project: Project) -> None:
    for step in (100, 200):
        tiny_causal(project.path / "runs" / "a" / f"checkpoint-{step}")
        trainer_state(project.path / "runs" / "a" / f"checkpoint-{step}", global_step=step, epoch=step / 100)
    project.rows(3)
    theirs = project.path / "runs" / "a" / "checkpoint-200_eval_results.json"
    theirs.write_text('{"real1": 0.5}', encoding="utf-8")
    result = project.run("--checkpoint", "fake:causal", "--eval-set=beside", checkpoint="runs/a")
    assert result.ret == 1
    text = str(result.stdout)
    assert "beside      runs/a/checkpoint-100_eval_results.json" in text
    assert "nothing for fake-causal" in text
    assert not missing(text, "another program's file", "move it away")
    assert theirs.read_text(encoding="utf-8") == '{"real1": 0.5}'
    row = json.loads((project.path / "runs/a/checkpoint-100_eval_results.json").read_text(encoding="utf-8"))
    assert (row["checkpoint"], row["checkpoint_info"]["epoch"]) == ("runs/a/checkpoint-100", 1.0)
    assert row["results"]["sums"]["samples"] == 3
    assert len(json.loads((project.runs[0] / "summary.json").read_text(encoding="utf-8"))["results"]) == 3
