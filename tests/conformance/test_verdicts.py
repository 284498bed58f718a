"""Our scorers give the recorded verdicts: ``record_lm_eval.py`` and ``record_evalplus.py`` write them.

``fixtures/conformance/verdicts/SCORER.jsonl`` has one case a line: ``gold``, ``output``, the ``verdict`` and ``why``
the case is there. Verdicts are those of lm-evaluation-harness 0.4.13, for ``plus_rules`` those of EvalPlus 0.3.1, and
for ``gsm8k_number``, a rule of ours, by hand. ``differences.jsonl`` lists the cases where we differ on purpose:
``scorer``, ``gold``, ``output``, ``reference``, ``ours``, ``why``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from pytest_touchstone.metrics import bits_per_byte, true_share
from pytest_touchstone.metrics.bbh import answer_of, flexible_answer, is_same_answer
from pytest_touchstone.metrics.code import plus_rules
from pytest_touchstone.metrics.drop import grade_drop
from pytest_touchstone.metrics.gsm8k import grade_gsm8k
from pytest_touchstone.metrics.ifeval import grade_ifeval
from pytest_touchstone.metrics.macro_f1 import macro_f1
from pytest_touchstone.metrics.math import MathJudge, hendrycks_exact, math_verify, minerva_exact
from pytest_touchstone.metrics.mmlu import answer_letter
from tests.support.places import ROOT
from tests.support.rows import read_jsonl

FOLDER = ROOT / "fixtures" / "conformance"
Scorer = Callable[[Any, Any, MathJudge], bool | float]

SCORERS: dict[str, Scorer] = {
    "gsm8k_strict": lambda gold, output, _: grade_gsm8k(gold, output).scores["exact_match_strict"],
    "gsm8k_flexible": lambda gold, output, _: grade_gsm8k(gold, output).scores["exact_match_flexible"],
    "gsm8k_number": lambda gold, output, _: grade_gsm8k(gold, output).scores["exact_match_number"],
    "hendrycks_exact": lambda gold, output, _: hendrycks_exact(gold, output).correct,
    "minerva_exact": lambda gold, output, judge: minerva_exact(gold, output, judge).correct,
    "math_verify": lambda gold, output, judge: math_verify(gold, output, judge).correct,
    "drop_f1": lambda gold, output, _: grade_drop(gold, output).scores["f1"],
    "drop_em": lambda gold, output, _: grade_drop(gold, output).scores["em"],
    "ifeval_strict": lambda gold, output, _: followed(gold, output, "inst_level_strict_acc"),
    "ifeval_loose": lambda gold, output, _: followed(gold, output, "inst_level_loose_acc"),
    "bbh_exact": lambda gold, output, _: answer_of(output) == gold,
    "bbh_flexible": lambda gold, output, _: flexible(gold, output),
    "macro_f1": lambda gold, output, _: round(f1_of(gold, output), 12),
    "mmlu_pro_letter": lambda gold, output, _: answer_letter(output) == gold,
    "truthfulqa_mc2": lambda gold, output, _: round(true_share(output, gold), 12),
    "bits_per_byte": lambda gold, output, _: round(bits_per_byte(output, gold), 12),
    "plus_rules": lambda gold, output, _: agrees(gold, output),
}


def followed(gold: dict[str, Any], output: str, metric: str) -> float:
    return grade_ifeval(gold["kinds"], gold["values"], output).scores[metric]


def flexible(gold: dict[str, str], output: str) -> bool:
    found = flexible_answer(gold["task"], gold["input"], output)
    return found is not None and is_same_answer(found, gold["target"])


def f1_of(gold: list[int], output: list[int]) -> float:
    found = macro_f1([(0.0, right, chosen) for right, chosen in zip(gold, output, strict=True)])
    assert found.value is not None
    return found.value


def agrees(gold: dict[str, Any], output: list[str]) -> bool:
    """Whether a program with these outputs is right; all values are written as Python has them."""
    found = plus_rules.FOUND
    outputs, expected, inputs = (
        [eval(text, {"nan": float("nan"), "inf": math.inf}) for text in texts]
        for texts in (output, gold["expected"], gold["inputs"])
    )
    if gold["entry_point"] in found:  # the reference says whether there is an output, we keep the output
        expected = [one or None for one in expected]
    facts = {"limits": [1.0] * len(inputs), "floats": [plus_rules.floats(one) for one in expected]}
    task = {"name": gold["entry_point"], "base": len(inputs), "atol": gold["atol"]}
    left = iter(outputs)
    try:
        plus_rules.judge(lambda *_: next(left), [*expected, *inputs, facts], task, [])
    except Exception:  # of any kind, as for a program that is judged
        return False
    return True


@pytest.mark.parametrize("name", SCORERS)
def test_the_verdict_is_the_references(name: str, judge: MathJudge) -> None:
    wrong = {
        (case["why"], json.dumps(case["output"]), ours)
        for case in read_jsonl(FOLDER / "verdicts" / f"{name}.jsonl")
        if (ours := SCORERS[name](case["gold"], case["output"], judge)) != case["verdict"]
    }
    assert not wrong


@pytest.mark.parametrize("case", read_jsonl(FOLDER / "differences.jsonl"), ids=lambda case: case["why"][:60])
def test_where_we_differ_from_the_reference_is_written_down(case: dict[str, Any], judge: MathJudge) -> None:
    assert case["ours"] != case["reference"]
    assert SCORERS[case["scorer"]](case["gold"], case["output"], judge) == case["ours"]


@pytest.mark.parametrize("name", SCORERS)
def test_at_least_forty_cases_and_both_verdicts_are_recorded(name: str) -> None:
    cases = read_jsonl(FOLDER / "verdicts" / f"{name}.jsonl")
    assert len(cases) >= 40
    assert {0.0, 1.0} <= {float(case["verdict"]) for case in cases}
    assert len({json.dumps([case["gold"], case["output"]]) for case in cases}) == len(cases)


def test_every_file_of_verdicts_belongs_to_a_scorer() -> None:
    assert {path.stem for path in (FOLDER / "verdicts").iterdir()} == set(SCORERS)
