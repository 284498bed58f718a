"""A run of a benchmark of programs, from the question to the files at its end, in the real sandbox."""

from __future__ import annotations

import json

import pytest

from pytest_touchstone.cli import main
from tests.support.project import Project
from tests.support.rows import read_csv, read_jsonl

BENCHMARK = """
from pytest_touchstone import CallTests, Generate, RunProgram, benchmark
from pytest_touchstone.metrics.code.grader import program_scores


@benchmark(
    name="doubles", version=1, data="sums/test", asks=(Generate, RunProgram), primary="pass@1", most_unusable=1.0
)
def test_doubles(example, fewshot):
    '''A program is right where its sample has an even number of characters.'''
    answer = yield Generate(example["q"], max_new_tokens=20, **fewshot.sampling.arguments())
    answers = yield [
        RunProgram(
            f"def double(x): return {2 if len(one.text) % 2 == 0 else 3} * x  # {one.text!r}",
            CallTests("assert double(2) == 4\\n"),
            task=f"doubles/sum-{example['n']}",
        )
        for one in answer.samples
    ]
    return program_scores(answers)
"""


@pytest.fixture(autouse=True)
def doubles(project: Project) -> None:
    (project.path / "test_sums.py").write_text(BENCHMARK, encoding="utf-8")


def test_a_run_ends_with_a_table_of_tasks_and_a_file_of_samples(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project.run("--eval-samples", "5").ret == 0
    (folder,) = project.runs
    rows = read_csv(folder / "details" / "doubles_tasks.csv")
    assert [row["task_id"] for row in rows] == [f"sum-{n}" for n in range(20)]
    (result,) = project.summary["results"]
    mean = sum(float(row["pass@1"]) for row in rows) / len(rows)
    assert result["metrics"]["pass@1"]["value"] == pytest.approx(mean)
    assert 0.0 < mean < 1.0
    assert result["metrics"]["pass@5"]["n"] == 20
    samples = read_jsonl(folder / "details" / "doubles_samples.jsonl")
    assert len(samples) == 100
    for sample in samples:
        assert sample["outcome"] == ("passed" if len(sample["text"]) % 2 == 0 else "wrong")
        assert sample["solution"].endswith(repr(sample["text"]))
    capsys.readouterr()
    assert main(["score", str(folder), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["items"], found["changes"], found["unscored"]) == (20, [], [])


def test_the_reference_graders_verdicts_are_metrics_and_in_the_file(project: Project) -> None:
    assert project.run("--eval-set", "grader=reference", "--eval-limit", "4").ret == 0
    (folder,) = project.runs
    (result,) = project.summary["results"]
    metrics = result["metrics"]
    assert metrics["reference_pass@1"]["value"] == metrics["pass@1"]["value"]
    assert metrics["graders_differ"]["value"] == 0
    samples = read_jsonl(folder / "details" / "doubles_samples.jsonl")
    assert all((one["reference_outcome"] == "passed") is one["passed"] for one in samples)


WEAK = BENCHMARK.replace(
    'CallTests("assert double(2) == 4\\n")',
    'CallTests(TESTS[example["n"] % 3])',
).replace(
    "@benchmark(",
    """TESTS = (
    "assert double(2) == 4\\n",
    "assert double(2) != 5\\n",
    "try:\\n    assert double(2) == 4\\nexcept Exception:\\n    pass\\n",
)


@benchmark(""",
    1,
)


@pytest.mark.parametrize("more", [(), ("--eval-set", "grader=reference", "-n", "2")])
def test_tasks_whose_tests_cannot_fail_are_errors_and_those_of_thin_tests_are_named(
    project: Project, more: tuple[str, ...]
) -> None:
    assert WEAK.count("TESTS") == 2
    (project.path / "test_sums.py").write_text(WEAK, encoding="utf-8")
    found = project.run("--eval-limit", "6", "--eval-set", "markdown=report.md", "-v", *more)
    assert found.ret == 9
    (result,) = project.summary["results"]
    assert (result["scored"], result["errors"]) == (4, 2)
    thin = ["a program that returns None", "a program that returns its first argument"]
    assert result["weak_tests"] == {"doubles/sum-1": thin, "doubles/sum-4": thin}
    messages = [fault["message"] for fault in project.summary["faults"]]
    said = "the tests of doubles/sum-{} are unsound: they accept an empty program and a program that raises"
    assert [said.format(n) in message for n, message in zip((2, 5), messages, strict=True)] == [True, True]
    note = "doubles: the tests of 2 of 4 tasks accept a program that returns None or"
    shown = " ".join(found.stdout.str().split())
    assert note in shown
    (folder,) = project.runs
    assert note in (project.path / "report.md").read_text(encoding="utf-8")
    assert note in (folder / "report.html").read_text(encoding="utf-8")


LACKING = BENCHMARK.replace('f"def double', r'f"import numpy, scipy\ndef double', 1)


def test_programs_that_import_what_the_sandbox_lacks_are_counted_with_the_modules(project: Project) -> None:
    assert LACKING.count("import numpy") == 1
    (project.path / "test_sums.py").write_text(LACKING, encoding="utf-8")
    found = project.run("--eval-limit", "2", "--eval-set", "markdown=report.md")
    assert found.ret == 0
    (result,) = project.summary["results"]
    number = sum(result["programs"].values())
    assert result["programs"] == {"error": number}
    assert result["missing_modules"] == {"numpy": number}
    note = f"{number} programs import what the sandbox lacks: numpy"
    (folder,) = project.runs
    assert note in " ".join(found.stdout.str().split())
    for file in (project.path / "report.md", folder / "report.html"):
        assert note in file.read_text(encoding="utf-8")
