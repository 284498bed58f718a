"""The cost of an item above plain pytest: trivial items with answers from hashes, against trivial tests.

python -m perf overhead [--items 10000 50000] [--workers 0 2] [--pairs 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perf.measure import OURS, Cost, costs, in_turn, mebibytes, ratios, run, spread, table

BENCHMARK = '''\
from pytest_touchstone import Loglikelihood, benchmark


@benchmark(name="trivial", version=1, data="trivial/test", asks=Loglikelihood, primary="acc")
def test_trivial(example):
    """Nothing to know."""
    answer = yield Loglikelihood("a", example["text"])
    return {"acc": float(answer.is_greedy)}
'''

PLAIN = """\
import pytest


@pytest.mark.parametrize("number", range(COUNT), ids=[f"trivial/{number}" for number in range(COUNT)])
def test_plain(number):
    assert number >= 0
"""


def main() -> None:
    """Run the pairs and print a table for each number of items and of workers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 50_000], metavar="N")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[0, 2], metavar="N", help="0: without xdist"
    )
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    found = []
    for items in options.items:
        for workers in options.workers:
            with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
                found.append(compare(Path(folder), items, workers, options.pairs))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def compare(folder: Path, items: int, workers: int, pairs: int) -> dict[str, object]:
    """Run both sides in turn on that many items; print the table and return its numbers."""
    write(folder, items)
    more = ["-n", str(workers)] if workers else []

    def plain(number: int) -> Cost:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:pytest_touchstone.plugin",
            "test_plain.py",
            *more,
        ]
        return run(command, cwd=folder / "plain", log=folder / f"plain-{number}.log", env=OURS)

    def ours(number: int) -> Cost:
        words = ["test_trivial.py", "--checkpoint", "fake:causal", "--eval-data", str(folder / "data")]
        command = [sys.executable, "-m", "pytest", *words, *more]
        return run(command, cwd=folder / "ours", log=folder / f"ours-{number}.log", env=OURS)

    mine, theirs = in_turn(pairs, ours, plain)
    show(f"{items} items, " + (f"-n {workers}" if workers else "one process"), items, mine, theirs)
    return {"items": items, "workers": workers, "ours": costs(mine), "plain": costs(theirs)}


def write(folder: Path, items: int) -> None:
    """Write a project with the benchmark and its rows, and one with as many plain tests."""
    for name, file, text in (("ours", "test_trivial.py", BENCHMARK), ("plain", "test_plain.py", PLAIN)):
        (folder / name).mkdir()
        (folder / name / "pytest.ini").write_text("[pytest]\n")
        (folder / name / file).write_text(text.replace("COUNT", str(items)))
    data = folder / "data" / "trivial"
    data.mkdir(parents=True)
    rows = (json.dumps({"text": f" word {number}"}) for number in range(items))
    (data / "test.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def show(title: str, items: int, ours: Sequence[Cost], plain: Sequence[Cost]) -> None:
    """Print what both took."""
    rows = []
    for name, values in (
        ("whole process, seconds", lambda cost: cost.wall),
        ("CPU, seconds", lambda cost: cost.cpu),
        ("a thousand items, seconds", lambda cost: cost.wall / items * 1000),
        ("controlling process, MiB at its peak", lambda cost: mebibytes(cost.peak)),
        ("all processes, MiB at their peaks", lambda cost: mebibytes(cost.peak_tree)),
    ):
        mine, theirs = [values(cost) for cost in ours], [values(cost) for cost in plain]
        rows.append([name, spread(mine), spread(theirs), ratios(mine, theirs)])
    print(f"\n{title}, {len(ours)} pairs\n")
    print(table(["", "ours", "plain pytest", "ours / plain"], rows), flush=True)


if __name__ == "__main__":
    main()
