"""The sizes of what will be asked are those of first questions; what all share counts once, and nothing is asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.requests import FillMask, Generate, Loglikelihood
from pytest_touchstone.plugin import progress as progress_module
from pytest_touchstone.plugin.progress import STARTED, size_of, spread
from pytest_touchstone.results.live import Workload, rough_tokens
from tests.support.places import ROOT
from tests.support.project import ALONE

SHOTS = "one two three four five six seven eight nine ten. " * 20


def test_few_shot_examples_and_a_question_s_beginning_count_once():
    questions = [
        [Loglikelihood(f"{SHOTS}{word} is", f" {choice}") for choice in ("right", "wrong")]
        for word in ("apple", "berry", "cherry")
    ]
    sizes = size_of(questions)
    assert sizes["shared"] == pytest.approx(rough_tokens(SHOTS), abs=1)
    assert sizes["tokens"] == pytest.approx(2 + 1 + 1 + 2, abs=1)
    alone = size_of(questions[:1])
    assert (alone["shared"], alone["tokens"]) == (0, pytest.approx(rough_tokens(SHOTS) + 6, abs=1))


def test_masked_texts_are_computed_whole():
    questions = [[FillMask(f"{SHOTS} [MASK] {number}")] for number in range(3)]
    assert size_of(questions, apart=True)["shared"] == 0
    assert size_of(questions, apart=True)["tokens"] > rough_tokens(SHOTS)


def test_texts_are_as_many_as_differ_and_a_person_s_limit_goes_before_the_request_s():
    sampled = Generate("a", max_new_tokens=99, temperature=1.0, samples=5)
    assert (size_of([[sampled]])["texts"], size_of([[sampled]])["limit"]) == (5, 99)
    assert (size_of([[Generate("a", max_new_tokens=99, samples=5)]])["texts"]) == 1
    assert size_of([[sampled]], 7)["limit"] == 7


@given(
    st.lists(
        st.lists(st.builds(Loglikelihood, st.text(), st.text(min_size=1)), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    )
)
def test_sizes_are_no_larger_than_all_texts_together(questions):
    sizes = size_of(questions)
    whole = sum(
        rough_tokens(one.context + one.continuation) + 1 for question in questions for one in question
    )
    assert sizes["shared"] + sizes["tokens"] * len(questions) <= whole + 2 * len(questions)
    assert sizes["tokens"] >= 0


@given(st.integers(0, 100))
def test_items_are_spread_evenly(many):
    found = spread(range(many))
    assert len(found) == min(many, STARTED)
    assert len(set(found)) == len(found)


OWN = """
from pathlib import Path
from pytest_touchstone import Loglikelihood, benchmark

@benchmark("own", version=1, rows=[{"q": "1+1="}, {"q": "2+2="}], asks=Loglikelihood, primary="acc")
def test_own(example):
    "Counts its starts."
    with Path("started").open("a") as file:
        file.write("x")
    answer = yield Loglikelihood(example["q"], " 2")
    return {"acc": answer.logprob > 0}
"""


def test_a_run_knows_the_sizes_of_shipped_benchmarks_and_starts_functions_of_others_once(
    pytester, monkeypatch
):
    loads: list[Workload] = []
    monkeypatch.setattr(progress_module, "write_workload", lambda _, load: loads.append(load))
    (pytester.path / "test_own.py").write_text(OWN)
    shipped = str(ROOT / "evals" / "test_winogrande.py")
    pytester.runpytest(shipped, "test_own.py", "--checkpoint", "fake:causal", "--eval-limit", "4", *ALONE)
    (load,) = loads
    sizes = {part.benchmark: part for part in load.parts}
    known = sizes["winogrande"]
    assert (known.items, known.tokens is None) == (4, False)
    assert (sizes["own"].items, sizes["own"].tokens) == (2, None)
    assert (pytester.path / "started").read_text() == "xx"
