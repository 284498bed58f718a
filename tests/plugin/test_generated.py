"""Benchmarks of generated texts: what is counted of them, when a result is not valid, and scoring them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.core.requests import Generate, Generated
from pytest_touchstone.engines import fake
from pytest_touchstone.results.journal import latest_records, read_journal
from tests.support.project import Project

BENCHMARK = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="says", version=1, data="sums/test", asks=Generate, primary="acc"{more})
def test_says(example):
    '''Does the text hold the right number?'''
    answer = yield Generate(example["q"], max_new_tokens={limit})
    text = answer.samples[0].text
    return {{"acc": example["options"][0] in text, "no_answer": {no_answer}}}
"""


def write(project: Project, *, limit: int = 10_000, no_answer: str = "0", more: str = "") -> None:
    text = BENCHMARK.format(limit=limit, no_answer=no_answer, more=more)
    (project.path / "test_sums.py").write_text(text, encoding="utf-8")


def result(project: Project) -> dict[str, Any]:
    (found,) = project.summary["results"]
    return dict(found)


def test_outputs_are_counted_and_no_answer_is_no_metric(project: Project) -> None:
    write(project, no_answer="int(example['n'] == 3)")
    assert project.run().ret == 0
    found = result(project)
    assert (found["outputs"], found["at_limit"], found["no_answer"], found["chat"]) == (20, 0, 1, 0)
    assert found["invalid"] is None
    assert set(found["metrics"]) == {"acc"}


def test_texts_that_repeat_themselves_up_to_the_limit_are_counted(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = "So " + "the answer is 4, " * 9
    texts = [
        Generated(text=loop, tokens=9, finish_reason="length"),
        Generated(text="and then we add", tokens=9, finish_reason="length"),
        Generated(text=loop, tokens=9, finish_reason="eos"),
    ]

    def sample(request: Generate, number: int) -> Generated:
        return texts[sum(request.prompt.encode()) % 3]

    monkeypatch.setattr(fake, "_sample", sample)
    write(project)
    project.run()
    prompts = [record.exchanges[0]["request"]["prompt"] for record in project.records.values()]
    kinds = [sum(prompt.encode()) % 3 for prompt in prompts]
    assert {*kinds} == {0, 1, 2}
    found = result(project)
    assert (found["at_limit"], found["repeating"]) == (20 - kinds.count(2), kinds.count(0))
    assert [record.repeating for record in project.records.values()] == [kind == 0 for kind in kinds]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"limit": 1}, "outputs ended at the limit of new tokens"),
        ({"no_answer": "int(example['n'] < 3)"}, "3 of 20 outputs had no answer in them"),
    ],
)
def test_too_many_unusable_outputs_make_a_result_not_valid_everywhere(
    project: Project, case: dict[str, Any], said: str
) -> None:
    write(project, **case)
    run = project.run()
    assert run.ret == 0
    assert said in result(project)["invalid"]
    run.stdout.fnmatch_lines(["  says *acc* NOT VALID", "not valid   says: *"])
    (folder,) = project.runs
    assert "NOT VALID" in (folder / "report.html").read_text(encoding="utf-8")
    by_task = json.loads((folder / "details" / "fake-causal_results.json").read_text(encoding="utf-8"))
    assert said in by_task["results"]["says"]["not_valid"]


def test_a_result_that_is_not_valid_ends_a_strict_run_with_9(project: Project) -> None:
    write(project, limit=1)
    assert project.run("--eval-strict").ret == 9


def test_a_valid_result_ends_a_strict_run_with_0(project: Project) -> None:
    write(project)
    assert project.run("--eval-strict").ret == 0


def test_a_benchmark_may_allow_more(project: Project) -> None:
    write(project, no_answer="int(example['n'] < 3)", more=", most_unusable=0.15")
    assert project.run("--eval-strict").ret == 0


def rescored(project: Project, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    (folder,) = project.runs
    capsys.readouterr()
    assert main(["score", str(folder), "--format", "json", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_scoring_again_changes_nothing_when_nothing_has_changed(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project)
    project.run()
    found = rescored(project, capsys)
    assert (found["items"], found["changes"], found["unscored"]) == (20, [], [])
    (folder,) = project.runs
    assert main(["score", str(folder), "-o", "again.csv"]) == 0
    assert Path("again.csv").read_bytes() == (folder / "results.csv").read_bytes()


def test_scoring_again_lists_the_verdicts_that_another_rule_changes(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project)
    project.run()
    before = {example: record.scores["acc"] for example, record in project.records.items()}
    text = (project.path / "test_sums.py").read_text()
    (project.path / "test_sums.py").write_text(
        text.replace('"acc": example', '"acc": example["n"] > 17 or example')
    )
    found = rescored(project, capsys)
    expected = [name for name in ("sums/18", "sums/19") if not before[name.replace("sums", "says")]]
    assert len(found["changes"]) == len(expected) > 0
    assert all(change["scores"] == {"acc": [0.0, 1.0]} for change in found["changes"])


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_scoring_again_writes_a_new_run_or_a_table_and_never_over_another(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project)
    project.run("--eval-run-id", "first")
    before = contents(project.path / "results" / "first")
    path = project.path / "test_sums.py"
    path.write_text(path.read_text().replace('"acc": example', '"acc": example["n"] > 17 or example'))
    for target in ("results/again", "again.csv"):
        assert main(["score", "first", "-o", target]) == 0
        assert f"written to {target}" in capsys.readouterr().out
        assert main(["score", "first", "-o", target]) == 4
        assert f"touchstone: -o {target}: exists; name a new" in capsys.readouterr().err
    again = project.path / "results" / "again"
    assert (project.path / "again.csv").read_bytes() == (again / "results.csv").read_bytes()
    kept = {record.example: record for record in latest_records(read_journal(again)).values()}
    assert len(kept) == 20
    assert kept["says/19"].scores["acc"] == 1.0
    assert kept["says/19"].exchanges
    assert main(["compare", "first", "again"]) == 0
    assert contents(project.path / "results" / "first") == before


def test_items_whose_row_or_question_has_changed_are_not_scored_again(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project)
    project.run()
    data = project.path / "data" / "sums" / "test.jsonl"
    data.write_text(data.read_text().replace('"n": 4,', '"n": 44,'))
    ((_, why),) = rescored(project, capsys)["unscored"]
    assert "not in the data" in why
    assert main(["score", str(project.runs[0]), "-o", "again.csv"]) == 0
    assert ",19,20,false," in Path("again.csv").read_text()
    text = (project.path / "test_sums.py").read_text()
    (project.path / "test_sums.py").write_text(text.replace('example["q"],', '"Q: " + example["q"],'))
    assert len(rescored(project, capsys)["unscored"]) == 20


def test_choices_are_scored_again_too(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.run("--eval-shots", "2")
    found = rescored(project, capsys)
    assert (found["items"], found["changes"], found["unscored"]) == (20, [], [])


def test_a_folder_without_a_run_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    assert main(["score", str(tmp_path)]) == 4
    assert capsys.readouterr().err.count("\n") == 1
