"""A base and its adapter in one run, against a run of each: item by item, and by memory.

    python -m perf.lora ADAPTER [--base builtin:smollm2-135m] [--select arc_easy] [--limit 20] [--workers 0]

Runs ``pytest evals/`` three times with the same selection. Prints how many items differ in scores, in texts and in
answers as a whole, the largest difference of a log-probability, and how often the checkpoints took turns. Prints too
the peak memory of the pair over that of the larger one alone (at most 1.15 is wanted; Linux's VmHWM). The exit code
is 1 if a score or a text differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pytest_touchstone.results.journal import latest, read_journal
from pytest_touchstone.results.records import Record

ROOT = Path(__file__).resolve().parents[1]


class Run(NamedTuple):
    """Records by checkpoint and example, checkpoints in the order of the journal, and the peak in bytes."""

    records: dict[tuple[str, str], Record]
    order: list[str]
    peak: int


def run(folder: Path, checkpoints: Sequence[str], options: argparse.Namespace) -> Run:
    """Run pytest once in a process of its own."""
    given = [word for one in checkpoints for word in ("--checkpoint", one)]
    select = ["-k", options.select] if options.select else []
    command = [sys.executable, "-m", "pytest", "evals/", "-q", "-p", "no:cacheprovider", *given, *select]
    command += ["--eval-limit", options.limit, "--eval-output", str(folder), "-n", options.workers]
    subprocess.run(command, check=True, cwd=ROOT)
    found = next(folder.glob("*/run.json")).parent
    records = read_journal(found)
    usages = [json.loads(path.read_text(encoding="utf-8")) for path in found.glob("effort-*.json")]
    peak = max(entry["peak_bytes"] or 0 for entries in usages for entry in entries)
    by_item = {(one.checkpoint, one.example): one for one in latest(read_journal(found)).values()}
    return Run(by_item, [record.checkpoint for record in records], peak)


def logprobs(value: Any) -> list[float]:
    """Return all log-probabilities in a record's answers."""
    if isinstance(value, dict):
        own = [number for name, number in value.items() if name == "logprob" and number is not None]
        return own + [number for name, one in value.items() if name != "logprob" for number in logprobs(one)]
    return [number for one in value for number in logprobs(one)] if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    """Return all texts in a record's answers."""
    if isinstance(value, dict):
        own = [one for name, one in value.items() if name == "text" and isinstance(one, str)]
        return own + [text for one in value.values() if not isinstance(one, str) for text in texts(one)]
    return [text for one in value for text in texts(one)] if isinstance(value, list) else []


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="a base and its adapter in one run and in two")
    parser.add_argument("adapter", metavar="ADAPTER")
    parser.add_argument("--base", default="builtin:smollm2-135m")
    parser.add_argument("--select", default="arc_easy or gsm8k", metavar="EXPRESSION", help="as pytest's -k")
    parser.add_argument("--limit", default="20")
    parser.add_argument("--workers", default="0")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        sources = [[options.base], [options.adapter], [options.base, options.adapter]]
        runs = [run(Path(name) / str(number), source, options) for number, source in enumerate(sources)]
    pair = runs[2]
    alone = {**runs[0].records, **runs[1].records}
    assert alone.keys() == pair.records.keys()
    differ = {"scores": 0, "texts": 0, "answers": 0}
    apart = 0.0
    for key, one in alone.items():
        other = pair.records[key]
        differ["scores"] += (one.status, one.scores) != (other.status, other.scores)
        differ["texts"] += texts(one.exchanges) != texts(other.exchanges)
        differ["answers"] += one.exchanges != other.exchanges
        found = zip(logprobs(one.exchanges), logprobs(other.exchanges), strict=True)
        apart = max([apart, *(abs(mine - its) for mine, its in found)])
    turns = sum(before != after for before, after in pairwise(pair.order))
    ratio = pair.peak / max(runs[0].peak, runs[1].peak)
    print(f"{len(alone)} items; different: {differ}; largest difference of a log-probability {apart:.2g}")
    print(f"{turns} turns; peak {pair.peak / 2**20:.0f} MiB, {ratio:.3f} of one alone")
    return 1 if differ["scores"] or differ["texts"] else 0


if __name__ == "__main__":
    sys.exit(main())
