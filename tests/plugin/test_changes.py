"""The changes against the best so far are in a run's output, and saved results are ranked on request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.results.store import ResultStore
from tests.support.entries import entry, right
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
    assert "| score |  | 0.5400 | 0.5560 | +1.60 | +3.0 |" in text
    assert "real@5 | 0.4000 | 0.3600 | -4.00 | -10.0 | fake-causal of run first |" in text


def test_a_part_of_the_items_has_no_best_so_far_nor_is_one(korean: Project) -> None:
    scored(korean, 60, "part", "--eval-limit", "50")
    assert not [line for line in scored(korean, 64, "whole") if "so far" in line]


# The list of saved results


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder with three checkpoints of one benchmark, of which two have all parts of ``score_wiki``."""
    store = ResultStore(tmp_path / "results")
    for place, (name, first, fifth) in enumerate((("a", 60, 80), ("b", 70, 75), ("c", 65, 90))):
        columns = {"real@1": right(first, 100), "real@5": right(fifth, 100)}
        one = entry(columns, checkpoint=name, benchmark="real_coref", began=float(place))
        store.save(one.saved, one.items)
        if name != "c":
            one = entry(
                {"lambada@1": right(50 - 20 * place, 50)}, checkpoint=name, benchmark="ko_lambada_wiki"
            )
            store.save(one.saved, one.items)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(saved: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """The lines of ``touchstone baseline list``, which ends with 0."""

    def run(*arguments: str) -> list[str]:
        assert main(["baseline", "list", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize(
    ("by", "order", "best"),
    [("real@1", "b c a", "0.7000"), ("real@5", "c a b", "0.9000"), ("score_wiki", "a b", "0.7800")],
)
def test_checkpoints_are_ranked_by_a_metric_or_a_composite(
    said: Callable[..., list[str]], by: str, order: str, best: str
) -> None:
    head, *rows = said("--by", by)
    assert head.split() == (["score_wiki"] if by == "score_wiki" else ["real_coref", by])
    assert [row.split()[-2] for row in rows] == order.split()
    assert [row.split()[0] for row in rows] == [str(place + 1) for place in range(len(rows))]
    assert rows[0].split()[1] == best
    assert max(map(len, rows)) <= 80


def test_a_ranking_is_json_on_request(said: Callable[..., list[str]]) -> None:
    found = json.loads("\n".join(said("--by", "score_wiki", "--format", "json")))
    [ranking] = found["rankings"]
    assert (found["by"], ranking["name"], ranking["metric"]) == ("score_wiki", "score_wiki", "composite")
    assert [(row["checkpoint"], row["n"]) for row in ranking["rows"]] == [("a", 150), ("b", 150)]
    assert all(row["low"] < row["value"] < row["high"] for row in ranking["rows"])


def test_a_composite_of_which_a_part_is_missing_says_which(said: Callable[..., list[str]]) -> None:
    assert said("--by", "score") == [
        "score = 0.4 real_coref:real@1 + 0.3 real_coref:real@5 + 0.3 ko_lambada:lambada@1: "
        "no whole result has ko_lambada:lambada@1"
    ]
    assert said("--by", "real@1", "--output", "nowhere") == ["no saved results in nowhere/"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by", "real@2"], "--by: unknown metric 'real@2'; did you mean 'real@"),
        (["--by", "score", "--benchmark", "real_coref"], "--by score: it is made of several benchmarks"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--format", "json"]])
def test_what_cannot_be_ranked_is_one_line_and_exit_code_4(
    saved: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str, more: list[str]
) -> None:
    assert main(["baseline", "list", *arguments, *more]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err
