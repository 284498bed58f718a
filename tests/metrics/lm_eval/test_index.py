"""Names of lm-evaluation-harness's tasks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.tasks import TaskSelection
from pytest_touchstone.metrics.lm_eval.index import asked_names, resolve_names, task_manager
from tests.support.lines import missing

MANAGER: Any = SimpleNamespace(
    include_path=None, task_index=dict.fromkeys(["arc_easy", "arc_challenge", "mmlu", "mmlu_(x)"], None)
)


def test_names_are_found_as_they_are_and_patterns_as_what_they_match() -> None:
    assert resolve_names(["mmlu_(x)", "arc_*", "arc_easy"], MANAGER) == [
        "mmlu_(x)",
        "arc_easy",
        "arc_challenge",
    ]


def test_a_task_within_a_group_is_found_by_the_group() -> None:
    assert resolve_names(["mmlu::inner"], MANAGER) == ["mmlu"]


def test_an_unknown_name_is_refused_with_similar_ones() -> None:
    with pytest.raises(OptionError, match=r"lm_eval:arc_esy: .*arc_easy"):
        resolve_names(["arc_esy"], MANAGER)


def test_a_file_of_the_task_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    (tmp_path / "mine.yaml").write_text("task: mine\nmetric_list: [\n")
    (tmp_path / "other.yaml").write_text("task: [")
    manager: Any = SimpleNamespace(task_index={}, include_path=str(tmp_path))
    with pytest.raises(OptionError, match=r"lm_eval:mine: .*mine\.yaml.* line 3") as error:
        resolve_names(["mine"], manager)
    assert not missing(str(error.value), "mine.yaml")
    assert "\n" not in str(error.value)


def test_only_terms_with_the_prefix_that_take_tasks_in_are_asked_for() -> None:
    terms = TaskSelection.of(["gsm8k,lm_eval:arc_easy 5-shot,-lm_eval:mmlu,lm_eval:blimp_*"]).terms
    assert asked_names(terms) == ["arc_easy", "blimp_*"]


def test_the_index_of_installed_tasks_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = pytest.importorskip("lm_eval.tasks")
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "a.yaml").write_text("task: a\ntag: letters\n")
    monkeypatch.setattr(tasks, "__file__", str(folder / "__init__.py"))
    built: list[int] = []

    original: Any = tasks.TaskManager

    class Manager(original):  # type: ignore[misc]
        def __init__(self, *, include_defaults: bool = True, include_path: str | None = None) -> None:
            built.append(include_defaults)
            super().__init__(
                include_defaults=False, include_path=str(folder) if include_defaults else include_path
            )

    monkeypatch.setattr(tasks, "TaskManager", Manager)
    kinds = [
        {name: entry.kind.name for name, entry in task_manager(None, tmp_path / "cache").task_index.items()}
        for _ in range(2)
    ]
    assert kinds == [{"a": "TASK", "letters": "TAG"}] * 2
    assert built == [False, True, False]
    (folder / "b.yaml").write_text("task: b\n")
    assert {"a", "b"} <= task_manager(None, tmp_path / "cache").task_index.keys()
