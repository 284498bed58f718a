"""The benchmarks of a file, read without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.core.benchmark import declared
from pytest_touchstone.core.files import load_module
from pytest_touchstone.core.tasks import declared_in
from tests.support.places import ROOT

FILES = sorted((ROOT / "evals").glob("test_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_benchmarks_of_a_shipped_file_are_read_as_they_are_declared(path: Path) -> None:
    """Also where their fields come from tables and functions of this package."""
    found = map(declared, vars(load_module(path, f"declared_{path.stem}")).values())
    made = {spec.name: {kind.__name__ for kind in spec.asks} for spec in found if spec is not None}
    assert dict(declared_in(path)) == made


def test_a_table_of_the_file_and_a_function_are_read_and_nothing_is_run(tmp_path: Path) -> None:
    path = tmp_path / "test_mine.py"
    path.write_text(
        "from elsewhere import MORE\n"
        "raise SystemExit\n"
        "def part(name):\n    return {'asks': FillMask, **MORE}\n"
        "TASKS = {**part('x'), 'version': 1}\n"
        "@benchmark('one', **TASKS)\ndef test_one(example): ...\n"
        "@benchmark(name='two', asks=(Generate, RunProgram))\ndef test_two(example): ...\n"
        "@benchmark('three', **MORE)\ndef test_three(example): ...\n"
    )
    found = dict(declared_in(path))
    assert found == {"one": {"FillMask"}, "two": {"Generate", "RunProgram"}, "three": set()}


def test_a_file_that_cannot_be_read_has_no_benchmarks(tmp_path: Path) -> None:
    path = tmp_path / "test_broken.py"
    path.write_text("def (")
    assert list(declared_in(path)) == []
    assert list(declared_in(tmp_path / "none.py")) == []
