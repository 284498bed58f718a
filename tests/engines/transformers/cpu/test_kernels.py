"""The kernels are compiled once, and where they cannot be, the reason is there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_touchstone.engines.transformers.cpu import kernels as library
from pytest_touchstone.engines.transformers.cpu import processor
from pytest_touchstone.engines.transformers.cpu.kernels import (
    UnavailableError,
    UnfitError,
    _compile_if_missing,
    _load,
)
from tests.support.lines import naming

PRODUCT = """
import torch
from pytest_touchstone.engines.transformers.cpu.packing import NativeKernels
torch.set_num_threads(2)
native, x, weight = NativeKernels(), torch.randn(50, 40), torch.randn(300, 40)
found = native.product(x, native.packed(weight), None, (300, 40))
print(torch.get_num_threads(), torch.allclose(found, x @ weight.t(), atol=1e-4))
"""


def compiler(folder: Path, text: str) -> str:
    """A program that takes the place of a compiler."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def counting(folder: Path) -> str:
    return compiler(folder, f'echo once >> "{folder}/calls"\nexec cc "$@"')


@pytest.fixture
def unoptimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in a third of the time what is only compiled."""
    monkeypatch.setattr(library, "_FLAGS", ("-O0", *library._FLAGS[1:]))


def test_this_machine_has_them() -> None:
    assert library.kernels() is not None
    assert library._load_once()[1] is None


@pytest.mark.usefixtures("unoptimized")
def test_they_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", counting(tmp_path))
    first = _compile_if_missing(tmp_path / "cache")
    assert _compile_if_missing(tmp_path / "cache") == first
    assert (tmp_path / "calls").read_text().splitlines() == ["once"]
    assert list((tmp_path / "cache").iterdir()) == [first]


@pytest.mark.usefixtures("unoptimized")
def test_another_compiler_makes_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _compile_if_missing(tmp_path / "cache")
    monkeypatch.setenv("CC", counting(tmp_path))
    assert _compile_if_missing(tmp_path / "cache") != first


@pytest.mark.usefixtures("unoptimized")
def test_several_starts_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as starts:
        found = set(starts.map(_compile_if_missing, [tmp_path / "cache"] * 3))
    assert [path.stat().st_size > 0 for path in found] == [True]
    assert list((tmp_path / "cache").iterdir()) == list(found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo kernels.c: no such option >&2; exit 1", "does not compile them: kernels.c: no such option"),
        ("exit 3", "does not compile them: it says nothing"),
        ("exit 0", "No such file or directory"),
    ],
)
def test_a_compiler_that_fails_is_named(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path, text))
    with pytest.raises(UnavailableError, match=reason):
        _compile_if_missing(tmp_path / "cache")


@pytest.mark.usefixtures("unoptimized")
def test_gcc_is_tried_where_cc_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    Path(compiler(folder, "exit 1")).rename(folder / "cc")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CC", raising=False)
    assert _compile_if_missing(tmp_path / "cache").stat().st_size > 0


def test_products_are_right_with_fewer_threads_than_torch_asks_for() -> None:
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    done = subprocess.run([sys.executable, "-c", PRODUCT], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"2 True\n"), done.stderr


def test_no_compiler_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UnavailableError, match=naming("C compiler", "cc", "gcc")):
        _compile_if_missing(tmp_path / "cache")
    monkeypatch.setenv("CC", "mycc -m64")
    with pytest.raises(UnavailableError, match=naming("C compiler", "mycc")):
        _compile_if_missing(tmp_path / "cache")


def test_a_command_with_an_open_quote_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc '")
    with pytest.raises(UnavailableError, match="CC=gcc ' is no command"):
        _compile_if_missing(tmp_path / "cache")


def test_a_file_that_is_no_library_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "kernels.so").write_bytes(b"no library")
    with pytest.raises(UnavailableError, match=r"kernels\.so cannot be loaded"):
        _load(tmp_path / "kernels.so")


def test_a_slow_compiler_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path, "exec sleep 30"))
    monkeypatch.setattr(library, "_PATIENCE", 0.2)
    with pytest.raises(UnavailableError, match="takes longer than"):
        _compile_if_missing(tmp_path / "cache")


@pytest.mark.parametrize("said", ["flags\t\t: fpu sse4_2 avx", "nothing"])
def test_an_older_processor_is_a_reason(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(said)
    monkeypatch.setattr(processor, "DESCRIPTION", tmp_path / "cpuinfo")
    with pytest.raises(UnfitError, match="processors with AVX2"):
        _compile_if_missing(tmp_path / "cache")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_a_reason(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UnavailableError, match="Permission denied"):
        _compile_if_missing(tmp_path / "cache")


def test_a_folder_that_is_a_file_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(UnavailableError, match="cache"):
        _compile_if_missing(tmp_path / "cache")
