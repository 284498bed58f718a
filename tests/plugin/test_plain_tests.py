"""Ordinary tests that ask for the checkpoint under test, or its engine."""

from __future__ import annotations

import pytest

from tests.support.places import ROOT
from tests.support.project import Project

TESTS = """
from pytest_touchstone import Loglikelihood

def test_capital(model_engine):
    paris, rome = model_engine.answer([
        Loglikelihood("The capital of France is", " Paris"), Loglikelihood("The capital of France is", " Rome")
    ])
    assert paris.logprob != rome.logprob

def test_name(checkpoint, model_engine):
    assert checkpoint.name == model_engine.info.name

def test_plain():
    assert True
"""


@pytest.fixture
def plain(project: Project) -> Project:
    """A project with ordinary tests and no benchmark."""
    (project.path / "test_sums.py").unlink()
    (project.path / "test_plain.py").write_text(TESTS)
    return project


@pytest.mark.parametrize("workers", ["0", "2"])
def test_each_runs_once_per_checkpoint(plain: Project, workers: str) -> None:
    result = plain.run("-v", "-W", "error", "-n", workers)
    result.assert_outcomes(passed=3)
    assert "test_capital[fake-causal]" in str(result.stdout)
    assert not (plain.path / "results").exists()


def test_several_checkpoints_are_the_parameters(plain: Project) -> None:
    (plain.path / "test_plain.py").write_text("def test_name(checkpoint):\n    assert checkpoint.kind\n")
    result = plain.run("--checkpoint", "fake:masked", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(["*test_name?fake-causal?*", "*test_name?fake-masked?*"])


def test_without_a_checkpoint_they_are_skipped(plain: Project) -> None:
    result = plain.run("-rs", checkpoint="")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["*no checkpoint; give --checkpoint PATH*"])


@pytest.mark.parametrize(("options", "told"), [((), False), (("--checkpoint", "fake:causal"), True)])
def test_a_mistake_in_the_options_of_others_is_no_run_of_benchmarks(
    plain: Project, options: tuple[str, ...], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    conftest = "def pytest_addoption(parser):\n    parser.addoption('--level', type=int)\n"
    (plain.path / "conftest.py").write_text(conftest)
    result = plain.pytester.runpytest("--level=high", *options)
    assert result.ret == 4
    assert ("::error" in f"{result.stdout}{result.stderr}") is told


def test_beside_a_benchmark_they_have_pytests_own_outcome(plain: Project) -> None:
    plain.write()
    result = plain.run()
    result.assert_outcomes(passed=23)
    assert {row["benchmark"] for row in plain.summary["results"]} == {"sums"}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_checkpoint_that_is_none_is_one_line(plain: Project, workers: str) -> None:
    result = plain.run("-n", workers, checkpoint="no-such-folder")
    assert result.ret == 4
    (line,) = filter(None, result.errlines)
    assert "no-such-folder" in line


def test_the_page_of_the_documentation_shows_a_test_that_runs(plain: Project) -> None:
    text = (ROOT / "docs" / "plain-tests.md").read_text(encoding="utf-8")
    example = text.split("```python\n")[1].split("```")[0]
    (plain.path / "test_plain.py").write_text(example.replace("assert paris.logprob > rome.logprob", "pass"))
    plain.run().assert_outcomes(passed=2)
