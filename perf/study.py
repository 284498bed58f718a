"""The time and memory of ``touchstone study`` over made-up runs: 200 checkpoints of 10 benchmarks.

    python -m perf study [--checkpoints 200] [--benchmarks 10] [--items 300] [--series 20] [--keep DIR]

Each of the runs is a training with its checkpoints in order and a journal of every item, with its texts; a checkpoint's
accuracy rises along the training. The same runs are measured without journals (totals only) too. Seconds of CPU are
given beside those of the clock, as they depend less on what else the machine does. All files are written (``-o``), with
pictures, as PNG too where matplotlib is installed; memory is that of all processes at one time, shared pages once.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from perf.measure import Cost, mebibytes, run, table
from pytest_touchstone.core.dataset import DatasetInfo
from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import SUMMARY, CollectedItem, Declaration, summary_json

WORDS = (
    "a",
    "checkpoint",
    "answers",
    "a",
    "question",
    "about",
    "the",
    "text",
    "that",
    "was",
    "shown",
    "before",
)


def main() -> None:
    """Make the runs, study them, and print what it cost."""
    options = _options()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="study-"))
    output = folder / "results"
    if not output.is_dir():
        for number in range(options.series):
            _make_run(output, number, options)
    found = {"with journals": _study(folder, output)}
    totals = folder / "totals"
    for path in sorted(output.glob(f"*/{SUMMARY}")):
        write_atomic(totals / path.parent.name / SUMMARY, path.read_bytes())
    found["totals only"] = _study(folder, totals)
    size = sum(path.stat().st_size for path in output.glob("*/items/items-*.jsonl"))
    made = f"{options.checkpoints} checkpoints of {options.benchmarks} benchmarks, {options.items} items each"
    print(f"{made}, journals of {mebibytes(size):.0f} MiB\n")
    rows = [(name, one.wall, one.cpu, mebibytes(one.together)) for name, one in found.items()]
    print(table(["touchstone study", "seconds", "of CPU", "MiB at most"], rows))
    if options.json:
        Path(options.json).write_text(json.dumps({name: asdict(one) for name, one in found.items()}))
    if not options.keep:
        shutil.rmtree(folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (
        ("checkpoints", 200),
        ("benchmarks", 10),
        ("items", 300),
        ("series", 20),
        ("words", 150),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N")
    parser.add_argument("--keep", metavar="DIR", help="make the runs there, or take those that are there")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def _study(folder: Path, output: Path) -> Cost:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest_touchstone.cli",
        "study",
        output,
        "-o",
        folder / "written",
    ]
    return run(command, cwd=Path.cwd(), log=folder / "study.log")


def _make_run(output: Path, number: int, options: argparse.Namespace) -> None:
    """Write a training of so many checkpoints, with its journal and summary."""
    folder = output / f"run-{number:02}"
    folder.mkdir(parents=True)
    draw = random.Random(number)
    names = [f"checkpoint-{100 * (place + 1)}" for place in range(options.checkpoints // options.series)]
    declarations = {one.name: one for one in map(_declaration, range(options.benchmarks))}
    items: list[CollectedItem] = []
    records: list[Record] = []
    with Journal(folder, "main") as journal:
        for record in _records(names, declarations, draw, options):
            journal.append(record)
            record.exchanges.clear()
            records.append(record)
            items.append(CollectedItem(record.item, record.benchmark, record.checkpoint, record.example))
    rows = [
        {
            "name": name,
            "path": f"runs/training-{number}/{name}",
            "series": f"runs/training-{number}",
            "kind": "causal",
            "seq_len": 512,
            "global_step": 100 * (place + 1),
            "epoch": (place + 1) / 2,
            "fingerprint": f"{number:04x}{place:04x}" * 8,
        }
        for place, name in enumerate(names)
    ]
    summary = summarize(
        records,
        declarations,
        items,
        run_id=folder.name,
        directory=str(folder),
        manifest={"settings": {"seed": 1234}, "began": float(number)},
        checkpoints=rows,
    )
    write_atomic(folder / SUMMARY, json.dumps(summary_json(summary)))


def _declaration(place: int) -> Declaration:
    name = f"benchmark_{place}"
    dataset = DatasetInfo(name=name, origin="made up", path="", rows=0, sha256=f"{place:02x}" * 32)
    return Declaration(name=name, version=1, primary="acc", dataset=dataset)


def _records(
    names: list[str], declarations: dict[str, Declaration], draw: random.Random, options: argparse.Namespace
) -> Iterator[Record]:
    hard = [[draw.random() for _ in range(options.items)] for _ in declarations]
    for place, name in enumerate(names):
        skill = 0.5 + 0.2 * place / len(names)
        for benchmark, difficulty in zip(declarations, hard, strict=True):
            for example in range(options.items):
                right = difficulty[example] + draw.gauss(0, 0.15) < skill
                text = " ".join(draw.choices(WORDS, k=options.words))
                yield Record(
                    item=f"{benchmark}[{name}-{benchmark}/{example}]",
                    benchmark=benchmark,
                    example=f"{benchmark}/{example}",
                    checkpoint=name,
                    status="scored",
                    scores={"acc": float(right), "acc_norm": float(right)},
                    row=f"{hash_of(benchmark, example):064x}",
                    seconds=0.01,
                    exchanges=[
                        {"kind": "loglikelihood", "request": {"context": text}, "answer": {"total": -1.5}}
                    ],
                )


def hash_of(benchmark: str, example: int) -> int:
    """Return a number that stands for the hash of a row."""
    return int.from_bytes(f"{benchmark}/{example}".encode(), "big")


if __name__ == "__main__":
    main()
