"""A benchmark that was edited and kept its version: its results are not compared as if nothing had happened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from tests.support.lines import missing
from tests.support.project import BENCHMARK, Project
from tests.support.tiny import tiny_causal


def edited(project: Project, before: str, after: str) -> None:
    assert before in BENCHMARK
    text = BENCHMARK.format(extra="pass").replace(before, after)
    (project.path / "test_sums.py").write_text(text, encoding="utf-8")


def test_the_gate_refuses_a_baseline_with_other_prompts_and_a_comparison_says_so(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run("--eval-run-id", "a")
    edited(project, 'fewshot.text + example["q"]', 'fewshot.text + "Say: " + example["q"]')
    done = project.run("--gate", "--eval-run-id", "b")
    told = " ".join(done.stdout.str().split())
    assert not missing(told, "is not comparable", "in 20 of 20 items", "raise the version", "score it again")
    assert done.ret == 9
    monkeypatch.chdir(project.path)
    capsys.readouterr()
    assert main(["compare", "results/a", "results/b"]) == 0
    assert "not asked alike, prompts " in capsys.readouterr().out


def test_other_prompts_are_compared_where_that_is_allowed(project: Project) -> None:
    project.run("--eval-run-id", "a")
    edited(project, 'fewshot.text + example["q"]', 'fewshot.text + "Say: " + example["q"]')
    done = project.run("--gate", "--eval-baseline-allow", "prompts", "--eval-run-id", "b")
    told = " ".join(done.stdout.str().split())
    assert not missing(told, "sums: other prompts", "in 20 of 20 items")
    assert "is not comparable" not in told
    assert done.ret == 0


def test_of_several_baselines_those_with_other_prompts_are_left_out(project: Project, tmp_path: Path) -> None:
    llama = tiny_causal(tmp_path / "tiny")
    project.run("--eval-run-id", "a", checkpoint=str(llama))
    edited(project, 'fewshot.text + example["q"]', 'fewshot.text + "Say: " + example["q"]')
    project.run("--eval-run-id", "b")
    done = project.run("--gate", "--eval-run-id", "c")
    told = " ".join(done.stdout.str().split())
    assert not missing(told, "sums: not compared", "other prompts", f"{llama.name} in a")
    assert done.ret == 0


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


def test_where_the_run_of_the_baseline_is_gone_an_edit_of_the_file_is_said(project: Project) -> None:
    project.run("--eval-run-id", "a")
    shutil.rmtree(project.path / "results" / "a")
    same = project.run("--gate", "--eval-run-id", "same", "--eval-no-cache")
    assert "its file has changed" not in same.stdout.str()
    shutil.rmtree(project.path / "results" / "same")
    edited(project, 'fewshot.text + example["q"]', 'fewshot.text + "Say: " + example["q"]')
    done = project.run("--gate", "--eval-run-id", "b")
    told = " ".join(done.stdout.str().split())
    assert not missing(told, "note sums: its file has", "raise it if that changes")
    assert done.ret == 0
