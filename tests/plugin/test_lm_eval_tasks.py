"""Runs of lm-evaluation-harness's tasks: prompts of single items, earlier scores, refusals, imports."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.files import shipped_evals
from pytest_touchstone.metrics.lm_eval.index import task_manager
from pytest_touchstone.plugin.lm_eval_tasks import CACHE
from tests.support.project import Project
from tests.support.tiny import tiny_causal

ROWS = "".join(
    json.dumps({"q": f"Question {number}", "choices": ["yes", "no"], "gold": number % 2}) + "\n"
    for number in range(6)
)

TASK = """\
task: mine
tag: many
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
fewshot_split: test
num_fewshot: 2
output_type: multiple_choice
doc_to_text: !function utils.text
doc_to_target: gold
doc_to_choice: choices
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
{more}
"""

EVALS = str(shipped_evals() / "test_lm_eval.py")

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the index of the installed tasks, of which making takes seconds."""
    pytest.importorskip("lm_eval")
    folder = tmp_path_factory.mktemp("index")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**OFFLINE, "HF_DATASETS_CACHE": str(folder / "datasets")}.items():
            patch.setenv(name, value)
        task_manager(None, folder)
    return folder


@pytest.fixture
def tasks(project: Project, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a task."""
    for name, value in {**OFFLINE, "HF_DATASETS_CACHE": str(tmp_path / "datasets")}.items():
        monkeypatch.setenv(name, value)
    (project.path / ".cache" / "touchstone" / CACHE).symlink_to(index)
    folder = tmp_path / "tasks"
    folder.mkdir()
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (folder / "utils.py").write_text("def text(doc):\n    return doc['q'] + ':'\n")
    write_task(folder)
    return folder


def write_task(folder: Path, more: str = "") -> None:
    (folder / "mine.yaml").write_text(TASK.format(rows=folder.parent / "rows.jsonl", more=more))


def run(
    project: Project, folder: Path, *more: str, file: str = EVALS, checkpoint: object = "fake:causal"
) -> pytest.RunResult:
    given = (f"--eval-lm-eval-path={folder}", f"--checkpoint={checkpoint}", "--eval-output=results")
    return project.pytester.runpytest(file, *given, *more)


def records(project: Project) -> dict[str, dict[str, Any]]:
    """The records of the newest run, by example."""
    folder = max((project.path / "results").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    lines = [line for path in (folder / "items").glob("*.jsonl") for line in path.read_text().splitlines()]
    return {record["example"]: record for record in map(json.loads, lines)}


def test_an_item_that_is_asked_alone_has_the_prompt_of_the_whole_run(project: Project, tasks: Path) -> None:
    run(project, tasks, "--eval-tasks=lm_eval:many").assert_outcomes(passed=6)
    whole = records(project)["lm_eval:mine/4"]["exchanges"]
    assert whole[0]["request"]["context"].count("Question") == 3
    alone = run(project, tasks, "--eval-run-id=x1", file=f"{EVALS}::test_mine[lm_eval:mine/4]")
    alone.assert_outcomes(passed=1)
    assert {name: record["exchanges"] for name, record in records(project).items()} == {
        "lm_eval:mine/4": whole
    }
    run(project, tasks, "--eval-run-id=x2", "--eval-tasks=lm_eval:mine 1-shot").assert_outcomes(passed=6)
    assert records(project)["lm_eval:mine/4"]["exchanges"][0]["request"]["context"].count("Question") == 2
    score = [sys.executable, "-m", "pytest_touchstone.cli", "score", "results/x1"]
    assert project.pytester.run(*score).ret == 0


def test_node_ids_of_another_file_of_that_name_are_no_tasks(project: Project, tasks: Path) -> None:
    (project.path / "test_lm_eval.py").write_text("def test_mine():\n    pass\n")
    run(project, tasks, file="test_lm_eval.py::test_mine").assert_outcomes(passed=1)
    args = (f"--eval-lm-eval-path={tasks}", "--checkpoint=fake:causal", "-p", "no:cacheprovider")
    both = project.pytester.runpytest_subprocess("test_lm_eval.py::test_mine", EVALS, *args)
    both.assert_outcomes(passed=1)


def test_scores_are_taken_again_until_a_file_of_the_task_is_edited(
    project: Project, tasks: Path, tmp_path: Path
) -> None:
    model = tiny_causal(tmp_path / "model")

    def reused(name: str) -> int:
        run(project, tasks, "--eval-tasks=lm_eval:mine", f"--eval-run-id={name}", checkpoint=model)
        return sum(record["reused_from"] is not None for record in records(project).values())

    assert [reused("a1"), reused("a2")] == [0, 6]
    (tasks / "utils.py").write_text("def text(doc):\n    return doc['q'] + ':'  # the same text\n")
    assert reused("a3") == 0


@pytest.mark.parametrize(
    ("more", "name", "word"),
    [
        pytest.param("", "nine", "mine", marks=pytest.mark.slow),
        pytest.param("process_docs: !function utils.lost", "mine", "lost", marks=pytest.mark.slow),
        ("process_docs: !function utils.lost\nunsafe_code: true", "mine", "sandbox"),
    ],
)
def test_a_task_that_cannot_be_asked_ends_the_run_in_one_line(
    project: Project, tasks: Path, more: str, name: str, word: str
) -> None:
    write_task(tasks, more)
    result = run(project, tasks, f"--eval-tasks=lm_eval:{name}")
    lines = [line for line in (*result.outlines, *result.errlines) if line.startswith("ERROR")]
    assert result.ret == 4
    assert len(lines) == 1
    assert lines[0].startswith(f"ERROR: lm_eval:{name}: ")
    assert word in lines[0]


def test_without_a_name_of_a_task_nothing_of_lm_eval_is_imported(project: Project, tasks: Path) -> None:
    arguments = [EVALS, "--co", "-q", "--checkpoint=fake:causal", f"--eval-lm-eval-path={tasks}"]
    code = (
        f"import pytest, sys; pytest.main({arguments!r})\n"
        "print('LOADED', [name for name in ('lm_eval', 'datasets', 'torch') if name in sys.modules])"
    )
    assert "LOADED []" in project.pytester.run(sys.executable, "-c", code).outlines
