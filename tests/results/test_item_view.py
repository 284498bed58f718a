"""The rows of a dataset as they are shown beside their items."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pytest_touchstone.results.item_view import MOST_SHOWN, data_rows
from pytest_touchstone.results.summary import Summary
from tests.support.rows import write_jsonl


def test_long_texts_of_a_row_are_shown_without_their_end_and_found_by_the_whole_row(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": "Why?", "tests": "x" * (2 * MOST_SHOWN), "count": 3}]
    path = write_jsonl(tmp_path / "data.jsonl", [*rows, {**rows[0], "tests": rows[0]["tests"] + "y"}])
    declaration = SimpleNamespace(name="x", dataset=SimpleNamespace(path=str(path)))
    summary = cast("Summary", SimpleNamespace(manifest={}, declarations=[declaration]))
    (first_hash, first), (second_hash, second) = data_rows(summary, "x")
    assert first_hash != second_hash
    assert first == second
    assert (first["question"], first["count"]) == ("Why?", 3)
    assert first["tests"] == f"{'x' * MOST_SHOWN} ..."
