"""The changes against the best so far are in a run's output, and saved results are ranked on request."""

from __future__ import annotations

import pytest

from tests.support.lines import missing
from tests.support.project import Project

BENCHMARK = """
from pathlib import Path
from pytest_touchstone import Loglikelihood, benchmark


@benchmark(name="{name}", version=1, data="sums/test", asks=Loglikelihood, primary="{primary}")
def test_{name}(example):
    '''Right as often as the file "skill" says.'''
    yield [Loglikelihood(example["q"], " 1")]
    skill = int(Path("skill").read_text())
    return {{"{primary}": example["n"] < skill, "{second}": example["n"] < 100 - skill}}
"""


@pytest.fixture
def korean(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with the benchmarks that ``score`` is made of, 100 items each."""
    monkeypatch.setenv("COLUMNS", "80")
    (project.path / "test_sums.py").unlink()
    project.rows(100)
    for name, primary, second in (
        ("real_coref", "real@1", "real@5"),
        ("ko_lambada", "lambada@1", "lambada@1_strict"),
    ):
        text = BENCHMARK.format(name=name, primary=primary, second=second)
        (project.path / f"test_{name}.py").write_text(text, encoding="utf-8")
    (project.path / "pyproject.toml").write_text(
        "[tool.touchstone.composites]\n"
        'score = { "real_coref:real@1" = 0.4, "real_coref:real@5" = 0.3, "ko_lambada:lambada@1" = 0.3 }\n'
    )
    return project


def scored(project: Project, skill: int, run_id: str, *arguments: str) -> list[str]:
    """The lines of a run."""
    (project.path / "skill").write_text(str(skill))
    result: pytest.RunResult = project.run("--eval-run-id", run_id, *arguments)
    assert result.ret == 0
    return result.outlines


def test_every_metric_and_the_composite_stand_with_their_change_at_80_columns(korean: Project) -> None:
    first = scored(korean, 60, "first", "--eval-set", "markdown=first.md")
    assert not [line for line in first if "so far" in line]
    assert "best so far" not in (korean.path / "first.md").read_text(encoding="utf-8")
    lines = scored(korean, 64, "second", "--eval-set", "markdown=second.md", "-v")
    at = next(place for place, line in enumerate(lines) if line.strip() == "best")
    assert [line.split() for line in lines[at + 1 : at + 7]] == [
        ["benchmark", "metric", "so", "far", "now", "points", "%", "against"],
        ["ko_lambada", "lambada@1", "0.6000", "0.6400", "+4.00", "+6.7", "fake-causal", "of", "run", "first"],
        ["lambada@1_strict", "0.4000", "0.3600", "-4.00", "-10.0", "fake-causal", "of", "run", "first"],
        ["real_coref", "real@1", "0.6000", "0.6400", "+4.00", "+6.7", "fake-causal", "of", "run", "first"],
        ["real@5", "0.4000", "0.3600", "-4.00", "-10.0", "fake-causal", "of", "run", "first"],
        ["score", "0.5400", "0.5560", "+1.60", "+3.0", "fake-causal", "of", "run", "first"],
    ]
    assert max(map(len, lines[at : at + 7])) <= 80
    text = (korean.path / "second.md").read_text(encoding="utf-8")
    assert any(not missing(line, "score", "0.5400 | 0.5560 | +1.60", "+3.0") for line in text.splitlines())
    assert not missing(text, "real@5 | 0.4000 | 0.3600", "-4.00 | -10.0 | fake-causal", "of run first")


def test_a_part_of_the_items_has_no_best_so_far_nor_is_one(korean: Project) -> None:
    scored(korean, 60, "part", "--eval-limit", "50")
    assert not [line for line in scored(korean, 64, "whole") if "so far" in line]
