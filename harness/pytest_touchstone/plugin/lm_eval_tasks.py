"""The file ``evals/test_lm_eval.py``: its benchmarks are the tasks of lm-evaluation-harness that options name.

Names come from ``--eval-tasks lm_eval:NAME``, and from node ids on the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.core.benchmark import Benchmark, declaration_of
from pytest_touchstone.core.composite import ATTRIBUTE as COMPOSITES
from pytest_touchstone.core.dataset import HUB
from pytest_touchstone.core.few_shot_sampling import LM_EVAL
from pytest_touchstone.metrics.lm_eval.benchmarks import TaskOptions, declare_task, group_composites
from pytest_touchstone.metrics.lm_eval.index import asked_names, resolve_names, task_manager
from pytest_touchstone.metrics.lm_eval.tasks import code_digest, load_tasks, task_errors
from pytest_touchstone.plugin import is_lm_eval_file
from pytest_touchstone.plugin.collection import Collection

CACHE = "lm-eval"

_NODE_ID = re.compile(r"(?P<file>.+?)::test_(?P<task>[^\[]+)(?:\[.*)?", re.DOTALL)


def declare_tasks(
    names: Sequence[str], settings: Mapping[str, Any], shots: Callable[[Benchmark], int | None]
) -> tuple[dict[str, Callable[..., Any]], list[Any]]:
    """Declare tasks, and the members of groups and tags, as benchmarks.

    Args:
        names: Names or patterns of lm-evaluation-harness.
        settings: Those of a run, by name.
        shots: The number of few-shot examples that somebody gives for a benchmark, if any.

    Returns:
        The declared functions by the names of their tasks, and the groups.

    Raises:
        HarnessError: If a task is unknown, cannot be asked, or has no data.

    """
    folder = None if settings.get("lm_eval_path") is None else Path(settings["lm_eval_path"])
    manager = task_manager(folder, cache_folder(CACHE))
    data = None if settings.get("data") in (None, HUB) else Path(settings["data"])
    tasks, groups = load_tasks(resolve_names(names, manager), manager, data)
    options = TaskOptions(
        shots=shots,
        fewshot=settings.get("fewshot", LM_EVAL),
        chat=settings.get("chat") != "off",
        system=settings.get("system"),
        code=code_digest(folder),
    )
    functions = {}
    for name, task in tasks.items():
        with task_errors(name):
            functions[name] = declare_task(task, options)
    return functions, groups


class LmEvalModule(pytest.Module):
    """The module that stands for tasks of lm-evaluation-harness."""

    collection: Collection

    @classmethod
    def from_collection(cls, parent: pytest.Collector, *, path: Path, collection: Collection) -> LmEvalModule:
        """Return the module of a file, for the benchmarks that a run asks."""
        module: LmEvalModule = cls.from_parent(parent, path=path)
        module.collection = collection
        return module

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Declare the tasks that are asked for as functions of the module, and collect these."""
        for name in [name for name in vars(self.obj) if name.startswith("test_")]:
            delattr(self.obj, name)  # of a former session of this process
        names = [*asked_names(self.collection.tasks.terms), *self._names_of_node_ids()]
        if names:
            vars(self.obj).update(self._declared(names))
        return super().collect()

    def _names_of_node_ids(self) -> list[str]:
        """Return the tasks in arguments such as ``evals/test_lm_eval.py::test_arc_easy[lm_eval:arc_easy/0]``."""
        folder = self.config.invocation_params.dir
        matches = filter(None, map(_NODE_ID.fullmatch, self.config.args))
        return [match["task"] for match in matches if is_lm_eval_file(folder / match["file"])]

    def _declared(self, names: list[str]) -> dict[str, Any]:
        """Return the content of the module for these names."""
        settings = self.collection.settings
        functions, groups = declare_tasks(names, settings.recorded(), self._shots)
        specs = {name: spec for name, function in functions.items() if (spec := declaration_of(function))}
        composites = group_composites(groups, specs, settings.limit)
        return {COMPOSITES: composites, **{function.__name__: function for function in functions.values()}}

    def _shots(self, spec: Benchmark) -> int | None:
        options = self.collection.asking(spec)
        return self.collection.settings.shots if options.shots is None else options.shots
