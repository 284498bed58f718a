"""Result files by task, one per checkpoint, as comparison scripts of fine-tuning studies read them.

    {"model": NAME, "results": {TASK: {METRIC: value, METRIC_stderr: value, "samples": n}}}

``samples`` may be missing: then the number of items is read off the standard error where only one fits, else not known.
A task that is the whole of others in the file (its items are theirs together) is left out: its parts are compared.

A task is a benchmark; the subjects of MMLU are tasks named ``mmlu_SUBJECT``, the groups of any other benchmark
``BENCHMARK_GROUP``. A value that is undefined is null. ``of`` is how many items the task has with this data, ``mark``
says when the values are over fewer, or over a sample; ``template`` is "chat" where texts were asked for through a chat
template, else "plain". ``higher_is_better`` has ``{TASK: {METRIC: false}}`` for metrics that are better when lower.
``not_valid``, where it is there, says why the values of a task must not be believed. ``checkpoint_info`` may have the
checkpoint's ``series``, ``step`` or ``global_step``, ``epoch`` and ``seq_len``.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeGuard

from pytest_touchstone.compare.candidate import (
    BenchmarkScores,
    CheckpointResults,
    ResultSource,
    result_from_totals,
    series_and_step_from_file,
    series_and_step_from_path,
)
from pytest_touchstone.compare.formats.base import ResultTable, json_content, read_json
from pytest_touchstone.compare.formats.run import about
from pytest_touchstone.compare.formats.task_metrics import (
    MetricScales,
    TaskMetrics,
    metric_notes,
    metrics_of,
    primary_of,
    scales_of,
)
from pytest_touchstone.core.aggregation import Aggregation, aggregation_of, mean
from pytest_touchstone.core.files import SCHEMA, file_name
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX
from pytest_touchstone.core.text import join_names
from pytest_touchstone.results.summary import Result, Summary, replace_non_finite

_AVERAGE: Final = re.compile(r"all|overall|average|avg|mean|(.*[|:])?_average([|:].*)?", re.IGNORECASE)
_DATED: Final = re.compile(r"\d{4}-\d\d-\d\d")
MMLU_GROUPS: Final = ("mmlu_stem", "mmlu_humanities", "mmlu_social_sciences", "mmlu_other")
"""Tasks that are named like a subject of MMLU, and are several."""


class TaskFile:
    """One file per checkpoint, by task."""

    name = "task_json"
    patterns = ("*_results.json",)

    def sniff(self, path: Path) -> bool:
        """Return whether it has a table per task."""
        return is_task_file(json_content(path))

    def read(self, path: Path, sizes: Mapping[str, int]) -> ResultTable:
        """Read the checkpoint."""
        return ResultTable((read_task_file(path, sizes),))

    def write(self, summary: Summary, taken: Container[str]) -> dict[str, Any]:
        """Return a file per checkpoint; one that has the name of a benchmark gets the prefix ``checkpoint-``."""
        found = {}
        for checkpoint in dict.fromkeys(result.checkpoint for result in summary.results):
            name = f"{file_name(checkpoint)}_results.json"
            found[f"checkpoint-{name}" if name in taken else name] = replace_non_finite(
                by_task(summary, checkpoint)
            )
        return found


def table_of(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def newest(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results by task; of results nested by date, those of the newest run."""
    found = dict(results)
    for task, values in results.items():
        if values and all(_DATED.match(key) and isinstance(one, Mapping) for key, one in values.items()):
            found[task] = values[max(values)]
    return found


def averages(results: Iterable[str]) -> set[str]:
    """Return the tasks that are averages of others by their names, such as ``all`` and ``mmlu:_average``."""
    names = list(results)
    found = {name for name in names if _AVERAGE.fullmatch(name)}
    return found if len(found) < len(names) else set()


def is_task_file(content: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether this is the content of a file by task, or of lm-evaluation-harness."""
    return (
        isinstance(content, Mapping)
        and isinstance(content.get("results"), Mapping)
        and all(isinstance(one, Mapping) for one in content["results"].values())
    )


def read_task_file(path: Path, sizes: Mapping[str, int]) -> CheckpointResults:
    """Return the candidate of a file by task. Raises ``DataError`` for a value that is not a number."""
    source, content = read_json(path)
    return read_tasks(content, path, source, sizes)


def read_tasks(
    content: Mapping[str, Any], path: Path, source: ResultSource, sizes: Mapping[str, int]
) -> CheckpointResults:
    """Return the candidate of the content of a file by task. Raises as ``read_task_file``."""
    results = newest(content["results"])
    content = {**content, "results": results}
    name = str(content.get("model") or file_stem(path))
    info = table_of(content.get("checkpoint_info"))
    told = series_and_step_from_path(str(info.get("path") or name)) or series_and_step_from_file(path, name)
    wholes = _wholes(results)
    scales = None if "schema" in content else scales_of(results)
    metrics = metrics_by_task(content, path, sizes, wholes, scales)
    return candidate_of_tasks(content, source, metrics, wholes, name=name, about=told | _about(info))


def metrics_by_task(
    content: Mapping[str, Any],
    path: Path,
    sizes: Mapping[str, int],
    wholes: Container[str],
    scales: MetricScales | None,
) -> dict[str, TaskMetrics]:
    """Return the metrics of all tasks but ``wholes``. Raises ``DataError`` for a value that is not a number."""
    aggregations = table_of(content.get("aggregation"))
    return {
        task: metrics_of(
            values,
            where=f"{path}, {task}",
            task=task,
            n=values.get("samples", values.get("num_total")),
            default=sizes.get(task),
            scales=scales,
            made_by={metric: str(by) for metric, by in table_of(aggregations.get(task)).items()},
        )
        for task, values in content["results"].items()
        if task not in wholes
    }


def candidate_of_tasks(
    content: Mapping[str, Any],
    source: ResultSource,
    metrics: Mapping[str, TaskMetrics],
    wholes: Mapping[str, str],
    *,
    name: str,
    about: Mapping[str, Any],
    conditions: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> CheckpointResults:
    """Return the candidate with these metrics; ``wholes`` names the parts of each task that is left out."""
    file, results = source.file, content["results"]
    notes = [f"{file}: {task} is left out, {wholes[task]} are compared" for task in results if task in wholes]
    notes += metric_notes(file, metrics)
    if lacking := [task for task, found in metrics.items() if not (found.metrics or found.unknown)]:
        notes.append(f"{file}: no metric that is better when higher, left out: {join_names(lacking)}")
    directions = table_of(content.get("higher_is_better"))
    entries = {}
    for task, found in metrics.items():
        if not found.metrics:
            continue
        values = results[task]
        saved = result_from_totals(
            task,
            found.metrics,
            primary=primary_of(task, found.metrics),
            source=source,
            name=name,
            about=about,
            conditions=conditions.get(task),
            aggregate=found.aggregate | _declared(table_of(directions.get(task)), found),
            of=values["of"] if isinstance(values.get("of"), int) else None,
            mark=values["mark"] if isinstance(values.get("mark"), str) else None,
            invalid=str(values["not_valid"]) if values.get("not_valid") else None,
        )
        entries[task] = BenchmarkScores(saved=saved)
    return CheckpointResults(name=name, origin=file, about=dict(about), entries=entries, notes=tuple(notes))


def _about(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about a checkpoint that have the right type."""
    return {
        name: value
        for name, value in about(info).items()
        if isinstance(value, str if name == "series" else (int, float)) and not isinstance(value, bool)
    }


def _declared(directions: Mapping[str, Any], found: TaskMetrics) -> dict[str, dict[str, Any]]:
    """Return the aggregations of the metrics that the file declares lower-is-better."""
    lower = [name for name in found.metrics if directions.get(name) is False]
    return {
        name: mean(name, higher_is_better=False).plain() | found.aggregate.get(name, {}) for name in lower
    }


def file_stem(path: Path) -> str:
    """Return the file's name without the suffix that all result files share."""
    return re.sub("(_eval)?_results$", "", path.stem)


def _wholes(results: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the tasks whose items belong to several other tasks, with a description of these."""
    found = dict.fromkeys(averages(results), "the others")
    for task, values in results.items():
        stem = "mmlu" if task.startswith("mmlu") else task
        parts = [
            other
            for other in results
            if other != task and other.startswith(f"{stem}_") and other not in MMLU_GROUPS
        ]
        sizes = [results[part].get("samples") for part in parts]
        known = [size for size in sizes if isinstance(size, int)]
        if len(parts) > 1 and len(known) == len(parts) and sum(known) == values.get("samples"):
            found[task] = f"its {len(parts)} parts"
    if "mmlu" in found:  # with all subjects there, each group is made of some of them
        found |= dict.fromkeys((name for name in MMLU_GROUPS if name in results), "its subjects")
    return found


def by_task(summary: Summary, checkpoint: str) -> dict[str, Any]:
    """Return the results of one checkpoint in the layout of a file by task."""
    own = [result for result in summary.results if result.checkpoint == checkpoint]
    lower = {task_name(one): names for one in own if (names := _lower(summary, one))}
    other = {task_name(one): kinds for one in own if (kinds := _no_means(summary, one))}
    return {
        "schema": SCHEMA,
        "model": checkpoint,
        "run_id": summary.run_id,
        "results": {task_name(result): _numbers(result) for result in own},
        **({"higher_is_better": lower} if lower else {}),
        **({"aggregation": other} if other else {}),
    }


def _lower(summary: Summary, result: Result) -> dict[str, bool]:
    """Return the lower-is-better metrics but perplexities, which readers know by name."""
    ways = _ways(summary, result)
    return {name: False for name, how in ways.items() if not how.higher_is_better and how.by != "perplexity"}


def _no_means(summary: Summary, result: Result) -> dict[str, str]:
    """Return the names of the aggregations that are not means of the items' scores."""
    return {name: how.by for name, how in _ways(summary, result).items() if how.is_corpus_level}


def _ways(summary: Summary, result: Result) -> dict[str, Aggregation]:
    declared = next((one.aggregate for one in summary.declarations if one.name == result.benchmark), {})
    return {name: aggregation_of(declared, name) for name in result.metrics}


def task_name(result: Result) -> str:
    """``mmlu_SUBJECT`` for a subject of MMLU, else the benchmark with its group, a task's by its own name."""
    if result.group is None:
        return result.benchmark.removeprefix(LM_EVAL_PREFIX)
    stem = "mmlu" if result.benchmark.startswith("mmlu") else result.benchmark
    return f"{stem}_{result.group}"


def _numbers(result: Result) -> dict[str, float | int | str | None]:
    numbers: dict[str, float | int | str | None] = {}
    for name, metric in result.metrics.items():
        numbers[name] = metric.value
        numbers[f"{name}_stderr"] = metric.stderr
    known: dict[str, int | str | None]
    known = {"of": result.of, "mark": result.mark, "template": result.template, "not_valid": result.invalid}
    known |= {"unsandboxed": result.unsandboxed, "weak_tests": len(result.weak_tests)}
    return {**numbers, "samples": result.scored, **{name: value for name, value in known.items() if value}}
