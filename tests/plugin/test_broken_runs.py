"""A run with a broken checkpoint ends with exit code 4 and one line that names the file and the fault, soon."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.breaking import ADAPTERS, FOLDERS, GGUF, LOADED, PT_FILES
from tests.support.project import Project
from tests.support.pt_files import llama_pt
from tests.support.tiny import tiny_adapter

Broken = Callable[[str, str], tuple[Path, tuple[str, ...]]]

SOON = 5.0
"""Seconds."""

CASES = [
    (kind, name)
    for kind, table in (
        ("folder", FOLDERS),
        ("loaded", LOADED),
        ("adapter", ADAPTERS),
        ("pt", PT_FILES),
        ("gguf", GGUF),
    )
    for name in table
]


@pytest.fixture(scope="module")
def lora(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_adapter(tmp_path_factory.mktemp("lora") / "checkpoint-6000", whole)


@pytest.fixture
def broken(whole: Path, request: pytest.FixtureRequest, tmp_path: Path) -> Broken:
    """Makes the broken checkpoint of a case; gives its path and what the line must say."""

    def make(kind: str, name: str) -> tuple[Path, tuple[str, ...]]:
        path = tmp_path / "checkpoint-7"
        if kind == "gguf":
            path = tmp_path / "model.gguf"
            path.write_bytes(GGUF[name])
            return path, ("model.gguf",)
        if kind == "pt":
            path = llama_pt(tmp_path / "checkpoint_best.pt")
            shutil.copy(whole / "tokenizer.json", tmp_path)
            breaking, said = PT_FILES[name]
        elif kind == "adapter":
            path = Path(shutil.copytree(request.getfixturevalue("lora"), tmp_path / "checkpoint-6000"))
            breaking, said = ADAPTERS[name]
        else:
            shutil.copytree(whole, path)
            breaking, said = (FOLDERS if kind == "folder" else LOADED)[name]
        breaking(path)
        return path, (path.name, *said)

    return make


def refused(result: pytest.RunResult, said: tuple[str, ...]) -> None:
    lines = [*result.outlines, *result.errlines]
    assert result.ret == 4, lines
    errors = [line for line in lines if "error:" in line.lower() or line.startswith("ERROR")]
    assert len(errors) == 1, lines
    assert not [line for line in lines if "Traceback" in line or "INTERNALERROR" in line]
    assert not [words for words in said if words not in errors[0]], errors[0]
    assert ";" in errors[0], "it says what to do"


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}: {name}" for kind, name in CASES])
def test_a_broken_checkpoint_ends_the_run_with_one_line(
    kind: str, name: str, broken: Broken, project: Project, tmp_path: Path
) -> None:
    path, said = broken(kind, name)
    began = time.process_time()
    result = project.run(checkpoint=str(path))
    seconds = time.process_time() - began
    refused(result, said)
    assert seconds < SOON
    assert not list(tmp_path.rglob("it-ran"))


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 30


@pytest.mark.parametrize(
    ("kind", "name", "workers"),
    [
        ("loaded", "a tokenizer of negative ids", "0"),  # a panic, which prints past Python's own streams
        pytest.param("folder", "config cut off", "0", marks=pytest.mark.slow),
        pytest.param("loaded", "a tensor is missing", "2", marks=pytest.mark.slow),
        pytest.param("loaded", "a tokenizer of negative ids", "2", marks=pytest.mark.slow),
        pytest.param("folder", "config cut off", "2", marks=pytest.mark.slow),
    ],
    ids=lambda value: value.replace(" ", "-"),
)
def test_so_does_a_run_in_processes_of_its_own(
    kind: str, name: str, workers: str, broken: Broken, project: Project
) -> None:
    path, said = broken(kind, name)
    refused(project.run("-n", workers, checkpoint=str(path), apart=True), said)


def test_a_fault_of_one_of_several_is_told_and_the_others_are_scored(
    whole: Path, broken: Broken, project: Project
) -> None:
    good = shutil.copytree(whole, project.path / "checkpoint-1")
    path, said = broken("loaded", "a tensor is missing")
    result = project.run("--checkpoint", str(path), "--eval-set", "batch_items=2", checkpoint=str(good))
    assert result.ret == 9
    text = " ".join(result.stdout.str().split())
    assert all(part in text for part in said)
    assert "Traceback" not in text
    scored = [one for one in project.summary["results"] if one["checkpoint"] == good.name]
    assert [one["scored"] for one in scored] == [20]
