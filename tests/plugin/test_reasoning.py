"""A reasoning before the answer changes no score, is kept, and is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.core.files import shipped_evals
from pytest_touchstone.core.requests import Generate, Generated
from pytest_touchstone.engines import fake
from pytest_touchstone.results.journal import latest_records, read_journal
from pytest_touchstone.results.records import Record
from tests.support.lines import missing
from tests.support.project import ALONE, Project

TRACE = 'Question: is it #### 7, \\boxed{8} or "(B)"?\n\nThe answer is 9.\n```python\nassert False\n```\n'
TASKS = "gsm8k,math,drop,mmlu_pro,bbh,ifeval"


def before_texts(monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """Let the made-up model begin each text with this."""
    plain = fake._sample

    def sample(request: Generate, number: int) -> Generated:
        made = plain(request, number)
        return replace(made, text=f"{before}{made.text.lstrip()}")

    monkeypatch.setattr(fake, "_sample", sample)


def reasoning(monkeypatch: pytest.MonkeyPatch, begin: str = "<think>", end: str = "</think>") -> None:
    """Let the made-up model reason before each text."""
    before_texts(monkeypatch, f"{begin}{TRACE}{end}\n\n")


def records(folder: Path) -> dict[str, Record]:
    return {one.example: one for one in latest_records(read_journal(folder)).values()}


def test_scores_of_all_kinds_of_texts_are_the_same_with_a_reasoning_before_them(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    before_texts(monkeypatch, "")
    for name in ("plain", "traced"):
        options = (
            f"--eval-tasks={TASKS}",
            "--eval-limit=1",
            f"--eval-run-id={name}",
            "--eval-no-cache",
            "-q",
        )
        done = pytester.runpytest(
            *ALONE,
            *options,
            "--checkpoint=fake:causal",
            "-p",
            "pytest_touchstone.plugin",
            str(shipped_evals()),
        )
        assert done.ret == 0
        found.append(records(pytester.path / "results" / name))
        reasoning(monkeypatch)
    plain, traced = found
    assert len(plain) > 10
    assert {name: (one.scores, one.facts) for name, one in plain.items()} == {
        name: (one.scores, one.facts) for name, one in traced.items()
    }
    assert {one.reasoned for one in plain.values()} == {0}
    assert {one.reasoned for one in traced.values()} == {1}
    samples = [one.exchanges[0]["answer"]["samples"][0] for one in traced.values()]
    assert {one["reasoning"] for one in samples} == {TRACE.strip()}


BENCHMARK = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="says", version=1, data="sums/test", asks=Generate, primary="acc")
def test_says(example):
    '''Does the text hold a nine?'''
    answer = yield Generate(example["q"], max_new_tokens=10_000)
    return {"acc": "9" in answer.text, "no_answer": not answer.text.strip()}
"""


@pytest.fixture
def says(project: Project) -> Project:
    (project.path / "test_sums.py").write_text(BENCHMARK, encoding="utf-8")
    return project


def test_what_was_reasoned_and_did_not_end_is_told(says: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    reasoning(monkeypatch)
    plain = fake._sample

    def sample(request: Generate, number: int) -> Generated:
        made = plain(request, number)
        cut = "3" in request.prompt
        return replace(made, text="<think>9 and", finish_reason="length") if cut else made

    monkeypatch.setattr(fake, "_sample", sample)
    done = says.run()
    (result,) = says.summary["results"]
    assert 0 < result["unanswered"] < result["reasoned"] == 20
    whole, alone = result["unanswered"], result["trace_only"]
    assert 0 < alone < whole
    told = (
        f"no answer in {whole} of 20 outputs, {whole - alone} empty at the limit of tokens and {alone} with"
    )
    assert told in " ".join(done.stdout.str().split())


def test_a_mark_in_an_answer_that_nobody_asked_for_is_a_note(
    says: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasoning(monkeypatch)
    done = says.run("--eval-set=think_end=off")
    (result,) = says.summary["results"]
    assert (result["reasoned"], result["traces_seen"]) == (0, 20)
    assert not missing(done.stdout.str(), "reasoning seems", "20 of 20 texts")


def test_a_mark_of_ones_own_is_named_and_runs_with_other_marks_are_not_compared(
    says: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reasoning(monkeypatch, "", "<<over>>")
    says.run("--eval-run-id=whole")
    assert says.summary["results"][0]["reasoned"] == 0
    says.run("--eval-run-id=own", "--eval-set=think_end=<<over>>")
    folders = [says.path / "results" / name for name in ("whole", "own")]
    own = json.loads((folders[1] / "summary.json").read_text(encoding="utf-8"))
    assert own["results"][0]["reasoned"] == 20
    capsys.readouterr()
    main(["compare", *map(str, folders)])
    assert "think_end" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--eval-set=think_end=auto", "--eval-set=think_end=off"])
def test_scoring_again_takes_away_what_the_run_took_away(
    option: str, says: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reasoning(monkeypatch)
    says.run(option)
    (folder,) = says.runs
    capsys.readouterr()
    assert main(["score", str(folder), "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["items"], found["changes"]) == (20, [])
