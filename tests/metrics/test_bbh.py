"""BIG-Bench Hard: each task has its description, its number of rows and three examples; answers are found by the
reference's rule, which is held in the conformance kit."""

from __future__ import annotations

from pytest_touchstone.metrics.bbh import DESCRIPTIONS, ROWS
from tests.support.places import ROOT
from tests.support.rows import read_jsonl

DATA = ROOT / "fixtures" / "data" / "bbh"


def test_every_task_has_a_description_rows_and_three_examples() -> None:
    assert len(DESCRIPTIONS) == 27
    assert sum(ROWS.values()) == 6511
    for folder in (DATA, DATA / "shots"):
        assert {path.stem for path in folder.glob("*.jsonl")} == DESCRIPTIONS.keys()
    assert all(len(read_jsonl(DATA / "shots" / f"{name}.jsonl")) == 3 for name in DESCRIPTIONS)
