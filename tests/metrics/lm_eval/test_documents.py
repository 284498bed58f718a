"""The number of an item for a raw value, and the order in which contexts are made."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_touchstone.metrics.lm_eval.documents import Documents, item_number
from pytest_touchstone.metrics.lm_eval.tasks import LoadedTask, RandomState, load_tasks
from tests.support.lm_eval_folder import write_lm_eval_folder


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        (True, 1.0),
        (3, 3.0),
        ((1, 1), 1.0),
        ((1, 2), 0.0),
        (["yes", "no"], 0.0),
        ((-3.5, 12), -3.5),
        ("text", None),
        ((["a"], "a"), None),
        ([1.0, 2.0, 3.0], None),
    ],
)
def test_the_number_of_an_item_is_the_value_or_what_a_pair_shows(raw: object, number: float | None) -> None:
    assert item_number(raw) == number


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    assert item_number(np.float32(0.5)) == 0.5
    assert item_number((np.int64(2), 2)) == 1.0


class DrawingTask:
    """A task whose prompts depend on those before them."""

    OUTPUT_TYPE = "multiple_choice"
    config = SimpleNamespace(repeats=1, num_fewshot=1)
    eval_docs = tuple({"n": number} for number in range(6))

    def doc_to_prefix(self, doc: Any) -> None:
        return None

    def fewshot_context(self, doc: Any, **how: Any) -> str:
        return f"{random.random()} {doc['n']}"

    def construct_requests(self, doc: Any, ctx: str, **how: Any) -> Any:
        return SimpleNamespace(request_type="loglikelihood", args=(ctx, " a"), idx=0)


def test_a_document_that_is_asked_alone_has_the_prompt_of_the_whole_run() -> None:
    task: Any = DrawingTask()
    whole = Documents(LoadedTask("mine", task, RandomState()), chat=False)
    prompts = [whole.requests(index)[1] for index in range(6)]
    alone = Documents(LoadedTask("mine", task, RandomState()), chat=False)
    assert alone.requests(4)[1] == prompts[4]
    assert alone.requests(1)[1] == prompts[1]
    assert len({str(prompt) for prompt in prompts}) == 6


class FailingTask(DrawingTask):
    """A task that fails for one document."""

    def fewshot_context(self, doc: Any, **how: Any) -> str:
        if doc["n"] == 2:
            raise KeyError("two")
        return super().fewshot_context(doc, **how)


def test_a_document_that_a_task_fails_for_is_an_error_of_its_own() -> None:
    task: Any = FailingTask()
    documents = Documents(LoadedTask("mine", task, RandomState()), chat=False)
    assert documents.requests(4)[1]
    for _ in range(2):
        with pytest.raises(KeyError, match="two"):
            documents.requests(2)


def test_a_conversation_has_the_examples_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval")
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = write_lm_eval_folder(tmp_path / "tasks", tmp_path / "rows")
    from lm_eval.tasks import TaskManager

    asked: list[Any] = []
    for chat in (True, False):
        manager = TaskManager(include_defaults=False, include_path=str(folder))
        loaded = load_tasks(["gen_few"], manager, None)[0]["gen_few"]
        loaded.task.set_fewshot_seed(1)
        documents = Documents(loaded, chat=chat)
        documents.requests(1)
        asked += documents.requests(2)[1]
    with_turns, plain = asked
    assert with_turns.prompt == plain.prompt
    assert [turn.role for turn in with_turns.turns] == ["user", "assistant"] * 3 + ["user"]
    assert all(turn.text in plain.prompt for turn in with_turns.turns)
    assert plain.turns == ()
