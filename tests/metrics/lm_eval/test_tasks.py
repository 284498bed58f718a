"""Loading of lm-evaluation-harness's tasks: what is refused, where data come from, what random numbers they see."""

from __future__ import annotations

import functools
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_touchstone.core.errors import DataError, OptionError
from pytest_touchstone.metrics.lm_eval.tasks import (
    RandomState,
    _local_reader,
    check_task,
    code_digest,
    conditions_digest,
    generation_fault,
    task_errors,
)


def task(output_type: str = "multiple_choice", **more: Any) -> Any:
    config = SimpleNamespace(process_results=None, output_type=output_type, generation_kwargs={})
    return SimpleNamespace(config=config, **more)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"UNSAFE_CODE": True}, "sandbox"),
        ({"MULTIMODAL": True}, "images"),
        ({"_metric_fn_list": {"acc": print, "squad": None}}, "squad"),
    ],
)
def test_a_task_that_cannot_be_asked_or_scored_is_refused_by_name(more: dict[str, Any], word: str) -> None:
    with pytest.raises(OptionError, match=f"lm_eval:mine: .*{word}"):
        check_task("mine", task(**more))


def test_a_metric_without_a_function_is_fine_where_the_task_scores_by_itself() -> None:
    own = task(_metric_fn_list={"mine": None})
    own.config.process_results = print
    check_task("mine", own)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"until": ["\n"], "do_sample": False, "temperature": 0.7, "max_gen_toks": 9}, None),
        ({"until": "x", "do_sample": True, "temperature": 0.5, "top_p": 0.9, "top_k": 3}, None),
        ({"until": []}, None),
        ({"num_beams": 1}, None),
        ({"until": [""]}, "until"),
        ({"num_beams": 4}, "num_beams"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
    ],
)
def test_generation_arguments_are_taken_or_refused_by_name(
    arguments: dict[str, Any], fault: str | None
) -> None:
    pytest.importorskip("lm_eval")
    told = generation_fault(arguments)
    assert (told is None) if fault is None else (fault in (told or ""))


def test_code_that_ends_the_process_is_an_error_of_its_task() -> None:
    with pytest.raises(DataError, match=r"lm_eval:mine: .*SystemExit"), task_errors("mine"):
        sys.exit(5)


def test_the_hash_of_a_task_sees_the_files_of_its_functions_wherever_they_are(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    from lm_eval.api.task import ConfigurableTask

    def digest(source: str, code: str = "") -> str:
        (tmp_path / "elsewhere.py").write_text(source)
        scope: dict[str, Any] = {}
        exec(compile(source, tmp_path / "elsewhere.py", "exec"), scope)
        task = ConfigurableTask.__new__(ConfigurableTask)
        values = {"metadata": {}, "num_fewshot": 0, "metric_list": [{"metric": scope["score"]}]}
        task._config = SimpleNamespace(**values, process_docs=functools.partial(scope["score"], 1))
        return conditions_digest(task, code)

    first = digest("def score(items):\n    return 1\n")
    assert first == digest("def score(items):\n    return 1\n")
    assert first != digest("def score(items):\n    return 2\n")
    assert first != digest("def score(items):\n    return 1\n", "other files below the folder")


def test_the_hash_of_all_tasks_sees_files_of_the_folder_and_versions_of_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = code_digest(tmp_path)
    assert first == code_digest(None)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0")
    versions = code_digest(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "utils.py").write_text("x = 1\n")
    assert len({first, versions, code_digest(tmp_path)}) == 3


def test_parquet_of_the_hub_is_read_from_a_folder(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    place = tmp_path / "org__set" / "main"
    place.mkdir(parents=True)
    rows = [{"q": f"Question {n}", "choices": ["a", "b"], "deep": {"n": n}} for n in range(3)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), place / "test.parquet")
    load = _local_reader(
        tmp_path, functools.partial(datasets.load_dataset, cache_dir=str(tmp_path / "cache"))
    )
    assert list(load("org/set", "main")["test"]) == rows


def test_data_of_the_hub_are_read_from_a_folder(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    place = tmp_path / "org__set" / "main"
    place.mkdir(parents=True)
    (place / "test.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (place / "train.jsonl").write_text('{"a": 3}\n')
    load = _local_reader(tmp_path, datasets.load_dataset)
    splits = load("org/set", "main", cache_dir=str(tmp_path / "cache"))
    assert {name: rows["a"][:] for name, rows in splits.items()} == {"test": [1, 2], "train": [3]}
    assert load("org/set", "main", split="train")["a"][:] == [3]
    with pytest.raises(DataError, match="org__set"):
        load("org/set", "other")


def test_a_task_goes_on_with_its_own_random_numbers_and_nobody_elses_move() -> None:
    whole, parts = RandomState(), RandomState()
    with whole.applied():
        expected = [random.random() for _ in range(4)]
    random.seed(5)
    drawn = []
    for _ in range(2):
        with parts.applied():
            drawn += [random.random() for _ in range(2)]
        random.random()
    assert drawn == expected
    after = random.random()
    random.seed(5)
    assert after == [random.random() for _ in range(3)][-1]
