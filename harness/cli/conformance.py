"""Recorded verdicts on hard answers, and how another scorer's verdicts compare with them.

The kit is ``conformance/verdicts/SCORER.jsonl`` among the shipped files: ``gold``, ``output``, the ``verdict`` of
the reference implementation, and ``why`` the case is there. A scorer's own verdicts are a file of JSON lines

    {"scorer": "gsm8k_strict", "gold": ..., "output": ..., "verdict": true}

with gold and output as in the kit; verdicts are true and false, or the score.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.core.dataset import read_lines
from harness.core.errors import DataError
from harness.core.resources import shipped

TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """A case in which a scorer's verdict is not the recorded one."""

    scorer: str
    gold: Any
    output: Any
    recorded: bool | float
    found: bool | float
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of a file of verdicts: cases compared, cases of its scorers that it lacks, differences."""

    compared: int
    missing: int
    differences: list[Difference]


def scorers() -> list[str]:
    """The scorers that the kit has cases for."""
    return sorted(path.stem for path in _folder().glob("*.jsonl"))


def cases(scorer: str) -> list[dict[str, Any]]:
    """The recorded cases of a scorer; raises ``DataError`` for a name that the kit does not have."""
    if scorer not in scorers():
        raise DataError(f"no scorer {scorer!r} in the kit; there are {', '.join(scorers())}")
    return [line.data for line in read_lines(_folder() / f"{scorer}.jsonl")]


def compare_verdicts(path: Path) -> Comparison:
    """The verdicts of a file against the recorded ones.

    Raises ``DataError`` naming the row of what is no verdict on a case of the kit.
    """
    known: dict[tuple[str, str], dict[str, Any]] = {}
    seen: set[tuple[str, str]] = set()
    differences = []
    for line in read_lines(path):
        row, place = line.data, f"{path}, row {line.number}"
        if absent := sorted({"scorer", "gold", "output", "verdict"} - row.keys()):
            raise DataError(f"{place}: field {absent[0]!r} is missing")
        scorer, verdict = row["scorer"], row["verdict"]
        if not isinstance(verdict, (bool, int, float)):
            raise DataError(f"{place}: verdict {verdict!r} is neither true, false nor a score")
        if not any(name == scorer for name, _ in known):
            known |= {_key(scorer, case): case for case in cases(scorer)}
        key = _key(scorer, row)
        if key not in known:
            raise DataError(f"{place}: the kit has no such case of {scorer}; gold and output must be its")
        seen.add(key)
        case = known[key]
        if abs(float(verdict) - float(case["verdict"])) > TOLERANCE:
            differences.append(
                Difference(scorer, row["gold"], row["output"], case["verdict"], verdict, case["why"])
            )
    return Comparison(len(seen), len(known.keys() - seen), differences)


def _key(scorer: str, row: dict[str, Any]) -> tuple[str, str]:
    return scorer, json.dumps([row["gold"], row["output"]])


def _folder() -> Path:
    return shipped("conformance") / "verdicts"
