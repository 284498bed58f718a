"""A benchmark that was edited and kept its version: its results are not compared as if nothing had happened."""

from __future__ import annotations

import pytest

from pytest_touchstone.cli import main
from tests.support.project import BENCHMARK, Project


def edited(project: Project, before: str, after: str) -> None:
    text = BENCHMARK.format(extra="pass").replace(before, after)
    (project.path / "test_sums.py").write_text(text, encoding="utf-8")


def test_other_prompts_are_said_by_the_gate_and_by_a_comparison(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run("--eval-run-id", "a")
    edited(project, 'fewshot.text + example["q"]', 'fewshot.text + "Say: " + example["q"]')
    done = project.run("--gate", "--eval-run-id", "b")
    told = " ".join(done.stdout.str().split())
    assert "sums: other prompts than the baseline's in 20 of 20 items: the benchmark has changed" in told
    monkeypatch.chdir(project.path)
    capsys.readouterr()
    assert main(["compare", "results/a", "results/b"]) == 0
    assert "not asked alike, prompts " in capsys.readouterr().out


def test_an_edit_that_leaves_the_prompts_is_none_of_them(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run("--eval-run-id", "a")
    edited(project, "Which of two sums is likelier.", "The likelier sum.")
    assert "other prompts" not in project.run("--gate", "--eval-run-id", "b").stdout.str()
    monkeypatch.chdir(project.path)
    capsys.readouterr()
    assert main(["compare", "results/a", "results/b"]) == 0
    assert "not asked alike" not in capsys.readouterr().out
