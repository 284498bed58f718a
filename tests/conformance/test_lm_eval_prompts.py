"""``fewshot=lm-eval`` asks what lm-evaluation-harness 0.4.13 asks, by bytes: ``record_lm_eval_prompts.py`` has
recorded it, and this says which prompts differ.

    python -m tests.conformance.test_lm_eval_prompts DIR FILE     the same for the data and the record of others
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.build.record_lm_eval_prompts import (
    MADE_UP,
    RECORDED,
    RECORDED_OF_MADE_UP,
    TASKS,
    data_folder,
    listed,
    sha256,
)
from pytest_touchstone import Generate, Loglikelihood
from pytest_touchstone.plugin.collection import LoadedBenchmark, load_benchmark
from tests.conformance.kit import SAMPLING, Kit, kits
from tests.support.places import ROOT

KITS = {kit.spec.name: kit for kit in kits()}
KNOWN: dict[str, dict[str, str]] = json.loads(RECORDED.read_text(encoding="utf-8"))
CASES = [(name, form) for name, forms in KNOWN.items() for form in forms]
OF_MADE_UP: dict[str, dict[str, str]] = json.loads(RECORDED_OF_MADE_UP.read_text(encoding="utf-8"))
CASES_OF_MADE_UP = [(name, form) for name, forms in OF_MADE_UP.items() for form in forms]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data_folder(ROOT / "fixtures" / "data", tmp_path_factory.mktemp("data"))


@functools.cache
def loaded_from(data: Path, name: str, shots: int) -> LoadedBenchmark:
    """The benchmark with its rows and examples; once for all its groups."""
    return load_benchmark(KITS[name].spec, str(data), shots, SAMPLING, draw="lm-eval")


def ours(kit: Kit, name: str, form: str, data: Path) -> Iterator[tuple[str, str]]:
    """The id of each row, and the hash of what is asked about it."""
    group = name.partition("/")[2]
    shots, _, chat = form.partition(" ")
    loaded = loaded_from(data, kit.spec.name, int(shots))
    for example in loaded.dataset.examples:
        if example.group == group or not group:
            asked = [_as_recorded(one, chat=bool(chat)) for one in kit.begin(example, loaded)[1]]
            yield example.id, sha256(listed(TASKS[name], asked))


def _as_recorded(request: Any, *, chat: bool) -> Any:
    if isinstance(request, Loglikelihood):
        return [request.context, request.continuation]
    assert isinstance(request, Generate)
    return [{"role": turn.role, "content": turn.text} for turn in request.turns] if chat else request.prompt


def different(name: str, form: str, recorded: str, data: Path) -> list[str]:
    """The rows that are asked about in other words than the reference's."""
    found = list(ours(KITS[name.partition("/")[0]], name, form, data))
    return [row for (row, mine), theirs in zip(found, recorded.split(), strict=True) if mine != theirs]


@pytest.mark.parametrize(("name", "form"), CASES, ids=[" ".join(case) for case in CASES])
def test_every_prompt_is_the_references(name: str, form: str, folder: Path) -> None:
    assert different(name, form, KNOWN[name][form], folder) == []


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = data_folder(MADE_UP, tmp_path_factory.mktemp("made_up"))
    KITS.update({kit.spec.name: kit for kit in kits(str(data))})
    return data


@pytest.mark.parametrize(
    ("name", "form"), CASES_OF_MADE_UP, ids=[" ".join(case) for case in CASES_OF_MADE_UP]
)
def test_every_prompt_of_made_up_rows_is_the_references(name: str, form: str, made_up: Path) -> None:
    """Of benchmarks whose rows are not shipped."""
    assert different(name, form, OF_MADE_UP[name][form], made_up) == []


def main() -> None:
    """Prints how many prompts differ, by task and number of shots."""
    with tempfile.TemporaryDirectory() as folder:
        data = data_folder(Path(sys.argv[1]), Path(folder))
        KITS.update({kit.spec.name: kit for kit in kits(str(data))})
        for name, forms in json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")).items():
            for form, recorded in forms.items():
                wrong = different(name, form, recorded, data)
                print(
                    f"{name:40} {form:8} {len(recorded.split()):5} prompts, {len(wrong)} differ {wrong[:3]}"
                )


if __name__ == "__main__":
    main()
