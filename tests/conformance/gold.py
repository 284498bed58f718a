"""Gold scored against gold on every row of a data folder; programs are run in the sandbox.

    python -m tests.conformance.gold --data DIR [--only NAME ...]

Prints for each benchmark the rows, how many score 1.0, and those that do not, with their scores. A row is listed
that no answer can get right under the benchmark's rule, or whose gold the rule does not find. So is one that scores
1.0 with a wrong answer: each other choice, or what is right for another row.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pytest_touchstone.core.benchmark import declaration_of, generator_function
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.errors import MissingDataError
from pytest_touchstone.core.files import load_module
from pytest_touchstone.core.requests import GenerateAnswer, Request, RunProgram
from pytest_touchstone.engines.sandbox import open_sandbox
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from pytest_touchstone.plugin.collection import load_benchmark
from tests.conformance.kit import (
    SAMPLING,
    WITHOUT_GOLD,
    Kit,
    metric_of,
    right_answers,
    wrong_answers,
)
from tests.support.places import ROOT


def main() -> None:
    """Scores everything and prints what is not right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, metavar="DIR")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="benchmarks (default: all)")
    options = parser.parse_args()
    with open_sandbox() as sandbox:
        for path in sorted((ROOT / "evals").glob("test_*.py")):
            for function in vars(load_module(path, f"gold_{path.stem}")).values():
                spec = declaration_of(function)
                if spec is None or (options.only and spec.name not in options.only):
                    continue
                try:
                    loaded = load_benchmark(spec, options.data, 0, SAMPLING)
                except MissingDataError as error:
                    print(error)
                    continue
                kit = Kit(spec, generator_function(function), loaded.dataset.examples)
                report(kit, loaded, sandbox)


def report(kit: Kit, loaded: Any, sandbox: Sandbox) -> None:
    """One benchmark."""
    name, rows = kit.spec.name, len(kit.examples)
    missed = [] if name in WITHOUT_GOLD else list(missing(kit, loaded, sandbox))
    unanswerable = sum(scores is None for _, scores in missed)
    accepted = [example for example in kit.examples if takes_wrong(kit, example, loaded, sandbox)]
    held = f", {unanswerable} without a right answer in the row" if unanswerable else ""
    gold = WITHOUT_GOLD.get(name) or f"{rows - len(missed)} of {rows} right{held}"
    print(f"{name} ({loaded.dataset.info.name}): {gold}; with a wrong answer {len(accepted)} of {rows} right")
    for example, scores in missed:
        if scores is not None:
            print(f"    {example.id}: {scores}")
    for example in accepted:
        print(f"    {example.id}: a wrong answer is right")
    sys.stdout.flush()


def missing(kit: Kit, loaded: Any, sandbox: Sandbox) -> Iterator[tuple[Example, dict[str, float] | None]]:
    """The rows whose right answer does not score 1.0, with the other scores; None where the row has no right answer."""
    for example in kit.examples:
        try:
            scores = kit.score(example, loaded, partial(answers, kit, example, sandbox))
        except KeyError:  # the row has no right answer of the form that is asked for
            yield example, None
            continue
        if scores[metric_of(kit, example)] != 1.0:
            yield example, {name: value for name, value in scores.items() if value != 1.0}


def takes_wrong(kit: Kit, example: Example, loaded: Any, sandbox: Sandbox) -> bool:
    """Whether any wrong choice, or the right text of another row, scores 1.0."""

    def wrong(turn: int, asked: Sequence[Request]) -> list[Any]:
        programs = [request for request in asked if isinstance(request, RunProgram)]
        return (
            [sandbox.run(one) for one in programs] if programs else wrong_answers(kit, example, turn, asked)
        )

    choices = len(kit.begin(example, loaded)[1])
    return any(
        kit.score(example, loaded, partial(wrong, turn))[metric_of(kit, example)] == 1.0
        for turn in range(1, max(choices, 2))
    )


def answers(kit: Kit, example: Example, sandbox: Sandbox, asked: Sequence[Request]) -> list[Any]:
    """What a perfect checkpoint would answer, and what becomes of its programs."""
    programs = [request for request in asked if isinstance(request, RunProgram)]
    if programs:
        return [sandbox.run(request) for request in programs]
    found = list(right_answers(kit, example, asked))
    if any(isinstance(one, GenerateAnswer) and not one.samples[0].text.strip() for one in found):
        raise KeyError("a right answer")
    return found


if __name__ == "__main__":
    main()
