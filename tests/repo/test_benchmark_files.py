"""A shipped benchmark reads like its paper: its file is short, and what several need is in the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.places import ROOT

FILES = sorted((ROOT / "evals").glob("test_*.py"))
LONGEST = 60
"""The lines that a file may have, its docstrings among them."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_file_of_a_benchmark_can_be_read_at_once(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, (
        f"{path.name} has {lines} lines; what is general belongs to the metrics, "
        "and another benchmark to a file of its own"
    )
