"""Writes what a reference says of recorded outputs beside them; for the scripts of this folder, which need nothing of
this project.

With ``--check`` on the command line nothing is written. What ``differences.jsonl`` says of the reference is always
checked, and never written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

VERDICTS = Path(__file__).parents[2] / "fixtures" / "conformance" / "verdicts"


def record(scorers: Mapping[str, Callable[[Any, Any], Any]]) -> None:
    """Let each scorer judge the gold and the output of its rows, and print where a verdict is another than before."""
    changed = sum(_written(name, verdict) for name, verdict in scorers.items())
    for row in _read(VERDICTS.with_name("differences.jsonl")):
        if row["scorer"] not in scorers:
            continue
        try:
            found = scorers[row["scorer"]](row["gold"], row["output"])
        except (AssertionError, IndexError, TypeError) as error:
            found = type(error).__name__
        if found != row["reference"]:
            changed += 1
            print(f"differences: {row['scorer']}: {row['reference']} -> {found}: {row['why']}")
    print(f"{changed} verdicts differ from those on record")


def _written(name: str, verdict: Callable[[Any, Any], Any]) -> int:
    """Write a scorer's verdicts; return how many have changed."""
    path = VERDICTS / f"{name}.jsonl"
    rows, changed = _read(path), 0
    for row in rows:
        found = verdict(row["gold"], row["output"])
        if found != row["verdict"]:
            changed += 1
            print(f"{name}: {row['verdict']} -> {found}: {row['why']}")
            row["verdict"] = found
    if "--check" not in sys.argv:
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path.write_text("".join(lines), encoding="utf-8")
    return changed


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
