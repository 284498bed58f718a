"""Each command that a report offers is taken by the program as it stands, also beside a folder of the run's name."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.compare.gate.accepted import FILE as ACCEPTED
from pytest_touchstone.reports import next_steps, run_report
from tests.support.project import Project
from tests.support.tiny import tiny_causal

SKILL = """
from pathlib import Path
from pytest_touchstone import Loglikelihood, benchmark


@benchmark(name="skills", version=1, data="sums/test", asks=Loglikelihood, primary="acc")
def test_skills(example):
    yield [Loglikelihood(example["q"], " 1")]
    acc = float(example["n"] < int(Path("skill").read_text()))
    return {"acc": acc, "soft": acc * 0.5}
"""

TEXTS = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="texts", version=1, data="sums/test", asks=Generate, primary="length")
def test_texts(example):
    answer = yield Generate(example["q"], max_new_tokens=LIMIT)
    return {"length": float(len(answer.text))}
"""

FAULT = "raise ValueError('no such sum')"


def offered(result: pytest.RunResult) -> dict[str, str]:
    """The commands after ``next`` and ``more``, each on one line, and what they are said to do."""
    text = re.sub(r" \\\n +", " ", "\n".join(result.outlines))
    found = re.findall(r"^(?:next|more) +(\S.*?)(?: {3,}|\n +)(\S.*)$", text, re.MULTILINE)
    return dict(found)


def typed(project: Project, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Type a command, in this process; it must not be refused."""
    program, *words = shlex.split(command.replace(" NEW", " fake:causal"))
    if program == "pytest":
        result = project.pytester.runpytest(*words)
        code, text = int(result.ret), result.stdout.str() + result.stderr.str()
    else:
        capsys.readouterr()
        code = main(words)
        text = "".join(capsys.readouterr())
    assert code in (0, 1, 8, 9), f"{command}: {code}\n{text}"
    assert "Traceback" not in text


def skilled(project: Project, *arguments: str, skill: int = 90, items: int = 100) -> pytest.RunResult:
    (project.path / "test_sums.py").unlink(missing_ok=True)
    (project.path / "test_skills.py").write_text(SKILL)
    (project.path / "skill").write_text(str(skill))
    project.rows(items)
    return project.run(*arguments)


def first(project: Project) -> pytest.RunResult:
    return project.run()


def second(project: Project) -> pytest.RunResult:
    project.run()
    project.write("pass  # changed")
    return project.run("--eval-no-cache")


def of_two(project: Project) -> pytest.RunResult:
    folders = [tiny_causal(project.path / "series" / f"checkpoint-{step}", seed=step) for step in (1, 2)]
    return project.run("--checkpoint", str(folders[1]), checkpoint=str(folders[0]))


def of_a_series_whose_id_is_its_folder(project: Project) -> pytest.RunResult:
    for step in (1, 2, 3):
        tiny_causal(project.path / "series" / f"checkpoint-{step}", seed=step)
    return project.run("--eval-run-id", "series", checkpoint="series/checkpoint-*")


def with_a_broken_checkpoint(project: Project) -> pytest.RunResult:
    broken = tiny_causal(project.path / "my broken")
    (broken / "model.safetensors").write_bytes(b"cut off")
    return project.run("--checkpoint", "my broken")


def with_a_fault(project: Project) -> pytest.RunResult:
    project.write(FAULT)
    return project.run()


def cut_off(project: Project) -> pytest.RunResult:
    (project.path / "test_sums.py").unlink()
    (project.path / "test_texts.py").write_text(TEXTS.replace("LIMIT", "3"))
    return project.run()


def a_shard(project: Project) -> pytest.RunResult:
    return project.run("--eval-shard", "1/2", "--eval-run-id", "first")


def a_failed_gate(project: Project) -> pytest.RunResult:
    skilled(project)
    return skilled(project, "--gate", "--eval-no-cache", skill=20)


def an_unsure_gate(project: Project) -> pytest.RunResult:
    skilled(project, items=30, skill=20)
    return skilled(project, "--gate", "--eval-no-cache", items=30, skill=17)


def a_passed_gate(project: Project) -> pytest.RunResult:
    skilled(project, items=400, skill=200)
    return skilled(project, "--gate", "--eval-no-cache", items=400, skill=390)


SITUATIONS: dict[Callable[[Project], pytest.RunResult], tuple[str, ...]] = {
    first: ("a verdict on a new checkpoint",),
    second: ("a verdict against the best so far",),
    of_two: ("what can be said of their differences",),
    of_a_series_whose_id_is_its_folder: (
        "benchmark by benchmark, and what it is told apart from",
        "curves, peaks, and what to do next",
    ),
    with_a_broken_checkpoint: ("a verdict on a new checkpoint",),
    with_a_fault: ("what to mend; the same command then asks these alone",),
    cut_off: ("for valid results", "a verdict on a new checkpoint"),
    a_shard: ("joins all shards, when they have ended",),
    a_failed_gate: ("items gained and lost", f"accepts the drop; commit {ACCEPTED}"),
    an_unsure_gate: ("may tell by the same items",),
    a_passed_gate: ("makes this run the baseline main",),
}
MORE = "all metrics, groups and notes"
ELSEWHERE = {
    "asks only what has no score yet",
    "your own checkpoint, all rows",
    "this report",
    "the texts that are of no use",
}
"""Of a server that fails, of a fetched checkpoint, of ``touchstone report -v`` and of long texts."""


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__)
def test_each_command_that_is_offered_is_taken(
    project: Project,
    situation: Callable[[Project], pytest.RunResult],
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands = offered(situation(project))
    assert set(commands.values()) == {MORE, *SITUATIONS[situation]}
    for command in commands:
        typed(project, command, capsys)


def test_each_kind_of_command_is_typed_in_a_test() -> None:
    trees = [
        ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        for module in (next_steps, run_report)
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "NextStep"]
    kinds = [eval(ast.unparse(call.args[1]), {"ACCEPTED": ACCEPTED, "some": ""}) for call in calls]
    assert set(kinds) == {MORE, *ELSEWHERE, *(kind for kinds in SITUATIONS.values() for kind in kinds)}
