"""Python files loaded by their place.

Objects with a checksum: what was written comes back, and no bit of it changes unseen.

Files that somebody else wrote are read in bounded time, or refused in one line.

Shipped files are found in a checkout and in an installed wheel.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core import files
from pytest_touchstone.core import files as module
from pytest_touchstone.core.dataset import DatasetInfo, read_lines
from pytest_touchstone.core.errors import DataError, HarnessError, JournalError
from pytest_touchstone.core.eval_config import read_eval_config
from pytest_touchstone.core.files import (
    check_kind,
    from_plain,
    has_checksum,
    load_module,
    parse_json,
    read_checked,
    read_regular,
    shown_path,
    text_with_checksum,
    unwritable_reason,
    with_checksum,
    write_atomic,
)
from tests.support.places import ROOT


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
    assert unwritable_reason(tmp_path) is None
    assert unwritable_reason(tmp_path / "not" / "there") is None
    assert unwritable_reason(tmp_path / "file") == f"{shown_path(tmp_path / 'file')} is no folder"
    assert unwritable_reason(tmp_path / "file" / "below") == f"{shown_path(tmp_path / 'file')} is no folder"
    assert "too long" in str(unwritable_reason(tmp_path / ("x" * 300)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_link_to_nothing_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    told = f"{shown_path(tmp_path / 'link')} is a link to gone, which is not there"
    assert unwritable_reason(tmp_path / "link") == told
    assert unwritable_reason(tmp_path / "link" / "below") == told


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
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(pipe, "new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
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


OBJECTS = st.dictionaries(
    st.text(), st.none() | st.integers() | st.floats(allow_nan=False) | st.text(), min_size=1
)


@given(value=OBJECTS, indent=st.sampled_from([None, 2]))
def test_what_was_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, value: Any, indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("one") / "value.json"
    path.write_text(text_with_checksum(json.dumps(value, indent=indent)), encoding="utf-8")
    assert has_checksum(path.read_bytes())
    assert read_checked(path) == value


@given(value=OBJECTS, where=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_wherever_it_is(value: Any, where: int, bit: int) -> None:
    data = bytearray(with_checksum(json.dumps(value)[:-1].encode()))
    data[where % len(data)] ^= 1 << bit
    assert not has_checksum(bytes(data))


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_checksum_of_a_file_that_was_written_anew_says_nothing_of_it(
    tmp_path: Path, indent: int | None, end: str
) -> None:
    path = tmp_path / "value.json"
    path.write_text(json.dumps({"a": 1, "crc32": "00000000"}, indent=indent) + end, encoding="utf-8")
    assert read_checked(path) == {"a": 1}


@pytest.mark.parametrize("text", ['{"a":1}\n', "", "[]"])
def test_what_somebody_else_wrote_has_none(text: str) -> None:
    assert not has_checksum(text.encode())


NESTED = "[" * 100_000


def deep(path: Path) -> None:
    path.write_text(f'{{"a": {NESTED}\n')


def within(path: Path) -> None:
    path.write_text('{"a": ' + "[" * 500 + "]" * 500 + "}\n")


def loop(path: Path) -> None:
    path.symlink_to(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


FAULTS = [deep, within, os.mkfifo, loop, endless]


@pytest.mark.parametrize("fault", FAULTS)
def test_rows_are_read_from_regular_files_of_bounded_depth(
    fault: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    fault(path)
    with pytest.raises(DataError, match=r"rows\.jsonl") as refused:
        list(read_lines(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("ending", ["json", "toml"])
def test_a_config_is_a_regular_file_of_bounded_depth(
    fault: Callable[[Path], None], ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"asked.{ending}"
    fault(path)
    if ending == "toml" and path.is_file() and not path.is_symlink():
        path.write_text(path.read_text().replace('{"a":', "a =").replace("}\n", "\n"))
    with pytest.raises(HarnessError, match=rf"asked\.{ending}") as refused:
        read_eval_config(path, [])
    assert "\n" not in str(refused.value)


def test_what_gzip_has_packed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b"\n" * 2000))
    with pytest.raises(DataError, match="it unpacks to more than"):
        list(read_lines(tmp_path / "rows.jsonl.gz"))
    (tmp_path / "plain").write_bytes(b"\n" * 2000)
    with pytest.raises(OSError, match="it is larger than"):
        read_regular(tmp_path / "plain")


def test_json_of_usual_depth_is_read_whatever_its_size() -> None:
    assert parse_json("[" * 100 + "]" * 100)
    assert parse_json('{"a": "' + "[" * 1000 + '"}') == {"a": "[" * 1000}
    assert len(parse_json("[" + ",".join(["[]"] * 1000) + "]")) == 1000
    with pytest.raises(ValueError, match="nests deeper than 100"):
        parse_json("[" * 102 + "]" * 102)


def test_a_checkout_has_them_in_fixtures() -> None:
    assert module.shipped("data") == ROOT / "fixtures" / "data"
    assert module.shipped("data").is_dir()


def test_a_wheel_has_them_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_shipped").mkdir()
    monkeypatch.setattr(module, "_HERE", tmp_path)
    assert module.shipped("data", "x") == tmp_path / "_shipped" / "data" / "x"


@dataclass
class Source:
    dataset: DatasetInfo


def test_fields_may_have_their_former_names() -> None:
    row: dict[str, Any] = {
        "name": "arc_easy/test",
        "origin": "shipped",
        "path": "x",
        "rows": 3,
        "sha256": "0" * 64,
    }
    assert from_plain(Source, {"pack": row}) == Source(dataset=DatasetInfo(**row))
    with pytest.raises(ValueError, match=r"dataset\.rows"):
        from_plain(Source, {"pack": row | {"rows": "many"}})
