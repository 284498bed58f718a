"""The exit code that a run prints is the one that it ends with, however it ends."""

from __future__ import annotations

import re

import pytest

from tests.support.mistakes import refused
from tests.support.project import Project

SAY = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="sums", version=1, data="sums/test", asks=Generate, primary="acc", most_unusable={most})
def test_sums(example):
    answer = yield Generate(example["q"], max_new_tokens=3)
    {extra}
    return {{"acc": 0.5, "no_answer": 1}}
"""

HALT = {
    "": "pass",
    "not valid": "pass",
    "error": "assert example['n'] != 3",
    "interrupt": "if example['n'] == 3: raise KeyboardInterrupt",
    "exit": "if example['n'] == 3: __import__('pytest').exit('enough', returncode=7)",
}

CASES: list[tuple[str, list[str], int]] = [
    ("", [], 0),
    ("", ["--gate"], 0),
    ("not valid", [], 0),
    ("not valid", ["--eval-strict"], 9),
    ("not valid", ["--gate"], 9),
    ("not valid", ["--eval-strict", "--gate"], 9),
    ("", ["--gate", "--eval-set", "gate_config=high.toml"], 8),
    ("", ["--gate", "--co"], 0),
    ("", ["--gate", "--eval-limit", "many"], 4),
    ("", ["--gate", "nowhere/"], 4),
    ("", ["--gate", "lenient"], 4),
    ("", ["--gate", "-k", "summs"], 5),
    ("", ["--gate", "-k", "summs", "-n", "1"], 5),
    ("", ["--gate", "--checkpoint", "fake:masked", "-k", "summs"], 5),
    ("", ["--gate", "test_plain.py"], 9),
    ("", ["--gate", "-m", "not parametrize and other", "test_plain.py"], 5),
    ("error", [], 9),
    ("error", ["--gate"], 9),
    ("error", ["--gate", "-x"], 9),
    ("error", ["--gate", "--maxfail", "1", "-n", "2"], 2),
    ("interrupt", ["--gate"], 2),
    ("interrupt", ["--gate", "--eval-strict"], 2),
    ("exit", ["--gate"], 7),
]


def write(project: Project, extra: str = "pass", *, most: float = 1.0) -> None:
    """A benchmark whose outputs all end at the limit without an answer, of which so many may do so."""
    text = SAY.format(extra=extra, most=most)
    (project.path / "test_sums.py").write_text(text)
    (project.path / "test_plain.py").write_text("def test_plain(): pass\n")
    (project.path / "high.toml").write_text("baseline = 'none'\n[benchmarks.sums]\nfloors = ['acc >= 0.9']\n")
    (project.path / "pytest.ini").write_text("[pytest]\nmarkers = other: others\n")


def printed(result: pytest.RunResult) -> set[int]:
    """The exit codes that a run's output names."""
    text = " ".join([*result.outlines, *result.errlines])
    return {int(code) for code in re.findall(r"exit\s+code\s+(\d+)", text)}


@pytest.mark.parametrize(
    ("halt", "arguments", "code"), CASES, ids=[f"{halt} {' '.join(words)}" for halt, words, _ in CASES]
)
def test_a_printed_exit_code_is_the_one_of_the_process(
    project: Project, halt: str, arguments: list[str], code: int
) -> None:
    write(project, HALT[halt], most=0.1 if halt == "not valid" else 1.0)
    result = project.run(*arguments, apart=halt in ("interrupt", "exit"))
    assert int(result.ret) == code
    assert printed(result) <= {code}, (result.outlines, result.errlines)
    assert "INTERNALERROR" not in str(result.stdout) + str(result.stderr)


@pytest.mark.parametrize(
    ("option", "workers"), [("--eval-output", "0"), ("--eval-output", "2"), ("--eval-set=markdown", "0")]
)
def test_a_path_that_cannot_be_written_is_found_before_anything_runs(
    project: Project, option: str, workers: str
) -> None:
    (project.path / "file").write_text("")
    result = project.run(f"{option}=file/below/it", "-n", workers)
    refused(result, option.replace("=", " "), "file is no folder; choose another")
    assert not (project.path / "results").exists()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_default_folder_that_cannot_be_made_stops_benchmarks_but_no_plain_tests(
    project: Project, workers: str
) -> None:
    write(project)
    (project.path / "results").write_text("")
    assert project.run("-n", workers, "test_plain.py").ret == 0
    refused(project.run("-n", workers), "choose another --eval-output")


def test_a_markdown_file_that_becomes_unwritable_is_an_error_at_the_end(project: Project) -> None:
    write(project, "__import__('pathlib').Path('out').write_text('')")
    result = project.run("--eval-set", "markdown=out/page.md")
    assert result.ret == 1
    assert printed(result) == {1}
    assert "cannot write --eval-set markdown" in str(result.stdout)


def test_a_folder_that_goes_while_items_run_is_one_line(project: Project) -> None:
    write(project, "__import__('shutil').rmtree('results', ignore_errors=True)")
    refused(project.run(), "cannot write", "choose another --eval-output")


def test_results_that_cannot_be_written_at_the_end_are_an_error_line(project: Project) -> None:
    write(project, "__import__('pathlib').Path('results/saved').write_text('')")
    result = project.run()
    assert result.ret == 9
    assert printed(result) == {9}
    assert "INTERNALERROR" not in str(result.stdout)
    result.stdout.fnmatch_lines(["error (exit code 9): *results*"])


def last(result: pytest.RunResult) -> list[str]:
    """The lines after pytest's own last one, wrapped lines joined, colours apart."""
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in result.outlines]
    place = max(number for number, line in enumerate(lines) if re.search(r" passed.* in ", line))
    assert all(len(line) <= 80 for line in lines[place + 1 :])
    return "\n".join(lines[place + 1 :]).replace("\n  ", " ").splitlines()


@pytest.mark.parametrize("arguments", [[], ["-q"], ["--no-summary"], ["-n", "1"]], ids=" ".join)
def test_a_run_that_is_not_valid_ends_with_what_to_do_below_pytests_last_line(
    project: Project, arguments: list[str]
) -> None:
    write(project, most=0.1)
    result = project.run("--eval-limit", "6", *arguments)
    assert result.ret == 0
    assert last(result) == ["not valid: sums; --eval-max-new-tokens 6"]
    assert "\x1b" not in str(result.stdout)


def test_the_last_lines_are_yellow_and_name_the_gates_decision(project: Project) -> None:
    write(project, most=0.1)
    result = project.run("--eval-limit", "6", "--gate", "--eval-max-new-tokens", "40", "--color=yes")
    assert result.ret == 9
    first, gate = last(result)
    assert first.endswith("; --eval-max-new-tokens 80")
    assert "\x1b[33mnot valid: sums; " in str(result.stdout)
    assert gate.startswith("gate not valid (exit code 9)")
    assert printed(result) == {9}


def test_a_valid_run_ends_with_pytests_own_line_and_one_without_a_terminal_with_nothing(
    project: Project,
) -> None:
    write(project)
    assert last(project.run("--eval-limit", "4", "--gate")) == []
    write(project, most=0.1)
    assert project.run("-p", "no:terminal").ret == 0
