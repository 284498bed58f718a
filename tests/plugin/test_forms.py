"""The forms of a benchmark by likelihood are asked where they are named, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.metrics.multiple_choice import bits_per_byte
from tests.support.mistakes import refused
from tests.support.references import plain_answer

Project = Any

FILE = """
from pytest_touchstone import Dataset, Generate, Shot, Shots, benchmark
from pytest_touchstone.metrics.gsm8k import GSM8K_SOLUTION

ROWS = [{"question": f"{n} + 9?", "answer": f"{n} + 9 = {n + 9}\\n#### {n + 9}"} for n in range(6)]


@benchmark("adds", version=1, rows=ROWS, asks=Generate, primary="right", solution=GSM8K_SOLUTION,
           shots=Shots(2, lambda row: Shot("Q: " + row["question"], row["answer"])))
def test_adds(example, fewshot):
    answer = yield fewshot.generate("Q: " + example["question"], max_new_tokens=4)
    return {"right": float(answer.text.endswith(example["answer"]))}
"""


@pytest.fixture
def folder(project: Project) -> Project:
    """A benchmark of texts with published solutions."""
    (project.path / "test_sums.py").write_text(FILE)
    return project


def test_a_run_asks_a_form_only_where_it_is_named(folder: Project) -> None:
    result = folder.run()
    assert result.ret == 0
    result.assert_outcomes(passed=6, deselected=0)
    assert {name.partition("/")[0] for name in folder.scores()} == {"adds"}
    assert folder.run("--eval-tasks", "adds:bpb,adds:contrast").ret == 0
    assert sorted(folder.scores()) == [f"adds:{form}/{n}" for form in ("bpb", "contrast") for n in range(6)]
    refused(folder.run("--eval-tasks", "adds:bbp"), "no such benchmark", "adds:bpb")


def test_numbers_are_those_of_a_plain_loop_with_transformers(folder: Project, whole: Path) -> None:
    assert folder.run("--eval-tasks", "adds:bpb,adds,adds:contrast", checkpoint=str(whole)).ret == 0
    (run,) = folder.runs
    lines = [json.loads(line) for path in run.glob("items/*.jsonl") for line in path.read_text().splitlines()]
    asked = {line["example"]: line for line in lines if "example" in line}
    prompts = {
        name: one["exchanges"][0]["request"] for name, one in asked.items() if name.startswith("adds/")
    }
    for number in range(6):
        context = prompts[f"adds/{number}"]["prompt"]
        assert context.count("Q: ") == 3  # two examples, the same for each form
        text = f"{number} + 9 = {number + 9}\n#### {number + 9}"
        plain = plain_answer(whole, Loglikelihood(context, f" {text}"))
        found = asked[f"adds:bpb/{number}"]["scores"]["bits_per_byte"]
        assert found == pytest.approx(bits_per_byte(plain.logprob, text), abs=1e-5)
        steps, right = text.rsplit(" ", 1)
        near = (int(right) + 1, int(right) - 1, 2 * int(right), 10 * int(right))
        sums = [
            plain_answer(whole, Loglikelihood(f"{context} {steps}", f" {one}")).logprob
            for one in (right, *near)
        ]
        assert asked[f"adds:contrast/{number}"]["scores"]["acc"] == float(sums[0] == max(sums))


def test_a_form_is_listed_scored_by_workers_and_rescored(
    folder: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.run("--eval-tasks", "adds:bpb", "-n", "2").ret == 0
    (run,) = folder.runs
    capsys.readouterr()
    assert main(["score", str(run), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["items"], told["unscored"]) == (6, [])
    assert main(["benchmarks", "gsm8k:bpb", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["asks"], row["metrics"]) == ("gsm8k:bpb", ["Loglikelihood"], ["bits_per_byte"])
