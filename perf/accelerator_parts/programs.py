"""Programs: HumanEval with 20 samples from the first prompt to the last verdict, at 6.7 billion parameters.

Random weights write no programs, so the sandbox is given HumanEval's canonical solutions, 20 copies of each with a
comment that makes it a program of its own. The whole time is that of the texts, measured or in proportion, and of the
programs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from perf.accelerator_parts.attempt import attempt
from perf.accelerator_parts.budget import Budget, as_many
from perf.accelerator_parts.findings import Row
from perf.accelerator_parts.generate import SAMPLING
from perf.accelerator_parts.generate_peers import SHORT
from perf.accelerator_parts.models import Setup, opened
from perf.accelerator_parts.shapes import Shape
from perf.accelerator_parts.timing import peak_mebibytes, timed
from perf.programs import HUMANEVAL, Files, ours, write
from perf.prompts import asked_first
from pytest_touchstone.core.requests import Answer, Generate, GenerateAnswer, Refusal

PART = "programs"

TASKS = 164
"""The tasks of HumanEval."""

MEMORY = "6GiB"
"""A share for what is beside the weights, with which all stays below 20 GiB."""


def measure(setup: Setup, budget: Budget) -> Iterator[Row]:
    """Yield the rate of the sandbox, then the whole time of each multi-token-prediction model."""
    row, rate = _sandbox(setup, budget)
    yield row
    runs = [(shape, memory) for shape in setup.models if shape.kind == "mtp" for memory in (None, MEMORY)]
    for number, (shape, memory) in enumerate(runs):
        share = budget.split(len(runs) - number)
        case = f"HumanEval x {SAMPLING.samples}, whole" + (f", --eval-set memory={memory}" if memory else "")
        more = {**setup.settings, **({"memory": memory} if memory else {})}
        work = partial(_whole, shape, replace(setup, settings=more), share, case, rate)
        yield from attempt(work, part=PART, model=shape.name, device=setup.device, case=case)


def _sandbox(setup: Setup, budget: Budget) -> tuple[Row, float | None]:
    """Grade programs as ``touchstone score`` does, in a process of its own; few of them first."""
    workers = os.cpu_count() or 1
    case = f"{SAMPLING.samples} programs per task"
    with tempfile.TemporaryDirectory(prefix="accelerator-") as name:
        folder = Path(name)
        try:
            few = _graded(write(_made(folder / "few"), setup.data, 8, 1), workers)
        except SystemExit as error:  # the process's own message: no bubblewrap, no rights for it
            last = next((one for one in reversed(str(error).splitlines()[:-2]) if one.strip()), str(error))
            return Row(PART, "sandbox", case, note=f"not there: {last.strip()[:200]}"), None
        limit = 4 if setup.small else TASKS
        limit = as_many(limit, SAMPLING.samples * few["seconds each"], 0.3 * budget.left)
        files = write(_made(folder / "all"), setup.data, limit, SAMPLING.samples)
        found = _graded(files, workers)
    rate = 1 / found.pop("seconds each")
    figures = {"programs": files.samples, **found, "programs/s": rate, "workers": workers}
    return Row(PART, "sandbox", case, figures=figures), rate


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _graded(files: Files, workers: int) -> dict[str, float]:
    found = ours(files, files.distinct, workers, 0)
    return {
        "seconds each": found.cost.wall / files.samples,
        "passed": found.passed,
        "process, s": found.cost.wall,
    }


class _OverError(Exception):
    """The time for texts is over."""


def _whole(shape: Shape, setup: Setup, budget: Budget, case: str, rate: float | None) -> list[Row]:
    """Generate the samples of as many tasks as fit into the time, and say how long all take."""
    if not budget.enough(5.0):
        return [Row(PART, shape.name, case, note="left out: no time")]
    requests = list(asked_first(HUMANEVAL, data=setup.data, limit=None, sampling=SAMPLING).values())
    tokens = 16 if setup.small else requests[0].max_new_tokens
    requests = [replace(one, max_new_tokens=tokens) for one in requests]
    with opened(shape, setup) as engine:
        engine.answer(
            [replace(one, prompt=f"# A\n{one.prompt}", max_new_tokens=SHORT) for one in requests[:2]]
        )
        pilot = [replace(one, prompt=f"# B\n{one.prompt}", max_new_tokens=3 * SHORT) for one in requests[:12]]
        seconds, _ = timed(setup.device, lambda: engine.answer(pilot))
        each = seconds / len(pilot) * tokens / (3 * SHORT)
        most = as_many(len(requests), each, 0.85 * budget.left)
        some = requests[: 8 if setup.small else max(len(pilot), most)]  # enough to fill all rows
        seconds, done = timed(setup.device, lambda: _texts(engine, some, budget))
        memory = peak_mebibytes(setup.device)
    tasks, made = done
    whole = seconds * TASKS / max(1, tasks)
    figures: dict[str, Any] = {
        "tasks": tasks,
        "new tokens": tokens,
        "tokens/s": made / seconds,
        "texts of all tasks, s": whole,
        "peak MiB": memory,
    }
    if rate is not None:
        figures["whole, min"] = (whole + TASKS * SAMPLING.samples / rate) / 60
    note = "" if tasks == TASKS else f"in proportion, from {tasks} of {TASKS} tasks"
    return [Row(PART, shape.name, case, figures=figures, note=note)]


def _texts(engine: Any, requests: Sequence[Generate], budget: Budget) -> tuple[int, int]:
    """Return the tasks whose samples were all there before the time was over, and their tokens."""
    tasks = tokens = 0

    def done(_number: int, answer: Answer | Refusal) -> None:
        nonlocal tasks, tokens
        assert isinstance(answer, GenerateAnswer), answer
        tasks, tokens = tasks + 1, tokens + sum(one.tokens for one in answer.samples)
        if not budget.enough(1.0):
            raise _OverError

    with suppress(_OverError):
        engine.answer(requests, done)
    return tasks, tokens
