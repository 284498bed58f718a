"""Runs of benchmarks of programs by hand: the generator is driven as a run drives it, with answers made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pytest_touchstone.core.benchmark import Benchmark, declaration_of, generator_function
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.files import load_module
from pytest_touchstone.core.grade import NO_ANSWER, scores_of
from pytest_touchstone.core.requests import (
    Generate,
    GenerateAnswer,
    Generated,
    Request,
    RunProgram,
    RunProgramAnswer,
    to_plain,
)
from pytest_touchstone.plugin.collection import (
    OWN_ARGUMENTS,
    CollectedExample,
    LoadedBenchmark,
    load_benchmark,
)
from pytest_touchstone.results.journal import shorten_request
from pytest_touchstone.results.records import Record
from tests.support.places import ROOT

GREEDY = Sampling(seed=1234)
FILES = (
    *("test_humaneval", "test_mbpp", "test_mbpp_sanitized", "test_mbpp_docstring"),
    *("test_codecontests", "test_apps_stdin", "test_livecodebench"),
)


def functions() -> dict[str, tuple[str, Callable[..., Any]]]:
    """The benchmarks of programs by name: the file's name and the function."""
    found: dict[str, tuple[str, Callable[..., Any]]] = {}
    for file in FILES:
        for function in vars(load_module(ROOT / "evals" / f"{file}.py", f"code_runs_{file}")).values():
            if (spec := declaration_of(function)) is not None:
                found[spec.name] = file, function
    return found


def spec_of(name: str) -> Benchmark:
    """The declaration of a benchmark of programs."""
    spec = declaration_of(functions()[name][1])
    assert spec is not None
    return spec


class Asked(NamedTuple):
    """One row asked and judged: what was asked and answered, and the scores."""

    generate: Generate
    programs: list[RunProgram]
    exchanges: list[tuple[Request, Any]]
    scores: dict[str, float]


class Bench:
    """One benchmark with its shipped rows, or those of ``data``."""

    def __init__(
        self,
        name: str,
        sampling: Sampling = GREEDY,
        data: str | None = None,
    ) -> None:
        self.file, self.function = functions()[name]
        spec = declaration_of(self.function)
        assert spec is not None
        self.spec: Benchmark = spec
        self.loaded: LoadedBenchmark = load_benchmark(self.spec, data, None, sampling)

    def ask(
        self,
        place: int,
        texts: Sequence[str],
        judge: Callable[[RunProgram], RunProgramAnswer],
        *,
        chat: bool = False,
    ) -> Asked:
        """Row ``place``, answered with these texts, through a chat template or not."""
        example = self.loaded.dataset.examples[place]
        given = CollectedExample(example, self.loaded)
        function = generator_function(self.function)
        code = function.__code__
        generator = function(
            **{name: OWN_ARGUMENTS[name](given) for name in code.co_varnames[: code.co_argcount]}
        )
        asked = next(generator)
        answer = GenerateAnswer(tuple(Generated(text, "stop", 1) for text in texts), 1, chat=chat)
        programs = generator.send(answer)
        answers = [judge(request) for request in programs]
        try:
            generator.send(answers)
        except StopIteration as end:
            pairs = [(asked, answer), *zip(programs, answers, strict=True)]
            scores: Any = scores_of(end.value)
            return Asked(asked, programs, pairs, scores)
        raise AssertionError("it asks a third time")

    def record(self, place: int, asked: Asked, checkpoint: str = "fake-causal") -> Record:
        """The journal's record of it."""
        example = self.loaded.dataset.examples[place]
        scores = {name: float(score) for name, score in asked.scores.items() if name != NO_ANSWER}
        return Record(
            item=f"evals/{self.file}.py::{self.function.__name__}[{checkpoint}-{example.id}]",
            benchmark=self.spec.name,
            example=example.id,
            checkpoint=checkpoint,
            status="scored",
            scores=scores,
            row=example.sha256,
            exchanges=[
                {
                    "kind": type(request).__name__,
                    "request": shorten_request(to_plain(request)),
                    "answer": to_plain(answer),
                }
                for request, answer in asked.exchanges
            ],
        )


def by_word(request: RunProgram) -> RunProgramAnswer:
    """A judge: a program with "right" in it passes."""
    if "right" in request.program:
        return RunProgramAnswer("passed", seconds=0.01)
    if "slow" in request.program:
        return RunProgramAnswer("timeout", "more than 3 s", 3.0)
    return RunProgramAnswer("wrong", "assert f() == 1", 0.01)
