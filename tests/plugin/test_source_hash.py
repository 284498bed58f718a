"""What a benchmark's code hash is over: its own file wherever it lies, and the modules that ask and score."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.files import load_module
from pytest_touchstone.plugin.source_hash import benchmark_code_hash

TEXT = """
from pytest_touchstone import Loglikelihood, benchmark

@benchmark("x", version=1, rows=[{{"q": "1"}}], asks=Loglikelihood, primary="acc")
def test_x(example):
    answer = yield Loglikelihood(example["q"], " 1")
    return {{"acc": answer.logprob > {bound}}}
"""


def function(folder: Path, bound: int) -> Callable[..., Any]:
    """The benchmark of a file in this folder, with this bound in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test_x.py").write_text(TEXT.format(bound=bound), encoding="utf-8")
    found: Callable[..., Any] = load_module(folder / "test_x.py", "touchstone_hashed").test_x
    return found


@pytest.mark.parametrize("place", ["project", "lib/site-packages/pytest_touchstone/evals"])
def test_an_edit_of_a_benchmarks_file_changes_its_hash_wherever_it_lies(tmp_path: Path, place: str) -> None:
    root, folder = tmp_path / "project", tmp_path / place
    first = benchmark_code_hash([function(folder, 1)], root)
    assert benchmark_code_hash([function(folder, 1)], root) == first
    assert benchmark_code_hash([function(folder, 2)], root) != first


def test_of_other_functions_only_the_projects_own_files_count(tmp_path: Path) -> None:
    benchmark = function(tmp_path / "project", 1)
    alone = benchmark_code_hash([benchmark], tmp_path / "project")
    assert benchmark_code_hash([benchmark, pytest.raises], tmp_path / "project") == alone
