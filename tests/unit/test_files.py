"""Python files loaded by their place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.files import load_module, unwritable


def test_a_module_is_run_anew_and_found_under_its_name(tmp_path: Path) -> None:
    place = tmp_path / "some.py"
    place.write_text("import sys\nvalue = 1\nfound = sys.modules[__name__].value\n")
    first = load_module(place, "touchstone_test_module")
    assert first.found == 1
    assert sys.modules.pop("touchstone_test_module") is first
    assert load_module(place, "touchstone_test_module") is not first
    del sys.modules["touchstone_test_module"]


def test_a_module_that_breaks_is_not_found(tmp_path: Path) -> None:
    place = tmp_path / "some.py"
    place.write_text("raise RuntimeError('broken')\n")
    with pytest.raises(RuntimeError, match="broken"):
        load_module(place, "touchstone_test_module")
    assert "touchstone_test_module" not in sys.modules


def test_what_is_no_python_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"must end in \.py"):
        load_module(tmp_path, "touchstone_test_module")
    with pytest.raises(FileNotFoundError, match=r"none\.py"):
        load_module(tmp_path / "none.py", "touchstone_test_module")


def test_a_folder_that_can_be_made_is_told_from_one_that_cannot_without_making_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert unwritable(tmp_path) is None
    assert unwritable(tmp_path / "not" / "there") is None
    assert unwritable(tmp_path / "file") == f"{tmp_path / 'file'} is no folder"
    assert unwritable(tmp_path / "file" / "below") == f"{tmp_path / 'file'} is no folder"
    assert "too long" in str(unwritable(tmp_path / ("x" * 300)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
