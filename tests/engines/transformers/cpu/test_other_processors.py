"""The kernels of processors with AVX-512, with bfloat16 products or with a tile unit, on any processor."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_touchstone.engines.transformers.cpu.kernels import kernels

_HERE = Path(__file__).parent
_TESTS = ("test_operations.py", "test_steps.py")

_WHAT = """
from pytest_touchstone.engines.transformers.cpu.kernels import kernels
found = kernels()
print(found.panel_width(), found.by_halves, found.by_tiles)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("has", "halves", "tiles"),
    [
        ((), False, False),
        (("-DWITH_HALVES",), True, False),
        (("-DWITH_HALVES", "-DWITH_TILES"), True, True),
    ],
)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.skipif(kernels() is None, reason="there are no kernels on this machine")
def test_the_tests_of_the_kernels_pass_with_emulated_instructions(
    has: tuple[str, ...], halves: bool, tiles: bool, tmp_path: Path
) -> None:
    compiler = ["gcc", "-w", *has, "-include", str(_HERE / "emulated.h")]
    environment = {**os.environ, "CC": shlex.join(compiler), "XDG_CACHE_HOME": str(tmp_path)}

    def done(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
        )

    said = done("-c", _WHAT)
    assert said.stdout.split() == ["32", str(halves), str(tiles)], said.stderr
    found = done("-m", "pytest", "-q", "-p", "no:cacheprovider", *(str(_HERE / name) for name in _TESTS))
    assert found.returncode == 0, found.stdout
