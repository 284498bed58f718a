"""Recorded verdicts on hard answers, and how another scorer's verdicts compare with them.

The kit is ``conformance/verdicts/SCORER.jsonl`` among the shipped files: ``gold``, ``output``, the ``verdict`` of
the reference implementation, and ``why`` the case is there. A scorer's own verdicts are a file of JSON lines

    {"scorer": "gsm8k_strict", "gold": ..., "output": ..., "verdict": true}

with gold and output as in the kit; verdicts are true and false, or the score.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output
from pytest_touchstone.core.data_files import read_lines
from pytest_touchstone.core.errors import DataError, ExitCode
from pytest_touchstone.core.files import shipped

TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """A case in which a scorer's verdict differs from the recorded one."""

    scorer: str
    gold: Any
    output: Any
    recorded: bool | float
    found: bool | float
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome for a file of verdicts: cases compared, cases of its scorers that it lacks, differences."""

    compared: int
    missing: int
    differences: list[Difference]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    text = "JSON lines: scorer, gold, output, verdict"
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--cases", metavar="SCORER", help="print the cases of a scorer, without their verdicts"
    )


def run(options: argparse.Namespace) -> Output:
    """The differences between a file's verdicts and the recorded ones; without a file, the content of the kit."""
    if options.cases is not None:
        found = [
            {"scorer": options.cases, "gold": one["gold"], "output": one["output"]}
            for one in cases(options.cases)
        ]
        return Output(found, "\n".join(json.dumps(case, ensure_ascii=False) for case in found))
    if options.file is None:
        counts = {name: len(cases(name)) for name in scorers()}
        return Output(counts, "\n".join(f"{name:18} {count} cases" for name, count in counts.items()))
    compared = compare_verdicts(options.file)
    code = ExitCode.FAILED if compared.differences else 0
    return Output(asdict(compared), "\n".join(_lines(compared)), code)


def _lines(compared: Comparison) -> Iterator[str]:
    for one in compared.differences:
        yield f"{one.scorer}: {one.found} instead of {one.recorded} ({one.why})"
        yield f"    gold   {json.dumps(one.gold, ensure_ascii=False)}"
        yield f"    output {json.dumps(one.output, ensure_ascii=False)}"
    yield (
        f"{compared.compared} verdicts compared, {len(compared.differences)} different; "
        f"{compared.missing} cases of these scorers without a verdict"
    )


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

    Raises ``DataError`` naming the row that is no verdict on a case of the kit.
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
