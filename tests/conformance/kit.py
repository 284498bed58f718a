"""Every benchmark of ``evals/`` with its shipped rows, what it asks about them, and answers that are right.

    python -m tests.conformance.kit     writes ``pins.json`` anew

``pins.json`` has for each benchmark its version and two hashes: of everything it asks about its shipped rows, as
run by default and without few-shot examples, and of how it scores answers made of hashes (and which programs it
would have run on what tests). Whoever changes what a
benchmark asks or how it scores changes a hash, and has to raise its version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from pytest_touchstone import (
    Candidate,
    FillMask,
    FillMaskAnswer,
    Generate,
    GenerateAnswer,
    Generated,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    RollingAnswer,
    RollingLoglikelihood,
)
from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.info import SERVES
from pytest_touchstone.core.benchmark import Benchmark, declaration_of, generator_function
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.errors import MissingDataError
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.files import load_module
from pytest_touchstone.core.grade import scores_of
from pytest_touchstone.core.requests import Answer, Judge, Request, RunProgram, RunProgramAnswer, to_plain
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.metrics.code.rows import unix_lines
from pytest_touchstone.plugin.collection import (
    OWN_ARGUMENTS,
    CollectedExample,
    LoadedBenchmark,
    load_benchmark,
)
from tests.support.places import ROOT

PINS = Path(__file__).with_name("pins.json")
SAMPLING = Sampling(seed=1234)
MOST_ROUNDS = 2
CAUSAL = CheckpointInfo("fake", "fake", Path(), "causal", "fake", "fake", "Fake", 2048, SERVES["causal"])
MASKED = CheckpointInfo("fake", "fake", Path(), "masked", "fake", "fake", "Fake", 512, SERVES["masked"])


class Kit(NamedTuple):
    """A benchmark, its function and its shipped rows."""

    spec: Benchmark
    function: Callable[..., Any]
    examples: tuple[Example, ...]

    @property
    def info(self) -> CheckpointInfo:
        """A checkpoint that can answer it."""
        return MASKED if {FillMask, PseudoLoglikelihood} & set(self.spec.asks) else CAUSAL

    def loaded(self, shots: int) -> LoadedBenchmark:
        """The benchmark with so many few-shot examples."""
        return load_benchmark(self.spec, None, shots, SAMPLING)

    def begin(self, example: Example, loaded: LoadedBenchmark) -> tuple[Any, list[Request], bool]:
        """The started generator, what it asks, and whether that is a list."""
        given, code = CollectedExample(example, loaded), self.function.__code__
        names = code.co_varnames[: code.co_argcount]
        own = {name: OWN_ARGUMENTS[name](given) if name in OWN_ARGUMENTS else self.info for name in names}
        generator = self.function(**own)
        asked = next(generator)
        return generator, list(asked) if isinstance(asked, list) else [asked], isinstance(asked, list)

    def score(
        self, example: Example, loaded: LoadedBenchmark, answer: Callable[[Sequence[Request]], Any]
    ) -> Any:
        """The scores of one row for the answers that ``answer`` gives."""
        generator, asked, several = self.begin(example, loaded)
        for _ in range(MOST_ROUNDS):
            found = answer(asked)
            try:
                yielded = generator.send(found if several else found[0])
            except StopIteration as end:
                return scores_of(end.value)
            several = isinstance(yielded, list)
            asked = list(yielded) if several else [yielded]
        raise AssertionError(f"{self.spec.name} asks more than {MOST_ROUNDS} times")


@cache
def kits(data: str | None = None) -> tuple[Kit, ...]:
    """Every benchmark whose rows are shipped, or in the folder ``data``."""
    return tuple(_kits(data))


def _kits(data: str | None) -> Iterator[Kit]:
    for path in sorted((ROOT / "evals").glob("test_*.py")):
        for function in vars(load_module(path, f"conformance_{path.stem}")).values():
            found = declaration_of(function)
            if found is None:
                continue
            try:
                loaded = load_benchmark(found, data, 0, SAMPLING)
            except MissingDataError:
                continue
            yield Kit(found, generator_function(function), loaded.dataset.examples)


# Answers that are right


def right_answers(kit: Kit, example: Example, asked: Sequence[Request]) -> list[Answer]:
    """What a perfect checkpoint would answer, and of its programs a judge without a sandbox."""
    programs = [request for request in asked if isinstance(request, RunProgram)]
    if programs:
        return [_judged_by_its_text(request) for request in programs]
    if len(asked) > 1:
        return _chosen(asked, CHOICE[kit.spec.name](example.row))
    return [_right(kit, example.row, asked[0])]


def wrong_answers(kit: Kit, example: Example, turn: int, asked: Sequence[Request]) -> list[Answer]:
    """What a checkpoint would answer that chooses another answer, the one ``turn`` places after the right one, or
    says what is right for another row; in place of a text of its own where no other answer of these rows is another.
    """
    programs = [request for request in asked if isinstance(request, RunProgram)]
    if programs:
        return [_judged_by_its_text(request) for request in programs]
    if len(asked) > 1:
        return _chosen(asked, (CHOICE[kit.spec.name](example.row) + turn) % len(asked))
    if isinstance(asked[0], Generate):
        text = text_of_another(kit, example)
        return [GenerateAnswer((Generated(text, "stop", len(text.split())),), 1)]
    if isinstance(asked[0], FillMask):
        return [FillMaskAnswer((Candidate("☃", "☃", -0.1),), True, -9.0)]
    return [LoglikelihoodAnswer(-9.0, False, 1)]


def text_of_another(kit: Kit, example: Example) -> str:
    """The right text of the next row that has another answer; of instructions, and of none, no text."""
    text: Callable[[dict[str, Any]], str] = TEXT.get(kit.spec.name, lambda _: "")
    right = RIGHT.get(kit.spec.name, lambda row: {text(row)})
    place, own = kit.examples.index(example), right(example.row)
    for other in (*kit.examples[place + 1 :], *kit.examples[:place]):
        if own.isdisjoint(right(other.row)):
            return text(other.row)
    return ""


def _chosen(asked: Sequence[Request], choice: int) -> list[Answer]:
    """The answers of a checkpoint that takes one choice."""
    if isinstance(asked[0], PseudoLoglikelihood):
        return [RollingAnswer(-0.001 if n == choice else -1e6, 2) for n in range(len(asked))]
    return [LoglikelihoodAnswer(-0.001 if n == choice else -1e6, n == choice, 2) for n in range(len(asked))]


def _right(kit: Kit, row: dict[str, Any], request: Request) -> Answer:
    match request:
        case Loglikelihood():
            return LoglikelihoodAnswer(-0.001, True, 1)
        case FillMask(target=target):
            assert target is not None
            return FillMaskAnswer((Candidate(target, target, -0.1),), True, -0.1)
        case Generate():
            text = TEXT[kit.spec.name](row)
            return GenerateAnswer((Generated(text, "stop", len(text.split())),), 1)
        case RollingLoglikelihood() | PseudoLoglikelihood() | RunProgram() | Judge():
            raise AssertionError("no benchmark asks this here")


def _judged_by_its_text(request: RunProgram) -> RunProgramAnswer:
    """Right is the reference solution, character by character; that it passes is shown where there is a sandbox."""
    assert request.reference is not None
    same = unix_lines(request.program).rstrip() == request.reference.rstrip()
    return RunProgramAnswer("passed" if same else "wrong")


def _labelled(row: dict[str, Any]) -> int:
    return [choice["label"] for choice in row["question"]["choices"]].index(row["answerKey"])


def _boxed(row: dict[str, Any]) -> str:
    from pytest_touchstone.metrics.math import boxed_answer

    return boxed_answer(row["solution"]) or ""


def _fewest(row: dict[str, Any]) -> list[str]:
    """The gold answer with the fewest spans."""
    return min(row["answers"], key=len)


CHOICE: dict[str, Callable[[dict[str, Any]], int]] = {
    "arc_easy": _labelled,
    "arc_challenge": _labelled,
    "hellaswag": lambda row: int(row["label"]),
    "winogrande": lambda row: int(row["answer"]) - 1,
    "mmlu": lambda row: int(row["answer"]),
    "mmlu_stem": lambda row: int(row["answer"]),
    "mmlu_continuation": lambda row: int(row["answer"]),
    "mmlu_pro_letters": lambda row: ascii_uppercase.index(row["answer"]),
    "piqa": lambda row: int(row["label"]),
    "boolq": lambda row: int(row["label"]),
    "openbookqa": lambda row: row["choices"]["label"].index(row["answerKey"]),
    "commonsense_qa": lambda row: ascii_uppercase.index(row["answerKey"]),
    **{
        f"kobest_{task}": lambda row: int(row["label"])
        for task in ("boolq", "copa", "hellaswag", "sentineg", "wic")
    },
    **{f"kobest_{task}_masked": lambda row: int(row["label"]) for task in ("copa", "hellaswag", "sentineg")},
}
TEXT: dict[str, Callable[[dict[str, Any]], str]] = {
    "gsm8k": lambda row: str(row["answer"]),
    "math": lambda row: (
        f"{row['solution']}\nFinal Answer: The final answer is ${_boxed(row)}$. I hope it is correct."
    ),
    "drop": lambda row: "\n".join(_fewest(row)),
    "bbh_zeroshot": lambda row: str(row["target"]),
    "bbh": lambda row: f"So the answer is {row['target']}.",
    "mmlu_pro": lambda row: f"The answer is ({row['answer']}).",
    "humaneval": lambda row: str(row["canonical_solution"]),
    "humaneval_plus": lambda row: str(row["canonical_solution"]),
    "mbpp_plus": lambda row: str(row["canonical_solution"]),
    "mbpp": lambda row: f"{row['code']}\n",
    "mbpp_sanitized": lambda row: f"{row['code']}\n",
    "mbpp_docstring": lambda row: f"```python\n{row['code']}\n```\n",
    "codecontests": lambda row: str(row["solution"]),
    "livecodebench": lambda row: str(row["solution"]),
}

RIGHT: dict[str, Callable[[dict[str, Any]], set[str]]] = {
    **{name: lambda row: {row["target"]} for name in ("bbh", "bbh_zeroshot")},
    "gsm8k": lambda row: {str(row["answer"]).rpartition("####")[2].strip()},
    "math": lambda row: {_boxed(row)},
    "drop": lambda row: {"\n".join(answer) for answer in row["answers"]},
    "mmlu_pro": lambda row: {row["answer"]},
}
"""The answers of which one makes a row right, where a right text has more than these."""

WITHOUT_GOLD = dict.fromkeys(
    ("ifbench", "ifeval"), "a prompt has no one right answer, and the data set none at all"
)


def metric_of(kit: Kit, example: Example) -> str:
    """The score in which gold is right: the primary one, but as one string an answer of DROP that has several
    spans never is, since one string pairs with one span."""
    return "f1_list" if kit.spec.name == "drop" and len(_fewest(example.row)) > 1 else kit.spec.primary


# Pins


def pin(kit: Kit) -> dict[str, Any]:
    """Version and hashes of a benchmark as it is."""
    prompts, scores = hashlib.sha256(), hashlib.sha256()
    engine = FakeEngine(kit.info)

    def answer(asked: Sequence[Request]) -> list[Any]:
        """Made of hashes; what programs were run is a part of the scores' hash."""
        if not isinstance(asked[0], RunProgram):
            return list(engine.answer(asked))
        texts = [json.dumps(to_plain(request)).encode() for request in asked]
        scores.update(b"".join(texts))
        return [
            RunProgramAnswer("passed" if hashlib.sha256(text).digest()[0] % 2 else "wrong") for text in texts
        ]

    for count in sorted({0, kit.spec.shots.count}):
        loaded = kit.loaded(count)
        for example in kit.examples:
            _, asked, _ = kit.begin(example, loaded)
            prompts.update(json.dumps([to_plain(request) for request in asked]).encode())
            if count == kit.spec.shots.count:
                found = kit.score(example, loaded, answer)
                scores.update(
                    json.dumps({name: round(float(value), 9) for name, value in found.items()}).encode()
                )
    return {"version": kit.spec.version, "prompts": prompts.hexdigest(), "scores": scores.hexdigest()}


def main() -> None:
    """Writes ``pins.json``."""
    pins = {kit.spec.name: pin(kit) for kit in kits()}
    PINS.write_text(json.dumps(pins, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
