"""A run's results in the form of lm-evaluation-harness from 0.4 on, which ``compare.formats.lm_eval`` reads.

    MODEL/results_DATE.json
    MODEL/samples_TASK_DATE.jsonl

Names are those of lm-evaluation-harness: ``exact_match,strict-match`` for ``exact_match_strict``, ``lambada_openai``
for ``lambada``, a task per group (``mmlu_SUBJECT``). Programs are no requests there: of such a benchmark the samples
have the texts, and their scores. What only that harness itself could say (its version, its commit, its hash of a
model) is left out; ``exported_by`` says who wrote the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_touchstone.compare.formats.export import (
    READ_BY,
    ExportedCheckpoint,
    ExportedSample,
    Files,
    began,
    filtered,
    row_of,
    sanitized,
    text_hash,
)
from pytest_touchstone.compare.formats.lm_eval import OURS
from pytest_touchstone.compare.formats.task_json import task_name
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.files import file_name
from pytest_touchstone.results.summary import Result, base_name, replace_non_finite

_OUTPUTS: Final = {"Loglikelihood": "loglikelihood", "RollingLoglikelihood": "loglikelihood_rolling"}


@dataclass(slots=True)
class ExportedTask:
    """A benchmark, or a group of one, under its name there."""

    name: str
    result: Result
    aggregate: Mapping[str, Mapping[str, Any]]
    samples: list[ExportedSample] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def numbered(self) -> Iterator[tuple[int, ExportedSample]]:
        """Yield the samples with their numbers: those in their ids if these differ, else their positions."""
        ends = [re.search(r"\d+$", one.record.example) for one in self.samples]
        numbers = [int(one[0]) for one in ends if one is not None]
        own = len(set(numbers)) == len(ends)
        return zip(numbers if own else range(len(ends)), self.samples, strict=True)

    def score(self, sample: ExportedSample, metric: str) -> float | None:
        """Return the score of an item that a metric is made of: a perplexity's is the log-probability."""
        return sample.record.scores.get(aggregation_of(self.aggregate, metric).score)


def lm_eval_files(export: ExportedCheckpoint) -> Files:
    """Return the files of a checkpoint: its results, and the samples of each task."""
    tasks = _tasks(export)
    stamp = began(export.summary).isoformat().replace(":", "-")
    folder = sanitized(export.checkpoint)
    files: Files = {f"{folder}/results_{stamp}.json": replace_non_finite(_results(export, tasks))}
    for task in tasks:
        if task.samples:
            name = task.name if file_name(task.name) == task.name else re.sub(r"\W", "_", task.name)
            files[f"{folder}/samples_{name}_{stamp}.jsonl"] = "".join(_lines(task))
    return files


def _tasks(export: ExportedCheckpoint) -> list[ExportedTask]:
    """Return the tasks of a checkpoint with their samples, a benchmark before its groups."""
    theirs = {ours: name for name, ours in OURS.items()}
    declared = {declaration.name: declaration.aggregate for declaration in export.summary.declarations}
    tasks = {}
    for result in export.results:
        name = task_name(result)
        aggregate = declared.get(base_name(result.benchmark), {})
        tasks[result.benchmark, result.group] = ExportedTask(theirs.get(name, name), result, aggregate)
    for (benchmark, group), task in tasks.items():
        if group is not None and (benchmark, None) in tasks:
            tasks[benchmark, None].parts.append(task.name)
    for sample in export.samples:
        key = sample.record.benchmark, sample.record.group
        tasks.get(key, tasks[key[0], None]).samples.append(sample)
    order = {name: number for number, (name, group) in enumerate(tasks) if group is None}
    return [tasks[key] for key in sorted(tasks, key=lambda key: (order.get(key[0], 0), key[1] is not None))]


def _results(export: ExportedCheckpoint, tasks: Sequence[ExportedTask]) -> dict[str, Any]:
    summary, checkpoint = export.summary, export.checkpoint
    info = row_of(summary, checkpoint)
    settings = summary.manifest.get("settings", {})
    values = {task.name: _values(task) for task in tasks}
    groups = {task.name: values[task.name] for task in tasks if task.parts}
    chat = any(task.result.template in ("chat", "mixed") for task in tasks)
    return {
        "results": values,
        **({"groups": groups} if groups else {}),
        "group_subtasks": {task.name: task.parts for task in tasks if task.result.group is None},
        "configs": {task.name: _config(task) for task in tasks if not task.parts},
        "versions": {task.name: task.result.version for task in tasks},
        "n-shot": {task.name: task.result.shots for task in tasks},
        "higher_is_better": {task.name: _directions(task) for task in tasks},
        "n-samples": {
            task.name: {"original": task.result.of or task.result.scored, "effective": task.result.scored}
            for task in tasks
            if not task.parts
        },
        "config": {
            "model": info.get("engine", "touchstone"),
            "model_args": f"pretrained={info.get('path', checkpoint)}",
            "model_num_parameters": info.get("parameters"),
            "batch_size": settings.get("batch") or "auto",
            "device": settings.get("device"),
            "limit": settings.get("limit"),
            "bootstrap_iters": 0,
            "gen_kwargs": None,
            "random_seed": settings.get("seed"),
            "fewshot_seed": settings.get("seed"),
        },
        "date": began(summary).timestamp(),
        "exported_by": f"pytest-touchstone, run {summary.run_id}",
        "task_hashes": {
            task.name: text_hash("".join(map(_hashes, task.samples))) for task in tasks if task.samples
        },
        "model_source": info.get("engine", "touchstone"),
        "model_name": checkpoint,
        "model_name_sanitized": sanitized(checkpoint),
        "system_instruction": None,
        "fewshot_as_multiturn": chat,
        "chat_template": "the checkpoint's own" if chat else None,
        "max_length": info.get("seq_len"),
        "total_evaluation_time_seconds": str(sum(task.result.seconds for task in tasks if not task.parts)),
    }


def _values(task: ExportedTask) -> dict[str, Any]:
    """Return the metrics of a task with their errors; one that is undefined is left out."""
    values: dict[str, Any] = {"alias": task.result.group or task.name, "sample_len": task.result.scored}
    for name, metric in task.result.metrics.items():
        if metric.value is not None:
            base, kind = filtered(name)
            values[f"{base},{kind}"] = metric.value
            values[f"{base}_stderr,{kind}"] = "N/A" if metric.stderr is None else metric.stderr
    return values


def _config(task: ExportedTask) -> dict[str, Any]:
    result, kinds = task.result, task.samples[0].kinds if task.samples else []
    several = len(kinds) > 1 and set(kinds) == {"Loglikelihood"}
    return {
        "task": task.name,
        "dataset_path": result.dataset.name,
        "num_fewshot": result.shots,
        "output_type": "multiple_choice"
        if several
        else _OUTPUTS.get(kinds[0] if kinds else "", "generate_until"),
        "metric_list": [
            {"metric": base, "aggregation": by}
            for base, by in {
                filtered(one)[0]: aggregation_of(task.aggregate, one).by for one in result.metrics
            }.items()
        ],
        "metadata": {"version": result.version, "dataset_sha256": result.dataset.sha256},
    }


def _directions(task: ExportedTask) -> dict[str, bool]:
    return {
        filtered(name)[0]: aggregation_of(task.aggregate, name).higher_is_better
        for name in task.result.metrics
    }


def _lines(task: ExportedTask) -> Iterator[str]:
    """Yield a line per sample and filter, in the order of the filters."""
    filters: dict[str, list[str]] = {}
    for name in task.result.metrics:
        filters.setdefault(filtered(name)[1], []).append(name)
    for kind, names in filters.items():
        for number, sample in task.numbered():
            line = {"doc_id": number, **_line(task, sample, kind, names)}
            yield json.dumps(line, ensure_ascii=False, default=str) + "\n"


def _line(task: ExportedTask, sample: ExportedSample, kind: str, names: Sequence[str]) -> dict[str, Any]:
    scores = {filtered(name)[0]: task.score(sample, name) for name in names}
    scores = {name: score for name, score in scores.items() if score is not None}
    arguments = [_arguments(request) for request in sample.requests]
    return {
        "doc": dict(sample.row),
        "target": sample.target,
        "arguments": {
            f"gen_args_{number}": {f"arg_{place}": one for place, one in enumerate(given)}
            for number, given in enumerate(arguments)
        },
        "resps": sample.responses,
        "filtered_resps": _filtered_responses(sample, kind),
        "filter": kind,
        "metrics": [*scores],
        "doc_hash": sample.record.row,
        "prompt_hash": text_hash(sample.prompt),
        "target_hash": text_hash(sample.target),
        "example": sample.record.example,
        **scores,
    }


def _arguments(request: Mapping[str, Any]) -> list[Any]:
    if "continuation" in request:
        return [request["context"], request["continuation"]]
    if "prompt" in request:
        told = {"until": request["stop"], "max_gen_toks": request["max_new_tokens"]}
        told |= {"do_sample": request["temperature"] > 0, "temperature": request["temperature"]}
        return [request["prompt"], told | {"top_p": request["top_p"]}]
    return [request["text"]]


def _filtered_responses(sample: ExportedSample, kind: str) -> list[Any]:
    read = sample.view.extracted.get(READ_BY.get(kind, ""))
    if read is not None or kind in READ_BY:
        return ["[invalid]" if read is None else read]
    return [responses[0] if responses else "" for responses in sample.responses]


def _hashes(sample: ExportedSample) -> str:
    return sample.record.row + text_hash(sample.prompt) + text_hash(sample.target)
