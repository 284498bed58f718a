"""Which fast ways each family of models goes, in every number type: those that docs/performance.md names."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_touchstone.engines.settings import Dtype
from tests.support.engines import engine_for, generates_together
from tests.support.families import CAUSAL, FURTHER, causal_of

ROOT = Path(__file__).resolve().parents[3]

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16", "float16")


class Row(NamedTuple):
    """What docs/performance.md says of a family: whether each fast way is used, and what keeps it from the others."""

    scores: bool
    texts: bool
    logits: bool
    reason: str


def table_of_ways() -> dict[str, Row]:
    """The table of families in docs/performance.md, by family."""
    lines = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("| models |"))
    found: dict[str, Row] = {}
    for line in itertools.takewhile(lambda line: line.startswith("|"), lines[begin + 2 :]):
        models, *used, reason = (cell.strip() for cell in line.strip("|").split("|"))
        assert set(used) <= {"yes", "no"}
        scores, texts, logits = (one == "yes" for one in used)
        found |= dict.fromkeys(re.findall("`(.+?)`", models), Row(scores, texts, logits, reason))
    return found


def check_ways(family: str, dtype: Dtype, folder: Path) -> None:
    """Assert that a family goes the ways that the docs say."""
    said = table_of_ways()[family]
    engine = engine_for(causal_of(folder, family), dtype=dtype)
    assert (engine.shares, generates_together(engine), engine._needed.gathers) == said[:3], engine.notes
    notes = [
        note for note in engine.notes if ": transformers warns: " not in note
    ]  # of its config, not of ways
    assert bool(notes) is bool(said.reason), notes
    reasons = [one.replace("...", ".+") for one in said.reason.split(", or ")]
    assert all(any(re.search(one, note) for one in reasons) for note in notes), notes
    engine.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", CAUSAL)
def test_a_family_goes_the_ways_that_the_docs_say(family: str, dtype: Dtype, tmp_path: Path) -> None:
    check_ways(family, dtype, tmp_path)
    assert table_of_ways()[family] == (True, True, True, "")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", [*FURTHER, "mamba"])
def test_a_further_family_goes_the_ways_that_the_docs_say(family: str, dtype: Dtype, tmp_path: Path) -> None:
    check_ways(family, dtype, tmp_path)


def test_the_docs_list_the_ways_of_every_family_that_tests_know() -> None:
    assert set(table_of_ways()) == {*CAUSAL, *FURTHER, "mamba"}
