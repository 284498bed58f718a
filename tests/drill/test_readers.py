"""Whatever a file holds, it is read, or refused in one line, and what is read can be used."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings

from pytest_touchstone.checkpoints.formats import formats
from pytest_touchstone.compare.formats import result_formats
from pytest_touchstone.core.errors import HarnessError
from tests.drill import opened
from tests.drill.conftest import Drill
from tests.drill.models import MODELS
from tests.drill.mutations import damaged, made_of
from tests.drill.readers import ALONE, CHECKPOINTS, READERS, RESULTS, Reader, check_harmless, check_refusal


@pytest.fixture(autouse=True)
def shown_plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wide terminal, and a project of its own."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)


def trial(reader: Reader, path: Path) -> bool:
    """Whether it is accepted; it is refused otherwise, as it should be."""
    try:
        reader.read(path)
    except HarnessError as error:
        if not reader.raises:
            raise
        check_refusal(error)
        return False
    return True


def tried(reader: Reader, folder: Path, seeds: range, logged: Callable[[], str]) -> None:
    folder.mkdir()
    path = reader.example(folder)
    reader.read(path)  # the example itself is right
    whole = path.read_bytes()
    for seed in seeds:
        content = damaged(whole, random.Random(seed))
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        try:
            trial(reader, path)
        except Exception as error:
            kept = folder.parent / f"damaged-{path.name}"
            shutil.copy(path, kept)
            raise AssertionError(
                f"{reader.name}: {type(error).__name__} by --drill-seed {seed}; the file is {kept}"
            ) from error
        check_harmless(logged())


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    name: str, drill: Drill, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seeds = drill.seeds(1, 60)
    tried(READERS[name], tmp_path / "given", seeds, lambda: caplog.text)
    drill.figure("damaged files read or refused", len(seeds))
    drill.figure("readers of files", 1)


@pytest.mark.parametrize("reader", ALONE, ids=lambda one: one.name)
def test_whatever_a_file_is_made_of_it_is_a_value_or_one_line(
    reader: Reader, drill: Drill, tmp_path: Path
) -> None:
    path = reader.example(tmp_path)
    reader.read(path)
    # Few are the same ones for every change; the many are others each time, and say how they are had again.
    few_or_many = settings(max_examples=60 if drill.whole else 6, derandomize=not drill.whole, database=None)

    @few_or_many
    @given(made_of(path.read_bytes()))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        trial(reader, path)
        drill.figure("files by hypothesis", 1)

    check()


@pytest.mark.slow
def test_every_form_of_checkpoints_and_results_has_a_reader(tmp_path: Path) -> None:
    made: list[Path] = []
    for number, reader in enumerate((*CHECKPOINTS, *RESULTS)):
        (tmp_path / str(number)).mkdir()
        path = reader.example(tmp_path / str(number))
        made += [path, *(one for one in path.parents if tmp_path in one.parents)]
    for form in formats():
        assert form.name == "fake" or any(form.detect(path) for path in made), form.name
    for results in result_formats():
        assert any(results.sniff(path) for path in made), results.name


READ_ELSEWHERE: Final = {
    "compare/formats/lm_eval.py:samples_of": "reads samples that were read before",
    "core/dataset.py:load_own_rows": "reads rows beside the module of a benchmark",
    "checkpoints/formats/weights.py:_sample": "compares weights that lie beside those that are read",
    "reports/files.py:_is_foreign": "looks whether a file may be written over",
    "results/item_view.py:data_rows": "reads rows for a page of their items",
    "results/run_directory.py:is_claimed": "looks whether a folder has a run",
    "results/reuse.py:_completed": "reads the summary of an earlier run",
    "results/reuse.py:_earlier": "reads run.json of an earlier run",
}
"""What reads a form of file that has a reader here, where only a run reads it."""


@pytest.mark.slow
def test_every_function_that_reads_a_file_is_run_by_a_reader(tmp_path: Path) -> None:
    readers = (*READERS.values(), *MODELS.values(), *ALONE)

    def read(number: int) -> None:
        (tmp_path / str(number)).mkdir()
        readers[number].read(readers[number].example(tmp_path / str(number)))

    run = opened.run((partial(read, number) for number in range(len(readers))), tmp_path / "told")
    assert opened.written() - run == set(READ_ELSEWHERE)
