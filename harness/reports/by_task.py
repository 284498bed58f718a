"""Results by task, as comparison scripts of fine-tuning studies read them, one file a checkpoint.

    {"model": NAME, "results": {TASK: {METRIC: value, METRIC_stderr: value, "samples": n}}}

A task is a benchmark; the subjects of MMLU are tasks named ``mmlu_SUBJECT``, the groups of any other
benchmark ``BENCHMARK_GROUP``. A value that is undefined is null. ``of`` is how many items the task has with this
data, ``mark`` says when the values are over fewer, or over a sample; ``template`` is "chat" where texts were asked for
through a chat template, else "plain". ``not_valid``, where it is there, says why the values of a task must not be
believed.
"""

from __future__ import annotations

from typing import Any, Final

from harness.results import Result, Summary

SCHEMA: Final = 1


def by_task(summary: Summary, checkpoint: str) -> dict[str, Any]:
    """The results of one checkpoint in this form."""
    own = [result for result in summary.results if result.checkpoint == checkpoint]
    return {
        "schema": SCHEMA,
        "model": checkpoint,
        "run_id": summary.run_id,
        "results": {task_name(result): _numbers(result) for result in own},
    }


def task_name(result: Result) -> str:
    """``mmlu_SUBJECT`` for a subject of MMLU, else the benchmark with its group."""
    if result.group is None:
        return result.benchmark
    stem = "mmlu" if result.benchmark.startswith("mmlu") else result.benchmark
    return f"{stem}_{result.group}"


def _numbers(result: Result) -> dict[str, float | int | str | None]:
    numbers: dict[str, float | int | str | None] = {}
    for name, metric in result.metrics.items():
        numbers[name] = metric.value
        numbers[f"{name}_stderr"] = metric.stderr
    invalid = {"not_valid": result.invalid} if result.invalid else {}
    unsandboxed = {"unsandboxed": result.unsandboxed} if result.unsandboxed else {}
    weak = {"weak_tests": len(result.weak_tests)} if result.weak_tests else {}
    known = {"of": result.of or None, "mark": result.mark or None, "template": result.template}
    told = {name: value for name, value in known.items() if value is not None}
    return {**numbers, "samples": result.scored, **told, **invalid, **unsandboxed, **weak}
