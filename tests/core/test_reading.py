"""Files that somebody else wrote are read in bounded time, or refused in one line."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_touchstone.core import files
from pytest_touchstone.core.data_files import read_lines
from pytest_touchstone.core.errors import DataError, HarnessError
from pytest_touchstone.core.eval_config import read_eval_config
from pytest_touchstone.core.files import parsed, read_regular

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
    assert parsed("[" * 100 + "]" * 100)
    assert parsed('{"a": "' + "[" * 1000 + '"}') == {"a": "[" * 1000}
    assert len(parsed("[" + ",".join(["[]"] * 1000) + "]")) == 1000
    with pytest.raises(ValueError, match="nests deeper than 100"):
        parsed("[" * 102 + "]" * 102)
