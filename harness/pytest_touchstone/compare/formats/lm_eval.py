"""Results of lm-evaluation-harness: ``results_DATE.json``, also before 0.4, and the samples.

    results      {TASK: {"acc,none": ..., "acc_stderr,none": ...}}; before 0.4 without ",FILTER"
    n-samples    {TASK: {"original": N, "effective": n}}; else n is read off the standard error where only one fits
    versions, n-shot, configs, config    conditions
    group_subtasks                       groups are left out where their tasks are there; of 0.4.0, which does not say
                                         which are theirs, where any task is told as part of a group (``alias``)

Averages of lighteval (``all``, ``mmlu:_average``) are left out, as they are of tasks that the file has. Of results
that are nested by the date of a run (``{TASK: {DATE: {METRIC: ...}}}``) the newest count.

``samples_TASK_DATE.jsonl``, one line per document and filter, has the items: they are taken where they are complete.
Their id is TASK/doc_id, their row's hash is ``doc_hash``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.candidate import (
    BenchmarkScores,
    CheckpointResults,
    series_and_step_from_file,
    series_and_step_from_path,
)
from pytest_touchstone.compare.formats.base import ResultTable, json_content, read_json
from pytest_touchstone.compare.formats.task_json import (
    averages,
    candidate_of_tasks,
    file_stem,
    is_task_file,
    metrics_by_task,
    newest,
    table_of,
)
from pytest_touchstone.compare.formats.task_metrics import (
    PER_CENT,
    PERPLEXITIES,
    TaskMetrics,
    metric_name,
    scales_of,
)
from pytest_touchstone.core.dataset import RawRow, read_lines
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.metrics.lm_eval.documents import RAW, item_number
from pytest_touchstone.results.store_entry import ItemScores

_SIGNS: Final = ("config", "configs", "versions", "n-shot")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d.-]+$")
_OLD_MMLU: Final = "hendrycksTest-"
OURS: Final = {"lambada_openai": "lambada"}


class LmEvalFormat:
    """Results of lm-evaluation-harness."""

    name = "lm_eval"
    patterns = ("results_*.json", "*/results_*.json", "results.json", "*/results.json")

    def sniff(self, path: Path) -> bool:
        """Return whether it is a file by task that says how it was configured."""
        content = json_content(path)
        return is_task_file(content) and any(sign in content for sign in _SIGNS)

    def read(self, path: Path, sizes: Mapping[str, int]) -> ResultTable:
        """Read the file, and the samples beside it."""
        return ResultTable((read_lm_eval(path, sizes),))


def benchmark_name(task: str) -> str:
    """Return this harness's name for a task, or the task's own if it has no other."""
    if task.startswith(_OLD_MMLU):
        return f"mmlu_{task.removeprefix(_OLD_MMLU)}"
    return OURS.get(task, task)


def read_lm_eval(path: Path, sizes: Mapping[str, int]) -> CheckpointResults:
    """Return the candidate of a results file. Raises ``DataError`` naming what cannot be read."""
    source, content = read_json(path)
    results = newest(content["results"])
    content = {**content, "results": results}
    tasks = {benchmark_name(task): task for task in results}
    wholes = {benchmark_name(task): "the tasks that it is made of" for task in _wholes(content)}
    plain = _by_benchmark(content)
    scales = None if "exported_by" in content else scales_of(results, lm_eval=True)
    metrics = metrics_by_task(plain, path, sizes, wholes, scales)
    candidate = candidate_of_tasks(
        plain,
        source,
        metrics,
        wholes,
        name=_model(content) or file_stem(path),
        about=_about(content, path),
        conditions={name: _conditions(content, task) for name, task in tasks.items()},
    )
    notes = []
    for name, entry in candidate.entries.items():
        task, n = tasks[name], entry.saved.scored
        beside = _samples_beside(path, task)
        if beside is None:
            continue
        items = _items(beside, name, {key.partition(",")[0] for key in results[task]}, metrics[name])
        if len(items.examples) < n:
            known = len(items.examples)
            notes.append(f"{path.name}: samples of {known} of {n} items of {task}: its totals are compared")
            continue
        saved = replace(entry.saved, directory=str(beside.resolve()))
        candidate.entries[name] = BenchmarkScores(saved, items, beside)
    return replace(candidate, notes=(*candidate.notes, *notes))


def _by_benchmark(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results by this harness's benchmark names, in the layout of ``task_json``."""
    results, directions, aggregations = {}, {}, {}
    for task, values in content["results"].items():
        name = benchmark_name(task)
        sizes = table_of(table_of(content.get("n-samples")).get(task))
        better = table_of(table_of(content.get("higher_is_better")).get(task))
        samples = sizes.get("effective", values.get("num_total"))
        results[name] = {**values, "samples": samples, "of": sizes.get("original")}
        directions[name] = {metric_name(key): better.get(key.partition(",")[0]) for key in values}
        aggregations[name] = _made_by(table_of(content.get("configs")).get(task))
    return {"results": results, "higher_is_better": directions, "aggregation": aggregations}


def _wholes(content: Mapping[str, Any]) -> set[str]:
    """Return the tasks whose items belong to other tasks of the file: groups and averages."""
    results, parts = content["results"], table_of(content.get("group_subtasks"))
    found = {task for task in results if any(part in results for part in _names(parts.get(task)))}
    groups = table_of(content.get("groups")).keys() & results.keys()
    aliases = [str(values.get("alias", "")) for task, values in results.items() if task not in groups]
    if any(alias.startswith(" ") for alias in aliases):
        found |= groups
    return found | averages(results)


_MEANS: Final = ("mean", "nanmean", "bypass", "perplexity", "weighted_perplexity", "bits_per_byte")
"""The aggregations of lm-evaluation-harness that are means, or read as such."""

_FUNCTION: Final = re.compile(r"\s*def (\w+)")


def _made_by(config: Any) -> dict[str, str]:
    """Return the aggregations of a task's metrics that are not means, by metric.

    For an aggregation given as a function, the file has its source, from which the name is taken.
    """
    rows = table_of(config).get("metric_list")
    given = {
        str(row.get("metric")): str(row["aggregation"])
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, Mapping) and row.get("aggregation") is not None
    }
    return {
        name: found[1] if (found := _FUNCTION.match(text)) else text
        for name, text in given.items()
        if text not in _MEANS
    }


def _samples_beside(path: Path, task: str) -> Path | None:
    """Return the samples file with the same date as the results, if it was kept."""
    date = _DATE.search(path.stem)
    if date is None:
        return None
    names = (task, re.sub(r"\W", "_", task))
    places = (path.with_name(f"samples_{name}_{date[0]}.jsonl") for name in names if "/" not in name)
    return next((place for place in places if place.is_file()), None)


def _items(path: Path, benchmark: str, names: Container[str], found: TaskMetrics) -> ItemScores:
    """Return the scores in a file of samples, in order of the ids.

    ``names`` are the metrics of the task, ``found`` their totals in the results file.
    """
    rows: dict[str, str] = {}
    scores: dict[str, dict[str, float]] = {}
    raw: dict[str, dict[str, str]] = {}
    for line in read_lines(path):
        number = _example(line)
        rows[number] = str(line.data.get("doc_hash", ""))
        kept = scores.setdefault(number, {})
        listed_names = line.data.get("metrics")
        for base in map(str, listed_names) if isinstance(listed_names, list) else _numbers(line.data, names):
            value = line.data.get(base)
            metric = metric_name(f"{base},{line.data.get('filter', 'none')}")
            if isinstance(value, list) and (item := item_number(value)) is not None:
                kept[metric] = item
                raw.setdefault(RAW + metric, {})[number] = json.dumps(value)
            elif isinstance(value, (bool, int, float)):
                kept[f"{metric}_logprob" if base in PERPLEXITIES else metric] = float(value)
    ids = sorted(rows)
    metrics = dict.fromkeys(name for number in ids for name in scores[number])
    for name in metrics.keys() & set(found.per_cent):
        if any(abs(own.get(name, 0.0)) > 1 for own in scores.values()):
            scores = {
                number: {**own, name: own[name] / PER_CENT} if name in own else own
                for number, own in scores.items()
            }
    return ItemScores(
        examples=[f"{benchmark}/{number}" for number in ids],
        rows=[rows[number] for number in ids],
        groups=[None] * len(ids),
        clusters=[None] * len(ids),
        scores={name: [scores[number].get(name) for number in ids] for name in metrics},
        facts={name: [values.get(number) for number in ids] for name, values in raw.items()},
    )


def samples_of(path: Path, benchmark: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the samples of a file by the ids of their items."""
    return ((f"{benchmark}/{_example(line)}", line.data) for line in read_lines(path))


def _example(line: RawRow) -> str:
    """Return the id of a sample's document; raises ``DataError`` if it has none."""
    found = line.data.get("doc_id")
    if isinstance(found, bool) or not isinstance(found, (int, str)):
        raise DataError(f"{line.path}, row {line.number}: doc_id is {found!r}; samples have a number there")
    return str(found)


def _numbers(data: Mapping[str, Any], known: Container[str]) -> list[str]:
    """Return the metrics of a sample that does not list them.

    These are the task's metrics, also where written as integers or booleans, and all fields with a fraction.
    """
    return [
        name
        for name, value in data.items()
        if name != "doc_id" and (isinstance(value, float) or (name in known and isinstance(value, int)))
    ]


def _names(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _conditions(content: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return the known conditions of the task, by the names that saved results use."""
    config = table_of(content.get("config"))
    found = {
        "version": table_of(content.get("versions")).get(task),
        "shots": _shots(content, task),
        "limit": config.get("limit"),
        "dtype": str(config.get("model_dtype") or "").removeprefix("torch.") or None,
    }
    if "chat_template" in content:
        found["template"] = "chat" if content["chat_template"] else "plain"
    return {key: value for key, value in found.items() if value is not None}


def _shots(content: Mapping[str, Any], task: str) -> int | None:
    """Return the number of few-shot examples.

    A run of several tasks may give a list with one number for each, in the order of the tasks.
    """
    given = table_of(content.get("n-shot")).get(task, table_of(content.get("config")).get("num_fewshot"))
    tasks = list(content["results"])
    if isinstance(given, list):
        given = given[tasks.index(task)] if len(given) == len(tasks) else None
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _arguments(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the model's arguments by name."""
    given = table_of(content.get("config")).get("model_args") or ""
    return given if isinstance(given, Mapping) else dict(re.findall(r"(?:^|,)\s*(\w+)=([^,]*)", str(given)))


def _about(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the series and the step of a training.

    They come from the model's path or its revision (``step143000``), else from its argument ``iteration``, else from
    the file's name.
    """
    given = _arguments(content)
    name, revision = str(given.get("peft") or given.get("pretrained") or ""), str(given.get("revision") or "")
    if told := series_and_step_from_path(f"{name}/{revision}") or series_and_step_from_path(name):
        return told
    series = name or _model(content) or str(path.parent)
    step = str(given.get("iteration") or "")
    if step.isdecimal():
        return {"series": series, "step": int(step)}
    return series_and_step_from_file(path, series)


def _model(content: Mapping[str, Any]) -> str | None:
    """Return the model that was scored: its name or path, its revision, and its adapter."""
    given = _arguments(content)
    name = (
        content.get("model_name")
        or table_of(content.get("config_general")).get("model_name")
        or given.get("pretrained")
        or table_of(content.get("config")).get("model")
    )
    if not name:
        return None
    revision = given.get("revision")
    adapter = given.get("peft")
    return f"{name}{f'@{revision}' if revision else ''}{f' + {adapter}' if adapter else ''}"
