"""A multi-token-prediction checkpoint in a run: speculative decoding is counted in the results."""

from __future__ import annotations

import json

from tests.support.project import Project

BENCHMARK = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="texts", version=1, data="sums/test", asks=Generate, primary="some")
def test_texts(example):
    '''Whether there is a text.'''
    answer = yield Generate("def add(a, b):" + example["q"], max_new_tokens=24)
    return {"some": bool(answer.samples[0].text)}
"""


def test_lengths_accuracy_and_metadata_of_a_model_with_several_heads_are_in_the_results(
    project: Project,
) -> None:
    (project.path / "test_sums.py").write_text(BENCHMARK, encoding="utf-8")
    project.rows(6)
    result = project.run("-v", checkpoint="builtin:mtp-tiny")
    assert result.ret == 0
    shown = " ".join(line.strip() for line in result.outlines)
    assert "epoch" in shown
    assert "validation loss" in shown
    assert "speculative decoding for" in shown
    assert "heads 1 to 3" in shown
    (folder,) = project.runs
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (cost,) = summary["effort"]
    proposed = cost["engine"]["speculative"]
    assert proposed["mean_length"] >= 1.0
    assert len(proposed["accuracy"]) == 3
    (checkpoint,) = summary["manifest"]["checkpoints"]
    assert checkpoint["epoch"] > 1
    assert checkpoint["val_loss"] > 1
    assert checkpoint["training"]["config"]["training"]["batch"] == 8
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "speculative decoding for" in text


def test_without_proposals_nothing_is_said_of_it(project: Project) -> None:
    (project.path / "test_sums.py").write_text(BENCHMARK, encoding="utf-8")
    project.rows(3)
    result = project.run("--eval-set", "speculative=off", checkpoint="builtin:mtp-tiny")
    assert result.ret == 0
    assert "speculative decoding" not in result.stdout.str()
