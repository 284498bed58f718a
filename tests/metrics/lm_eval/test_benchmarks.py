"""Groups of tasks as composites."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_touchstone.core.aggregation import mean
from pytest_touchstone.core.benchmark import Benchmark, Dataset, Published
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.metrics.lm_eval.benchmarks import _whole_version, group_composites


def spec(name: str, rows: int, **higher: bool) -> Benchmark:
    aggregate = {metric: mean(metric, higher_is_better=better) for metric, better in higher.items()}
    return Benchmark(
        name=f"lm_eval:{name}",
        version=1,
        data=Dataset(rows=()),
        asks=(Loglikelihood,),
        primary="acc",
        aggregate=aggregate,
        published=Published(rows),
    )


SPECS = {"a": spec("a", 30, acc=True, loss=False), "b": spec("b", 10, acc=True, acc_strict=True)}


def group(*wanted: Any) -> Any:
    tasks = [
        SimpleNamespace(task_name="a", _filters=[SimpleNamespace(name="none")]),
        SimpleNamespace(
            task_name="b", _filters=[SimpleNamespace(name="none"), SimpleNamespace(name="strict-match")]
        ),
    ]
    return SimpleNamespace(name="both", aggregate_metric_list=wanted, get_all_tasks=lambda: tasks)


def wanted(metric: str, filters: list[str] | None = None, *, by_size: bool = True) -> Any:
    return SimpleNamespace(metric=metric, filter_list=filters, weight_by_size=by_size)


@pytest.mark.parametrize(
    ("metric", "limit", "weights"),
    [
        (wanted("acc"), None, {"a": 0.75, "b": 0.25}),
        (wanted("acc"), 10, {"a": 0.5, "b": 0.5}),
        (wanted("acc"), 0.1, {"a": 0.75, "b": 0.25}),
        (wanted("acc", by_size=False), None, {"a": 0.5, "b": 0.5}),
        (wanted("acc", ["strict-match"]), None, {"b": 1.0}),
    ],
)
def test_a_group_weighs_its_tasks_as_it_says(
    metric: Any, limit: float | None, weights: dict[str, float]
) -> None:
    composite = group_composites([group(metric)], SPECS, limit)[0]
    assert composite.name == "lm_eval:both"
    assert {part.benchmark: part.weight for part in composite.parts} == {
        f"lm_eval:{name}": weight for name, weight in weights.items()
    }


def test_each_further_metric_has_a_name_of_its_own_and_one_of_which_less_is_better_has_none() -> None:
    composites = group_composites([group(wanted("acc"), wanted("loss"))], SPECS, None)
    assert [composite.name for composite in composites] == ["lm_eval:both", "lm_eval:both:acc_strict"]


@pytest.mark.parametrize(("version", "whole"), [(1.0, 1), ("2.5", 2), (None, 0), ("Yaml", 0), (3, 3)])
def test_a_version_is_its_whole_part(version: object, whole: int) -> None:
    assert _whole_version(version) == whole
