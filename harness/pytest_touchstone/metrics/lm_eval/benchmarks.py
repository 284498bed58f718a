"""Declares loaded tasks of lm-evaluation-harness as benchmarks, and their groups as composites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_touchstone.core.benchmark import Benchmark, BenchmarkCode, Dataset, Published, Shots, declare
from pytest_touchstone.core.composite import Composite, WeightedMetric
from pytest_touchstone.core.dataset import Example, apply_limit
from pytest_touchstone.core.few_shot_sampling import LM_EVAL
from pytest_touchstone.core.files import shipped_evals
from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import Generate, Request
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX, filtered_metric
from pytest_touchstone.metrics.lm_eval.aggregates import aggregation_of_task
from pytest_touchstone.metrics.lm_eval.documents import Documents
from pytest_touchstone.metrics.lm_eval.tasks import (
    FEWSHOT_SEED,
    LoadedTask,
    conditions_digest,
)

if TYPE_CHECKING:
    from lm_eval.api.group import Group
    from lm_eval.api.task import Task


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of a run that a task's prompts depend on.

    ``shots`` tells the number of few-shot examples that somebody gives for a benchmark, if any, and ``fewshot`` is the
    value of ``--eval-set fewshot``. With ``chat``, texts may be asked for as conversations, after a ``system`` prompt.
    ``code`` is the hash of what all tasks share (``code_digest``).
    """

    shots: Callable[[Benchmark], int | None]
    fewshot: str
    chat: bool
    system: str | None
    code: str


def declare_task(loaded: LoadedTask, options: TaskOptions) -> Callable[..., Any]:
    """Return a declared function for a task."""
    task, name = loaded.task, f"{LM_EVAL_PREFIX}{loaded.name}"
    spec = Benchmark(
        name=name,
        version=_whole_version(task.VERSION),
        data=Dataset(rows=()),
        asks=(Generate,),
        primary="",
        tags=tuple(f"{LM_EVAL_PREFIX}{other}" for other in loaded.names if other != loaded.name),
        code=BenchmarkCode(folder=shipped_evals()),
    )
    _set_shots(task, options.shots(spec), options.fewshot)
    documents = Documents(loaded, chat=options.chat, system=options.system)
    metrics = {
        filtered_metric(metric, ensemble.name): metric
        for ensemble in task._filters
        for metric in task.aggregation()
    }
    aggregate = {metric: aggregation_of_task(task, theirs, metric) for metric, theirs in metrics.items()}
    corpus = [metric for metric, how in aggregate.items() if how.is_corpus_level]
    first = [metric for metric, theirs in metrics.items() if theirs == "acc_norm"] or list(metrics)

    def ask(example: Any) -> Scores:
        index = example["doc_id"]
        answers = yield documents.requests(index)[1]
        return documents.grade(index, answers, corpus)

    ask.__name__ = f"test_{loaded.name}"
    spec = replace(
        spec,
        data=Dataset(rows=documents.plain_rows),
        asks=_kinds(documents),
        primary=first[0],
        aggregate=aggregate,
        shots=Shots(task.config.num_fewshot or 0, pick=LM_EVAL),
        most_unusable=1.0,  # the limit of tokens is the task's own
        published=Published(
            len(documents.rows), source=f"lm-evaluation-harness, task {loaded.name} {task.VERSION}"
        ),
        code=BenchmarkCode(
            rule=task.config.description if isinstance(task.config.description, str) else "",
            folder=shipped_evals(),
            digest=conditions_digest(task, options.code),
        ),
    )
    return declare(ask, spec)


def _whole_version(version: object) -> int:
    """Return the integer part of a task's version, 0 without one.

    Its configuration's hash covers all of it.
    """
    try:
        return int(float(str(version)))
    except ValueError:
        return 0


def _set_shots(task: Task, given: int | None, fewshot: str) -> None:
    """Set the number of few-shot examples and their seed, as ``simple_evaluate`` does.

    A task that is configured to have none stays so.
    """
    configured = task.get_config("num_fewshot")
    if given is not None and configured != 0:
        task.set_config("num_fewshot", given)
    elif configured is None:
        task.set_config("num_fewshot", 0)
    task.set_fewshot_seed(int(fewshot.partition(":")[2] or FEWSHOT_SEED))


def _kinds(documents: Documents) -> tuple[type[Request], ...]:
    """Return the kinds of request that a task makes, by its first document."""
    first = documents.requests(0)[1] if documents.rows else []
    return tuple(dict.fromkeys(map(type, first))) or (Generate,)


def group_composites(
    groups: Sequence[Group], specs: Mapping[str, Benchmark], limit: float | None
) -> list[Composite]:
    """Return the metrics that groups aggregate, as composites of their tasks' metrics.

    A task weighs as its items, or all tasks weigh alike, as the group says. A metric of which less is better has none.

    Args:
        groups: The groups, those within others too.
        specs: The declared benchmarks by the names of their tasks.
        limit: The value of ``--eval-limit``.

    """
    composites: dict[str, Composite] = {}
    for group in groups:
        tasks = [specs[task.task_name] for task in group.get_all_tasks()]
        name = f"{LM_EVAL_PREFIX}{group.name}"
        for wanted in group.aggregate_metric_list or ():
            filters = wanted.filter_list or sorted(
                {f.name for task in group.get_all_tasks() for f in task._filters}
            )
            for metric in (filtered_metric(wanted.metric, filtering) for filtering in filters):
                having = [spec for spec in tasks if metric in spec.aggregate]
                if not having or not all(spec.aggregate[metric].higher_is_better for spec in having):
                    continue
                sizes = [_size(spec, limit) if wanted.weight_by_size else 1 for spec in having]
                parts = [
                    WeightedMetric(size / sum(sizes), spec.name, metric)
                    for spec, size in zip(having, sizes, strict=True)
                ]
                own = f"{name}:{metric}" if name in composites else name
                composites[own] = Composite(own, tuple(parts))
    return list(composites.values())


def _size(spec: Benchmark, limit: float | None) -> int:
    """Return the number of a task's items that a run asks."""
    rows = spec.published.rows
    assert isinstance(rows, int)
    return len(apply_limit([Example("", None, {}, "")] * rows, limit))
