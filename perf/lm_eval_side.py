"""lm-evaluation-harness on our rows: a local task with the rendered prompts, the command, what it answered.

The few-shot examples are part of the rendered context and ``num_fewshot`` is 0: the tokens are those of its
own rendering. The task file is JSON, which is YAML too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.measure import ROOT, Cost, run
from perf.prompts import Item

TASK = "touchstone_rows"

OFFLINE = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}


@dataclass(frozen=True, slots=True)
class Answered:
    """One item: the log-probability of each request, and its metrics."""

    logprobs: tuple[float, ...]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its cost, the time spent answering, and the answers by item."""

    cost: Cost
    scoring: float
    items: dict[str, Answered]


def write_task(folder: Path, items: Sequence[Item]) -> None:
    """Write the rows and the task file."""
    rows = folder / "rows.jsonl"
    kind, described = _described(items)
    with rows.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(_row(item, kind), ensure_ascii=False) + "\n" for item in items)
    task = {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(rows)}},
        "test_split": "test",
        "num_fewshot": 0,
        "metadata": {"version": 1.0},
        **described,
    }
    (folder / f"{TASK}.yaml").write_text(json.dumps(task, indent=2) + "\n", encoding="utf-8")


def score(
    folder: Path, number: int, *, python: Path, model: Path, dtype: str, batch: str, device: str, threads: int
) -> Outcome:
    """Run lm-eval once on the task in ``folder``, with a model of its own."""
    words = ["--model", "hf", "--model_args", f"pretrained={model},dtype={dtype}"]
    return ask(folder, number, [*words, "--batch_size", batch, "--device", device], python, threads)


def ask(folder: Path, number: int, model: Sequence[str], python: Path, threads: int = 1) -> Outcome:
    """Run lm-eval once on the task in ``folder``; ``model`` are its options of the model."""
    output, notes = folder / f"lm-eval-{number}", folder / f"lm-eval-{number}.json"
    words = [*model, "--tasks", TASK, "--include_path", str(folder), "--num_fewshot", "0"]
    words += ["--output_path", str(output), "--log_samples"]
    script = ROOT / "perf" / "lm_eval_timed.py"
    environment = {**OFFLINE, "HF_DATASETS_CACHE": str(folder / "datasets"), "PYTHONPATH": ""}
    cost = run(
        [python, script, notes, str(threads), "run", *words],
        cwd=folder,
        log=folder / f"lm-eval-{number}.log",
        env=environment,
    )
    return Outcome(cost, json.loads(notes.read_text())["seconds"], _samples(output))


def _described(items: Sequence[Item]) -> tuple[str, dict[str, Any]]:
    """Return which of lm-eval's three forms the items have, and that part of the task file."""
    if items[0].gold is None:
        shape = {"output_type": "loglikelihood", "doc_to_text": "context", "doc_to_target": "continuation"}
        metrics = [_metric("acc"), {**_metric("perplexity", False), "aggregation": "perplexity"}]
        return "word", {**shape, "metric_list": metrics}
    shape = {"output_type": "multiple_choice", "doc_to_choice": "choices", "target_delimiter": " "}
    if len({request.context for request in items[0].requests}) > 1:
        shape |= {"doc_to_text": "gold", "doc_to_target": "continuation"}
        return "contexts", {**shape, "metric_list": [_metric("acc")]}
    shape |= {"doc_to_text": "context", "doc_to_target": "gold"}
    return "choices", {**shape, "metric_list": [_metric("acc"), _metric("acc_norm")]}


def _metric(name: str, higher_is_better: bool = True) -> dict[str, Any]:
    return {"metric": name, "aggregation": "mean", "higher_is_better": higher_is_better}


def _row(item: Item, kind: str) -> dict[str, Any]:
    """Return the item in the fields that the task file names; the delimiter is the task's."""
    first = item.requests[0]
    if kind == "word":
        return {"item": item.id, "context": first.context, "continuation": first.continuation}
    if kind == "contexts":
        contexts = [request.context for request in item.requests]
        continuation = first.continuation.removeprefix(" ")
        return {"item": item.id, "choices": contexts, "continuation": continuation, "gold": item.gold}
    choices = [request.continuation.removeprefix(" ") for request in item.requests]
    return {"item": item.id, "context": first.context, "choices": choices, "gold": item.gold}


def _samples(output: Path) -> dict[str, Answered]:
    """Return the answers by item, from the file that ``--log_samples`` wrote."""
    (path,) = output.rglob(f"samples_{TASK}_*.jsonl")
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        logprobs = tuple(float(response[0][0]) for response in sample["resps"])
        metrics = {name: float(sample[name]) for name in ("acc", "acc_norm") if name in sample}
        found[sample["doc"]["item"]] = Answered(logprobs, metrics)
    return found
