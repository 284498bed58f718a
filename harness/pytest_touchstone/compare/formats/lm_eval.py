"""Results of lm-evaluation-harness: ``results_DATE.json``, also of its releases before 0.4, and the samples beside it.

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

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.candidate import (
    BenchmarkScores,
    CheckpointResults,
    ResultSource,
    published_entry,
    told_by_file,
    told_by_path,
)
from pytest_touchstone.compare.formats.base import ResultTable, json_content, read_json
from pytest_touchstone.compare.formats.task_json import averages, file_stem, is_task_file, newest, table_of
from pytest_touchstone.compare.formats.task_metrics import (
    PER_CENT,
    PERPLEXITIES,
    TaskMetrics,
    metric_name,
    metric_notes,
    metrics_of,
    primary_of,
    scales_of,
)
from pytest_touchstone.core.data_files import RawRow, read_lines
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.text import listed
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
    """The task by this harness's name, where it has the same one."""
    if task.startswith(_OLD_MMLU):
        return f"mmlu_{task.removeprefix(_OLD_MMLU)}"
    return OURS.get(task, task)


def read_lm_eval(path: Path, sizes: Mapping[str, int]) -> CheckpointResults:
    """The candidate of a results file. Raises ``DataError`` naming what cannot be read."""
    source, content = read_json(path)
    content = {**content, "results": newest(content["results"])}
    name = _model(content) or file_stem(path)
    wholes = _wholes(content)
    read = _Read(path, content, source, name, sizes)
    entries, notes, lacking = {}, list[str](), list[str]()
    for task, values in content["results"].items():
        if task in wholes:
            notes.append(f"{path.name}: {task} is left out, the tasks that it is made of are compared")
            continue
        entry = _entry(task, values, read)
        if entry is None:
            lacking += [] if read.metrics[task].unknown else [task]
            continue
        n, known = entry.saved.scored, len(entry.items.examples) if entry.answers else None
        if known is not None and n and known < n:
            notes.append(f"{path.name}: samples of {known} of {n} items of {task}: its totals are compared")
            entry = BenchmarkScores(saved=entry.saved)
        entries[entry.saved.benchmark] = entry
    notes += metric_notes(path.name, read.metrics)
    if lacking:
        notes.append(f"{path.name}: no metric that is better when higher, left out: {listed(lacking)}")
    return CheckpointResults(
        name=name, origin=path.name, about=_about(content, path), entries=entries, notes=tuple(notes)
    )


def _wholes(content: Mapping[str, Any]) -> set[str]:
    """The tasks whose items are those of others in the file: groups and averages."""
    results, parts = content["results"], table_of(content.get("group_subtasks"))
    found = {task for task in results if any(part in results for part in _names(parts.get(task)))}
    groups = table_of(content.get("groups")).keys() & results.keys()
    aliases = [str(values.get("alias", "")) for task, values in results.items() if task not in groups]
    if any(alias.startswith(" ") for alias in aliases):
        found |= groups
    return found | averages(results)


@dataclass(frozen=True, slots=True)
class _Read:
    """A results file that is being read, and the metrics of its tasks as far as they are."""

    path: Path
    content: Mapping[str, Any]
    source: ResultSource
    name: str
    sizes: Mapping[str, int]
    metrics: dict[str, TaskMetrics] = field(default_factory=dict)


def _entry(task: str, values: Mapping[str, Any], read: _Read) -> BenchmarkScores | None:
    content, path = read.content, read.path
    better = table_of(table_of(content.get("higher_is_better")).get(task))
    benchmark = benchmark_name(task)
    samples = table_of(table_of(content.get("n-samples")).get(task))
    whole = samples.get("original")
    found = metrics_of(
        values,
        where=f"{path}, {task}",
        task=task,
        n=samples.get("effective", values.get("num_total")),
        default=read.sizes.get(benchmark),
        less_is_better=frozenset(metric for metric, more in better.items() if more is False),
        scales=None if "exported_by" in content else scales_of(content["results"], lm_eval=True),
        made_by=_made_by(table_of(content.get("configs")).get(task)),
    )
    read.metrics[task] = found
    if not found.metrics:
        return None
    saved = published_entry(
        benchmark,
        found.metrics,
        primary=primary_of(benchmark, found.metrics),
        source=read.source,
        name=read.name,
        about=_about(content, path),
        conditions=_conditions(content, task),
        of=whole if isinstance(whole, int) else None,
        aggregate=found.aggregate,
    )
    beside = _samples_beside(path, task)
    if beside is None:
        return BenchmarkScores(saved=saved)
    items = _items(beside, benchmark, {key.partition(",")[0] for key in values}, found)
    return BenchmarkScores(replace(saved, directory=str(beside.resolve())), items, beside)


_MEANS: Final = ("mean", "nanmean", "bypass", "perplexity", "weighted_perplexity", "bits_per_byte")
"""The aggregations of lm-evaluation-harness that are means, or read as such."""

_FUNCTION: Final = re.compile(r"\s*def (\w+)")


def _made_by(config: Any) -> dict[str, str]:
    """The names of the aggregations that a task's configuration gives to metrics that are no means; a function has its
    source there."""
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
    """The samples of the same date as the results, where they were kept."""
    date = _DATE.search(path.stem)
    if date is None:
        return None
    names = (task, re.sub(r"\W", "_", task))
    places = (path.with_name(f"samples_{name}_{date[0]}.jsonl") for name in names if "/" not in name)
    return next((place for place in places if place.is_file()), None)


def _items(path: Path, benchmark: str, names: Container[str], found: TaskMetrics) -> ItemScores:
    """The scores of a file of samples, in order of the ids; ``names`` are the metrics of the task as ``found``."""
    rows: dict[str, str] = {}
    scores: dict[str, dict[str, float]] = {}
    for line in read_lines(path):
        number = _example(line)
        rows[number] = str(line.data.get("doc_hash", ""))
        kept = scores.setdefault(number, {})
        listed_names = line.data.get("metrics")
        for base in map(str, listed_names) if isinstance(listed_names, list) else _numbers(line.data, names):
            value = line.data.get(base)
            if isinstance(value, (bool, int, float)):
                metric = metric_name(f"{base},{line.data.get('filter', 'none')}")
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
    )


def samples_of(path: Path, benchmark: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the samples of a file by the ids of their items."""
    return ((f"{benchmark}/{_example(line)}", line.data) for line in read_lines(path))


def _example(line: RawRow) -> str:
    """The number or name of a sample's document; raises ``DataError`` where it has none."""
    found = line.data.get("doc_id")
    if isinstance(found, bool) or not isinstance(found, (int, str)):
        raise DataError(f"{line.path}, row {line.number}: doc_id is {found!r}; samples have a number there")
    return str(found)


def _numbers(data: Mapping[str, Any], known: Container[str]) -> list[str]:
    """The metrics of a sample that does not list them: those of its task, which may be written as integers or truth
    values, and fields with a fraction."""
    return [
        name
        for name, value in data.items()
        if name != "doc_id" and (isinstance(value, float) or (name in known and isinstance(value, int)))
    ]


def _names(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _conditions(content: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The known conditions of the task, by the names that saved results use."""
    config = table_of(content.get("config"))
    found = {
        "version": table_of(content.get("versions")).get(task),
        "shots": _shots(content, task),
        "limit": config.get("limit"),
        "dtype": config.get("model_dtype"),
    }
    if "chat_template" in content:
        found["template"] = "chat" if content["chat_template"] else "plain"
    return {key: value for key, value in found.items() if value is not None}


def _shots(content: Mapping[str, Any], task: str) -> int | None:
    """The number of examples; a run of several tasks may give a list with one for each, in their order."""
    given = table_of(content.get("n-shot")).get(task, table_of(content.get("config")).get("num_fewshot"))
    tasks = list(content["results"])
    if isinstance(given, list):
        given = given[tasks.index(task)] if len(given) == len(tasks) else None
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _arguments(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of the model, by name."""
    given = table_of(content.get("config")).get("model_args") or ""
    return given if isinstance(given, Mapping) else dict(re.findall(r"(?:^|,)\s*(\w+)=([^,]*)", str(given)))


def _about(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The place in a training that the model's path tells, or its revision (``step143000``); else its argument
    ``iteration``, or the name of the file."""
    given = _arguments(content)
    name, revision = str(given.get("peft") or given.get("pretrained") or ""), str(given.get("revision") or "")
    if told := told_by_path(f"{name}/{revision}") or told_by_path(name):
        return told
    series = name or _model(content) or str(path.parent)
    step = str(given.get("iteration") or "")
    if step.isdecimal():
        return {"series": series, "step": int(step)}
    return told_by_file(path, series)


def _model(content: Mapping[str, Any]) -> str | None:
    """The model that was scored: its name or path, its revision, and its adapter."""
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
