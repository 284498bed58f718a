"""The figures of the README: what ``pytest evals/`` without options takes, and what it finds.

    python -m perf demonstration [--runs 3]

Prints, as Markdown, the medians of seconds, seconds of CPU and peak memory, and the results of the last run. Memory is
that of all processes at one time, shared pages counted once. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from perf.measure import OURS, ROOT, run
from pytest_touchstone.results.summary import Result, Summary, load_summary, whole_results


def main() -> None:
    """Run the demonstration and print its figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs, each in a new folder (3)")
    options = parser.parse_args()
    costs = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "results"
            command: list[str | Path] = [
                sys.executable,
                "-m",
                "pytest",
                "evals/",
                "-p",
                "no:cacheprovider",
                "--eval-output",
                output,
            ]
            costs.append(run(command, cwd=ROOT, log=Path(folder) / "log", env=OURS))
            (found,) = output.glob("*/summary.json")
            summary = load_summary(found.parent)
    wall, cpu, memory = (
        statistics.median(getattr(one, name) for one in costs) for name in ("wall", "cpu", "together")
    )
    print(f"{wall:.0f} s, {cpu:.0f} s of CPU, {memory / 2**30:.2f} GiB of memory\n")
    print(f"{summary.manifest['demonstration']['what']}\n")
    print("\n".join(_table(summary)))


def _table(summary: Summary) -> list[str]:
    """Return the rows of the results, and what was left out."""
    head = ["| checkpoint | benchmark | metric | value | 95 % interval | rows | seconds | valid |"]
    rule = ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    rows = [_row(one) for one in whole_results(summary)]
    left_out = [f"- {line}" for line in summary.deselected if "left out of the demonstration" in line]
    return [*head, *rule, *rows, *([""] if left_out else []), *left_out]


def _row(result: Result) -> str:
    metric = result.metrics[result.primary]
    interval = "" if metric.low is None else f"{metric.low:.3f} to {metric.high:.3f}"
    value = "" if metric.value is None else f"{metric.value:.3f}"
    cells = [
        result.checkpoint,
        result.name,
        metric.name,
        value,
        interval,
        result.scored,
        f"{result.seconds:.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} | {result.invalid or 'yes'} |"


if __name__ == "__main__":
    main()
