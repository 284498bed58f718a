"""Metrics of lm-evaluation-harness's tasks that are no means of items, by the task's own function.

A result names the function as lm-evaluation-harness's YAML does: ``f1`` for one that it registers, ``/DIR/utils.agg``
for one of a file, ``/DIR/task.CLASS`` for a task that is a class.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_touchstone.core.aggregation import Aggregation, mean, perplexity
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX
from pytest_touchstone.metrics.lm_eval.documents import RAW

if TYPE_CHECKING:
    from lm_eval.api.task import Task


def aggregation_of_task(task: Task, metric: str, name: str) -> Aggregation:
    """Return the aggregation of a task's metric under its ``name`` here.

    Raises ``BenchmarkError`` for a function that could not be found again.
    """
    from lm_eval.api import metrics

    higher = task.higher_is_better().get(metric) is not False
    function = task.aggregation().get(metric, metrics.mean)
    if function is metrics.mean:
        return mean(name, higher_is_better=higher)
    if function is metrics.perplexity:
        return perplexity(name)
    return Aggregation(
        getattr(function, "__name__", metric),
        name,
        function=aggregate_raw,
        higher_is_better=higher,
        beside=(RAW + name,),
        arguments=(_reference(task, metric, function), metric),
    )


def _reference(task: Task, metric: str, function: Any) -> str:
    """Return the name by which another process imports a function of a task."""
    from lm_eval.api.task import AGGREGATION_REGISTRY, ConfigurableTask
    from lm_eval.tasks._yaml_loader import load_yaml

    registered = (name for name, other in AGGREGATION_REGISTRY.items() if other is function)
    if (name := next(registered, None)) is not None:
        return str(name)
    if type(task) is not ConfigurableTask:
        return f"{Path(inspect.getfile(type(task))).with_suffix('')}.{type(task).__qualname__}"
    source = Path((task.config.metadata or {}).get("config_source", ""))
    written = load_yaml(source, resolve_func=False) if source.is_file() else {}
    for entry in written.get("metric_list") or ():
        if entry.get("metric") == metric and str(entry.get("aggregation", "")).startswith("/"):
            return str(entry["aggregation"])
    raise BenchmarkError(
        f"{LM_EVAL_PREFIX}{task.task_name}: how {metric} is made of items is defined nowhere in {source}; "
        "name its function there"
    )


def aggregate_raw(
    reference: str, metric: str, items: Sequence[tuple[float, str]], clusters: Sequence[str | None] | None
) -> float:
    """Return a metric of raw values in the order of items.

    Args:
        reference: The function, as the module says.
        metric: The metric's name in the task.
        items: The number and the raw value (JSON) of each item.
        clusters: Unused: clusters move no value.

    """
    del clusters
    return float(_function(reference, metric)([_value(raw) for _, raw in items]))


_value = functools.lru_cache(maxsize=1 << 17)(json.loads)


@functools.cache
def _function(reference: str, metric: str) -> Any:
    """Return the function of a reference. Raises ``BenchmarkError`` where it is not there."""
    if find_spec("lm_eval") is None:
        raise BenchmarkError("it is made by lm-evaluation-harness: pip install 'pytest-touchstone[lm-eval]'")
    from lm_eval.api.task import AGGREGATION_REGISTRY  # whose imports register all functions
    from lm_eval.tasks._yaml_loader import _import_fun_from_str

    if not reference.startswith("/"):
        return AGGREGATION_REGISTRY[reference]
    file, name = _place_of(reference)
    function: Any = _import_fun_from_str(f"{file}.{name}")
    if isinstance(function, type):
        of_class: Any = function
        function = of_class.aggregation(object.__new__(function))[metric]
    return function


def _place_of(reference: str) -> tuple[Path, str]:
    """Return the file of a function and its name there."""
    module, _, name = reference.rpartition(".")
    return Path(module if module.endswith(".py") else f"{module}.py"), name


def source_of(reference: str) -> Path | None:
    """Return the file that a reference runs code of, None for what lm-evaluation-harness registers or ships."""
    if not reference.startswith("/"):
        return None
    path, _ = _place_of(reference)
    spec = find_spec("lm_eval")
    shipped = [Path(root).resolve() for root in (spec and spec.submodule_search_locations) or ()]
    return None if any(path.resolve().is_relative_to(root) for root in shipped) else path
