"""Gold scored against gold on every row of a data folder; programs are run in the sandbox.

    python -m tests.conformance.gold --data DIR [--only NAME ...]

Prints for each benchmark the rows, how many score 1.0, and those that do not, with their scores. A row is listed
that no answer can get right under the benchmark's rule, or whose gold the rule does not find.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from harness.core.benchmark import declared, generator_function
from harness.core.dataset import Example
from harness.core.errors import MissingDataError
from harness.core.files import load_module
from harness.core.requests import GenerateAnswer, Request, RunProgram
from harness.engines.sandbox import open_sandbox
from harness.engines.sandbox.sandbox import Sandbox
from harness.plugin.collection import load_benchmark
from tests.conformance.kit import SAMPLING, Kit, metric_of, right_answers
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
                spec = declared(function)
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
    wrong, unanswerable = [], 0
    for example in kit.examples:
        try:
            scores = kit.score(example, loaded, partial(answers, kit, example, sandbox))
        except KeyError:  # the row has no right answer of the form that is asked for
            unanswerable += 1
            continue
        if scores[metric_of(kit, example)] != 1.0:
            wrong.append((example, {name: value for name, value in scores.items() if value != 1.0}))
    rows = len(kit.examples)
    held = f", {unanswerable} without a right answer in the row" if unanswerable else ""
    print(
        f"{kit.spec.name} ({loaded.dataset.info.name}): {rows - len(wrong) - unanswerable} of {rows} right{held}"
    )
    for example, scores in wrong:
        print(f"    {example.id}: {scores}", flush=True)


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
