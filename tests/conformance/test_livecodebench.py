"""Programs have the verdicts of LiveCodeBench's checker: ``record_livecodebench.py`` writes them.

Where ours is meant to be another, the case has it as ``ours``, and ``why`` says what the reference's process does: it
runs the program beside the expected values, with a standard input and output of its own making.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from tests.support.livecodebench import request
from tests.support.places import ROOT
from tests.support.rows import read_jsonl
from tests.support.sandbox_here import opened_here

CASES = read_jsonl(ROOT / "fixtures" / "conformance" / "livecodebench.jsonl")

SECONDS = 0.3
"""The limit of programs that never end."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with opened_here(workers=2) as opened:
        yield opened


def test_every_verdict_is_the_references_or_a_difference_on_record(sandbox: Sandbox) -> None:
    asked = [
        request(case["program"], case["tests"], case["func_name"], SECONDS if "seconds" in case else None)
        for case in CASES
    ]
    outcomes = [future.result().outcome for future in map(sandbox.submit, asked)]
    verdicts = [case.get("ours", case["passed"]) for case in CASES]
    differing = [
        (case["why"], outcome)
        for case, outcome, verdict in zip(CASES, outcomes, verdicts, strict=True)
        if (outcome == "passed") != verdict or outcome == "fault"
    ]
    assert differing == []


def test_both_kinds_of_programs_and_both_verdicts_are_recorded() -> None:
    for function in (True, False):
        cases = [case for case in CASES if bool(case["func_name"]) == function]
        assert len(cases) >= 60
        assert {case["passed"] for case in cases} == {True, False}
    assert len({case["why"] for case in CASES}) == len(CASES)
    assert all(case["ours"] != case["passed"] for case in CASES if "ours" in case)
