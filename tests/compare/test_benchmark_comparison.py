"""A comparison is written as flat data, and read again, also as former versions wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_touchstone.compare.benchmark_comparison import line_of, plain_line
from pytest_touchstone.compare.comparison_verdicts import compare, compute_verdicts
from pytest_touchstone.reports.gate import baseline_text, difference_text
from tests.support.entries import entry, right
from tests.support.lines import missing

FORMER: dict[str, Any] = {
    "kind": "failed",
    "checkpoint": "new",
    "benchmark": "b",
    "metric": "acc",
    "verdict": "inconclusive",
    "why": "-4.90 points [-42.35, +13.26]: may be equal, or more than 1 point worse",
    "fails": ["dropped by 16.67 points as measured; max_drop is 12"],
    "invalid": [],
    "notes": [],
    "value": 0.0,
    "against": {
        "checkpoint": "c2",
        "run_id": "run",
        "step": None,
        "measured": 0.1667,
        "shrunk": 0.049,
        "runs": 3,
        "candidates": 3,
    },
    "difference": -0.049,
    "as_measured": -0.1667,
    "low": -0.4235,
    "high": 0.1326,
    "p": 1.0,
    "p_adjusted": 1.0,
    "family": 1,
    "n": 12,
    "margin": 0.01,
    "unit": "points",
    "items": 4000,
    "method": "McNemar exact; Tango interval",
    "state": "chosen",
    "about": "",
    "part": "",
    "early": False,
    "accepted": "",
    "sees": None,
    "stands_in": "",
}


def test_a_line_of_a_former_version_has_the_same_numbers_and_texts() -> None:
    line = line_of(FORMER)
    assert (line.kind, line.comparison.verdict, line.comparison.items_to_tell) == (
        "failed",
        "inconclusive",
        4000,
    )
    assert (line.comparison.baseline, line.as_measured.baseline) == (0.049, 0.1667)
    assert difference_text(line) == "-4.90 [-42.35, +13.26] points"
    text = baseline_text(line)
    assert not missing(text, "c2 of run run", "best of 3", "0.1667", "-16.67 points", "0.0490")
    again = plain_line(line)
    assert {name: again[name] for name in FORMER if name not in ("fails", "invalid", "notes")} == {
        name: value for name, value in FORMER.items() if name not in ("fails", "invalid", "notes")
    }


def test_a_comparison_is_the_same_once_it_is_written_and_read() -> None:
    new = entry(right(30, 100), checkpoint="new")
    earlier = [entry(right(n, 100), checkpoint=f"old{n}") for n in (50, 52)]
    line = compute_verdicts({"b": compare(new, earlier)})["b"]
    assert line_of(json.loads(json.dumps(plain_line(line)))) == line


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"n": "many"}, "comparison.n"),
        ({"verdict": "fine"}, "comparison.verdict"),
        ({"checkpoint": 3}, "checkpoint"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field} is "):
        line_of({**FORMER, **change})
