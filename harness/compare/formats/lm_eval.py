"""Results of lm-evaluation-harness: ``results_DATE.json``, also of its releases before 0.4, and the samples beside it.

    results      {TASK: {"acc,none": ..., "acc_stderr,none": ...}}; before 0.4 without ",FILTER"
    n-samples    {TASK: {"original": N, "effective": n}}; else n is read off the standard error where only one fits
    versions, n-shot, configs, config    conditions
    group_subtasks                       groups are left out where their tasks are there

``samples_TASK_DATE.jsonl``, one line per document and filter, has the items: they are taken where they are complete.
Their id is TASK/doc_id, their row's hash is ``doc_hash``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from harness.compare.candidate import Candidate, Entry, Source, published_entry, told_by_path
from harness.compare.formats.base import Table, json_content, read_json
from harness.compare.formats.task_json import file_stem, is_task_file, table_of
from harness.compare.formats.task_metrics import PERPLEXITIES, metric_name, metrics_of, primary_of
from harness.core.errors import DataError
from harness.core.raw_rows import RawRow, read_lines
from harness.core.text import listed
from harness.results.store_entry import ItemScores

_SIGNS: Final = ("config", "configs", "versions", "n-shot")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d.-]+$")
_OLD_MMLU: Final = "hendrycksTest-"
OURS: Final = {"lambada_openai": "lambada"}


class LmEval:
    """Results of lm-evaluation-harness."""

    name = "lm_eval"
    patterns = ("results_*.json", "*/results_*.json")

    def sniff(self, path: Path) -> bool:
        """Return whether it is a file by task that says how it was configured."""
        content = json_content(path)
        return is_task_file(content) and any(sign in content for sign in _SIGNS)

    def read(self, path: Path, sizes: Mapping[str, int]) -> Table:
        """Read the file, and the samples beside it."""
        return Table((read_lm_eval(path, sizes),))


def benchmark_name(task: str) -> str:
    """The task by this harness's name, where it has the same one."""
    if task.startswith(_OLD_MMLU):
        return f"mmlu_{task.removeprefix(_OLD_MMLU)}"
    return OURS.get(task, task)


def read_lm_eval(path: Path, sizes: Mapping[str, int]) -> Candidate:
    """The candidate of a results file. Raises ``DataError`` naming what cannot be read."""
    source, content = read_json(path)
    name = _model(content) or file_stem(path)
    groups = table_of(content.get("group_subtasks"))
    entries, notes, lacking = {}, [], list[str]()
    for task, values in content["results"].items():
        if any(part in content["results"] for part in _names(groups.get(task))):
            notes.append(f"{path.name}: {task} is left out, the tasks that it is made of are compared")
            continue
        entry = _entry(task, values, content=content, path=path, source=source, name=name, sizes=sizes)
        if entry is None:
            lacking.append(task)
            continue
        n, known = entry.saved.scored, len(entry.items.examples) if entry.answers else None
        if known is not None and n and known < n:
            notes.append(f"{path.name}: samples of {known} of {n} items of {task}: its totals are compared")
            entry = Entry(saved=entry.saved)
        entries[entry.saved.benchmark] = entry
    if lacking:
        notes.append(f"{path.name}: no metric that is better when higher, left out: {listed(lacking)}")
    return Candidate(name=name, origin=path.name, about=_about(content), entries=entries, notes=tuple(notes))


def samples_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines of a file of samples, with the example's id."""
    for line in read_lines(path):
        yield _example(line), line.data


def _entry(
    task: str,
    values: Mapping[str, Any],
    *,
    content: Mapping[str, Any],
    path: Path,
    source: Source,
    name: str,
    sizes: Mapping[str, int],
) -> Entry | None:
    better = table_of(table_of(content.get("higher_is_better")).get(task))
    benchmark = benchmark_name(task)
    samples = table_of(table_of(content.get("n-samples")).get(task))
    whole = samples.get("original")
    found = metrics_of(
        values,
        where=f"{path}, {task}",
        n=samples.get("effective"),
        default=sizes.get(benchmark),
        less_is_better=frozenset(metric for metric, more in better.items() if more is False),
    )
    if not found.metrics:
        return None
    saved = published_entry(
        benchmark,
        found.metrics,
        primary=primary_of(benchmark, found.metrics),
        source=source,
        name=name,
        about=_about(content),
        conditions=_conditions(content, task),
        of=whole if isinstance(whole, int) else None,
        aggregate=found.aggregate,
    )
    beside = _samples_beside(path, task)
    if beside is None:
        return Entry(saved=saved)
    return Entry(replace(saved, directory=str(beside.resolve())), _items(beside, benchmark), beside)


def _samples_beside(path: Path, task: str) -> Path | None:
    """The samples of the same date as the results, where they were kept."""
    date = _DATE.search(path.stem)
    if date is None:
        return None
    names = (task, re.sub(r"\W", "_", task))
    places = (path.with_name(f"samples_{name}_{date[0]}.jsonl") for name in names if "/" not in name)
    return next((place for place in places if place.is_file()), None)


def _items(path: Path, benchmark: str) -> ItemScores:
    """The scores of a file of samples, in order of the ids."""
    rows: dict[str, str] = {}
    scores: dict[str, dict[str, float]] = {}
    for line in read_lines(path):
        number = _example(line)
        rows[number] = str(line.data.get("doc_hash", ""))
        kept = scores.setdefault(number, {})
        names = line.data.get("metrics")
        for base in names if isinstance(names, list) else _numbers(line.data):
            value = line.data.get(base)
            if isinstance(value, (bool, int, float)):
                metric = metric_name(f"{base},{line.data.get('filter', 'none')}")
                kept[f"{metric}_logprob" if base in PERPLEXITIES else metric] = float(value)
    ids = sorted(rows)
    metrics = dict.fromkeys(name for number in ids for name in scores[number])
    return ItemScores(
        examples=[f"{benchmark}/{number}" for number in ids],
        rows=[rows[number] for number in ids],
        groups=[None] * len(ids),
        clusters=[None] * len(ids),
        scores={name: [scores[number].get(name) for number in ids] for name in metrics},
    )


def _example(line: RawRow) -> str:
    found = line.data.get("doc_id")
    if isinstance(found, bool) or not isinstance(found, (int, str)):
        raise DataError(f"{line.path}, row {line.number}: doc_id is {found!r}; samples have a number there")
    return str(found)


def _numbers(data: Mapping[str, Any]) -> list[str]:
    """The metrics of a sample that does not list them: fields with a number, but for its own."""
    return [name for name, value in data.items() if isinstance(value, float) and name != "doc_id"]


def _names(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _conditions(content: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The known conditions of the task, by the names that saved results use."""
    config = table_of(content.get("config"))
    shots = table_of(content.get("n-shot")).get(task, config.get("num_fewshot"))
    found = {
        "version": table_of(content.get("versions")).get(task),
        "shots": shots,
        "limit": config.get("limit"),
        "dtype": config.get("model_dtype"),
    }
    if "chat_template" in content:
        found["template"] = "chat" if content["chat_template"] else "plain"
    return {key: value for key, value in found.items() if value is not None}


def _arguments(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of the model, by name."""
    given = table_of(content.get("config")).get("model_args") or ""
    return given if isinstance(given, Mapping) else dict(re.findall(r"(?:^|,)\s*(\w+)=([^,]*)", str(given)))


def _about(content: Mapping[str, Any]) -> dict[str, Any]:
    """The place in a training that the model's path tells, or its revision (``step143000``)."""
    given = _arguments(content)
    name, revision = str(given.get("peft") or given.get("pretrained") or ""), str(given.get("revision") or "")
    return told_by_path(f"{name}/{revision}") or told_by_path(name)


def _model(content: Mapping[str, Any]) -> str | None:
    """The model that was scored: its name or path, its revision, and its adapter."""
    given = _arguments(content)
    name = (
        content.get("model_name") or given.get("pretrained") or table_of(content.get("config")).get("model")
    )
    if not name:
        return None
    revision = given.get("revision")
    adapter = given.get("peft")
    return f"{name}{f'@{revision}' if revision else ''}{f' + {adapter}' if adapter else ''}"
