"""Functions that make metrics of raw values."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.metrics.lm_eval.aggregates import aggregate_raw, source_of


def test_a_registered_function_is_applied_to_the_raw_values() -> None:
    pytest.importorskip("lm_eval")
    items = [(1.0, "[0, 0]"), (0.0, "[1, 0]"), (1.0, "[1, 1]")]
    assert aggregate_raw("f1", "f1", items, None) == pytest.approx(2 / 3)


def test_a_function_of_a_file_is_found_by_its_path(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    (tmp_path / "utils.py").write_text("def widest(items):\n    return max(b - a for a, b in items)\n")
    items = [(0.0, "[1, 4]"), (0.0, "[2, 3]")]
    assert aggregate_raw(f"{tmp_path}/utils.widest", "width", items, None) == 3


def test_a_function_of_somebodys_file_has_a_source_and_a_registered_one_has_none(tmp_path: Path) -> None:
    assert source_of("f1") is None
    assert source_of(f"{tmp_path}/utils.widest") == tmp_path / "utils.py"


def test_the_source_is_the_file_that_runs(tmp_path: Path) -> None:
    package = pytest.importorskip("lm_eval").__path__[0]
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nnamed = sum\n")
    # The second lies below lm-evaluation-harness by its end, and evil.py is what its beginning names.
    for reference in (f"{tmp_path}/evil.py.named", f"{tmp_path}/evil.x/../../../../../../..{package}/utils"):
        source = source_of(reference)
        if source != tmp_path / "evil.py":
            with pytest.raises(ImportError):
                aggregate_raw(reference, "x", [(0.0, "1")], None)
            assert not (tmp_path / "ran").exists()
    assert source_of(f"{tmp_path}/evil.py.named") == tmp_path / "evil.py"
