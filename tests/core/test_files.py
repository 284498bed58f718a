"""Python files loaded by their place."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.core.files import (
    check_kind,
    load_module,
    shown_path,
    unwritable,
    write_atomic,
)


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
    assert unwritable(tmp_path / "file") == f"{shown_path(tmp_path / 'file')} is no folder"
    assert unwritable(tmp_path / "file" / "below") == f"{shown_path(tmp_path / 'file')} is no folder"
    assert "too long" in str(unwritable(tmp_path / ("x" * 300)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_link_to_nothing_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    told = f"{shown_path(tmp_path / 'link')} is a link to gone, which is not there"
    assert unwritable(tmp_path / "link") == told
    assert unwritable(tmp_path / "link" / "below") == told


def test_what_a_link_points_to_is_written_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name in ("there.md", "not_yet.md"):
        link = tmp_path / f"link to {name}"
        link.symlink_to(Path("elsewhere") / name)
        (tmp_path / "elsewhere" / "there.md").write_text("old")
        write_atomic(link, "new")
        assert link.is_symlink()
        assert (tmp_path / "elsewhere" / name).read_text() == "new"
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["not_yet.md", "there.md"]


@pytest.mark.skipif(
    not os.access("/dev/shm", os.W_OK), reason="/dev/shm is not there, or cannot be written to"
)
def test_a_file_in_memory_is_a_file_and_written_anew() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "run.json"
        for text in ("a longer text", "short"):
            write_atomic(path, text)
        assert path.read_text() == "short"


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    write_atomic(pipe, "new")
    reader.join(10)
    assert found == ["new"]
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize(
    "data", [[], None, {}, {"schema": 2, "kind": "saved"}, {"schema": 1, "kind": "summary"}]
)
def test_an_object_of_another_kind_or_schema_is_refused(data: object) -> None:
    with pytest.raises(JournalError, match="no saved of schema 1"):
        check_kind(data, "saved", JournalError)
    check_kind({"schema": 1, "kind": "saved"}, "saved")


def test_a_file_in_pieces_of_which_one_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    def pieces():
        yield "a"
        raise ValueError("NaN")

    with pytest.raises(ValueError, match="NaN"):
        write_atomic(tmp_path / "file", pieces())
    assert not list(tmp_path.iterdir())
    write_atomic(tmp_path / "file", iter(["a", "\ud83d", "b"]))
    assert (tmp_path / "file").read_text() == "a\\ud83db"
