"""A person's mistake is one clear line and exit code 4, never a traceback."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.mistakes import refused
from tests.support.project import Project, declares_metrics


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--eval-limit", "0"],
            ["invalid --eval-limit '0': expected an item count (50), a fraction below 1 (0.2), or all"],
        ),
        (["--eval-limit", "1.5"], ["invalid --eval-limit '1.5'"]),
        (["--eval-limit=-3"], ["invalid --eval-limit '-3'"]),
        (["--eval-shots", "many"], ["invalid --eval-shots 'many': expected a whole number from 0 up"]),
        (["--eval-batch", "0"], ["--eval-batch '0': expected auto or a whole number from 1 up"]),
        (
            ["--eval-dtype", "float8"],
            ["invalid --eval-dtype 'float8': expected auto, float32, bfloat16 or float16"],
        ),
        (["--eval-device", "gpu"], ["'gpu': expected auto, cpu, cuda, cuda:0 or mps"]),
        (["--eval-data", "nowhere"], ["'nowhere': expected the folder that holds"]),
        (["--eval-data", ""], ["--eval-data: the value is empty"]),
        (["--eval-set", "markdown= "], ["--eval-set markdown: the value is empty"]),
        (["--baseline", ""], ["--baseline: the value is empty"]),
        (["--checkpoint", ""], ["--checkpoint: the value is empty"]),
        (["--eval-run-id", "../x"], ["'../x': expected letters"]),
        (["--eval-seq-len", "0"], ["--eval-seq-len '0': expected a whole number from 1 up"]),
        (["--eval-samples", "0"], ["--eval-samples '0': expected a whole number from 1 up"]),
        (["--eval-temperature", "hot"], ["'hot': expected 0 (greedy) or a number above it"]),
        (["--eval-set", "top_p=2"], ["'2': expected a probability above 0"]),
        (["--eval-samples", "5", "--eval-temperature", "0"], ["5 greedy samples of a task are all the same"]),
        (["--eval-limit="], ["--eval-limit: the value is empty"]),
        (["--eval-limit", "3", "--eval-limit", "0"], ["invalid --eval-limit '0'"]),
        (["--eval-shots", "-1"], ["invalid --eval-shots '-1'"]),
        (["--eval-set", "fewshot=x"], ["invalid --eval-set fewshot 'x': expected touchstone, lm-eval"]),
        (["--eval-seed", "-1"], ["invalid --eval-seed '-1'"]),
        (["--eval-chat", "maybe"], ["'maybe': expected auto, on or off"]),
        (["--eval-max-new-tokens", "0"], ["--eval-max-new-tokens '0': expected a whole number from 1 up"]),
        (["--eval-temperature", "nan"], ["'nan': expected 0 (greedy)"]),
        (["--eval-sandbox", "vm"], ["'vm': expected bwrap, docker or none"]),
        (["--eval-set", "grader=x"], ["'x': expected exact or reference"]),
        (["--eval-set", "program_seconds=0"], ["'0': expected a number from 0.1 to 3600"]),
        (["--eval-set", "batch_items=0"], ["--eval-set batch_items '0': expected a whole number from 1 up"]),
        (["--eval-set", "speculative=on"], ["'on': expected auto or off"]),
        (["--eval-steps", "a"], ["invalid --eval-steps 'a': expected START:STOP:STEP"]),
        (["--eval-base-model", "nosuch"], ["--eval-base-model nosuch: no checkpoint of this run is a LoRA"]),
        (["--eval-tasks", ""], ["--eval-tasks: the value is empty"]),
        (["--eval-tasks", "summs"], ["'summs'", "sums"]),
        (["--eval-output", "test_sums.py"], ["--eval-output test_sums.py: test_sums.py is no folder"]),
        (["--eval-set", "markdown=."], ["--eval-set markdown .: this is a folder; name a file"]),
        (
            ["--eval-set", "markdown=reports/"],
            ["invalid --eval-set markdown 'reports/': expected a file's name"],
        ),
        (["--eval-gate-mode", "hard"], ["'hard': expected plain or strict"]),
        (["--gate", "--baseline", "none"], ["nothing to judge"]),
        (
            ["--gate", "--baseline", "nowhere"],
            ["nowhere: no run in results, no folder or file, and no baseline"],
        ),
        (["--gate", "--eval-baseline-allow", "frob"], ["--eval-baseline-allow: unknown condition 'frob'"]),
        (
            ["--gate", "--eval-set", "gate_metric=frob"],
            ["--eval-set gate_metric: unknown metric 'frob'; known are acc"],
        ),
        (["--gate", "--eval-set", "gate_config=no.toml"], ["cannot read no.toml: No such file or directory"]),
        (["--eval-set=gate_sequential"], ["--eval-set gate_sequential does nothing alone; give --gate"]),
        (["--eval-limt", "3"], ["unknown option --eval-limt: did you mean --eval-limit N?"]),
        (["--checkpont=x"], ["unknown option --checkpont: did you mean --checkpoint?"]),
        (["--eval-frobnicate"], ["unknown option --eval-frobnicate; `pytest --help` has ours"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value[0].startswith("--") else "",
)
def test_a_wrong_option_is_one_line_and_nothing_is_run(
    project: Project, arguments: list[str], words: list[str]
) -> None:
    declares_metrics(project.path / "test_sums.py")
    refused(project.run(*arguments), *words)
    assert project.runs == []


def test_an_unknown_option_is_refused(project: Project) -> None:
    refused(project.run("--eval-limits", "3"), "--eval-limits")


@pytest.mark.parametrize("way", ["-k", "-m"])
def test_a_wrong_expression_leaves_no_run_behind(project: Project, way: str) -> None:
    refused(project.run(way, "sums and"), f"Wrong expression passed to '{way}'")
    assert project.runs == []


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_checkpoint_that_is_not_there_is_refused(project: Project, workers: str) -> None:
    refused(project.run("-n", workers, checkpoint="runs/nowhere"), "runs/nowhere")


@pytest.mark.parametrize(
    ("line", "words", "workers"),
    [
        ('{"q": "1"}', ["row 2", "options"], "0"),
        ('{"q": "1"}', ["row 2", "options"], "2"),
        ("{", ["row 2", "not valid JSON"], "0"),
    ],
    ids=["a field is missing", "a field is missing, with workers", "no JSON"],
)
def test_a_wrong_row_of_data_is_named_by_file_and_number(
    project: Project, line: str, words: list[str], workers: str
) -> None:
    text = (project.path / "test_sums.py").read_text()
    row = (
        "from typing_extensions import TypedDict\nclass Row(TypedDict):\n    q: str\n    options: list[str]\n"
    )
    (project.path / "test_sums.py").write_text(row + text.replace('primary="acc"', 'primary="acc", row=Row'))
    (project.path / "data/sums/test.jsonl").write_text('{"q": "1", "options": ["1", "2"]}\n' + line + "\n")
    refused(project.run("-n", workers), "test.jsonl", *words)


def test_a_run_id_is_not_used_twice(project: Project) -> None:
    assert project.run("--eval-run-id", "mine").ret == 0
    refused(project.run("--eval-run-id", "mine"), "results/mine", "another run")


def test_two_benchmarks_of_one_name_are_refused(project: Project) -> None:
    project.write(name="test_again.py")
    refused(project.run(), "two benchmarks are named 'sums'")


def test_too_many_shots_are_refused(project: Project) -> None:
    refused(project.run("--eval-shots", "30"), "30 few-shot examples", "20 rows")


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def without(pattern: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for path in folder.glob(pattern):
            path.unlink()

    return remove


def truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": ')


@pytest.mark.parametrize(
    ("damage", "words", "workers"),
    [
        (empty, ["empty"], "0"),
        (without("*.safetensors"), ["weights"], "0"),
        (without("config.json"), ["config.json"], "0"),
        (without("token*"), ["tokenizer"], "0"),
        (truncated, ["model.safetensors"], "0"),
        (truncated, ["model.safetensors"], "2"),
        (broken_config, ["config.json"], "0"),
    ],
    ids=[
        *("empty folder", "no weights", "no config", "no tokenizer", "truncated weights"),
        *("truncated weights, with workers", "invalid JSON"),
    ],
)
def test_a_broken_checkpoint_is_refused_with_its_fault(
    project: Project, whole: Path, damage: Callable[[Path], None], words: list[str], workers: str
) -> None:
    folder = Path(shutil.copytree(whole, project.path / "checkpoint-7"))
    damage(folder)
    refused(project.run("-n", workers, checkpoint=str(folder)), str(folder), *words)
