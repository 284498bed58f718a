"""A score depends on checkpoint, data and settings: never on workers, batches, batch sizes, order or selection."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.project import Project
from tests.support.tiny import tiny_causal, tiny_masked

SHUFFLE = """
import random
def pytest_collection_modifyitems(items):
    random.Random(7).shuffle(items)
"""


def close(one: dict[str, dict[str, float]], other: dict[str, dict[str, float]]) -> bool:
    """Whether right and wrong are the same to the last item, and margins within 1e-4."""
    return one.keys() == other.keys() and all(
        one[key]["acc"] == other[key]["acc"] and abs(one[key]["margin"] - other[key]["margin"]) < 1e-4
        for key in one
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--eval-set", "batch_items=1"],
        ["--eval-set", "batch_items=7"],
        ["-n", "2", "--eval-set", "batch_items=3"],
        ["-n", "1"],
        ["-n", "0"],
        ["-p", "no:xdist"],
    ],
    ids=" ".join,
)
def test_scores_do_not_depend_on_workers_or_units(project: Project, arguments: list[str]) -> None:
    assert project.run().ret == 0
    plain = project.scores()
    result = project.run(*arguments)
    assert result.ret == 0
    assert project.scores() == plain
    assert len(plain) == 20


def test_scores_do_not_depend_on_order(project: Project) -> None:
    project.run("--eval-shots", "3")
    plain = project.scores()
    (project.path / "conftest.py").write_text(SHUFFLE)
    for arguments in ([], ["-n", "2", "--eval-set", "batch_items=4"]):
        project.run("--eval-shots", "3", *arguments)
        assert project.scores() == plain


def test_two_halves_give_what_the_whole_gives(project: Project) -> None:
    project.run("--eval-shots", "2")
    plain = project.scores()
    odd = " or ".join(f"sums/{n}]" for n in range(1, 20, 2))
    project.run("--eval-shots", "2", "-k", odd)
    first = project.scores()
    project.run("--eval-shots", "2", "-k", f"not ({odd})")
    second = project.scores()
    assert len(first) == len(second) == 10
    assert {**first, **second} == plain


FILL = """
from pytest_touchstone import FillMask, benchmark


@benchmark(name="sums", version=1, data="sums/test", asks=FillMask, primary="acc")
def test_sums(example):
    answer = yield FillMask(example["q"] + " [MASK] " + "and more " * example["n"], top_k=5)
    best, second = answer.candidates[:2]
    return {"acc": len(best.text) > 1, "margin": best.logprob - second.logprob}
"""


SAY = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="say", version=1, data="sums/test", asks=Generate, primary="acc")
def test_say(example):
    first = yield Generate("and more " * example["n"] + example["q"], stop=(".",), max_new_tokens=2 + example["n"])
    text = first.samples[0].text
    then = yield Generate(text + example["q"], max_new_tokens=8, temperature=1.0, samples=3, seed=example["n"])
    return {"acc": len(text), "margin": sum(map(ord, "".join(one.text for one in then.samples)))}
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_a_real_model_gives_the_same_scores_however_it_is_run(
    project: Project, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / kind
    (tiny_masked if kind == "masked" else tiny_causal)(folder)
    if kind == "masked":
        (project.path / "test_sums.py").write_text(FILL)
    else:
        (project.path / "test_say.py").write_text(SAY)
    assert project.run("--eval-batch", "1", checkpoint=str(folder)).ret == 0
    plain = project.scores()
    assert len(plain) == (20 if kind == "masked" else 40)
    (project.path / "conftest.py").write_text(SHUFFLE)
    for arguments in (["--eval-batch", "32"], ["-n", "2"], ["--eval-set", "batch_items=5"]):
        result = project.run(*arguments, checkpoint=str(folder))
        assert result.ret == 0
        assert close(project.scores(), plain), arguments
