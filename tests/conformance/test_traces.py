"""What is left of a text with a reasoning, and its score, are those of lm-evaluation-harness with ``think_end_token``.

``record_lm_eval_traces.py`` writes them. Two differences are meant: a reasoning that does not end is no answer, where
the harness scores it whole; and white space stays that begins a text without a reasoning, or indents the first line
of an answer, for programs that go on.
"""

from __future__ import annotations

import hashlib
import json

import pytest

from fixtures.build.traces import DELIMITERS, RECORDED, STOPS, Traced, made_traces
from pytest_touchstone.core.reasoning import delimiters_of, without_trace
from pytest_touchstone.core.requests import GenerateAnswer, Generated, earliest_stop
from pytest_touchstone.metrics.math import MathJudge
from tests.conformance.test_verdicts import SCORERS

MADE = list(made_traces())
THEIRS: list[tuple[str, float]] = [tuple(row) for row in json.loads(RECORDED.read_text(encoding="utf-8"))]


def left_of(one: Traced, think_end: str) -> str:
    """The text that is scored."""
    answer = GenerateAnswer((Generated(one.text, "eos", 9),), 3)
    text = without_trace(answer, delimiters_of(think_end)).text
    return text[: earliest_stop(text, STOPS[one.scorer])]


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@pytest.mark.parametrize("named", [True, False], ids=["named", "recognised"])
def test_texts_and_scores_are_those_of_the_reference(named: bool, judge: MathJudge) -> None:
    assert len(MADE) == len(THEIRS) == 500
    known = [begin for begin, _ in DELIMITERS if begin]
    different = []
    compared = 0
    for one, (digest, verdict) in zip(MADE, THEIRS, strict=True):
        if one.open or not (named or one.begin in known):
            continue
        text = left_of(one, one.end if named else "auto")
        compared += 1
        kept = one.end not in one.text or text[:1] != "\n"  # white space that stays
        same = hashed(text) == digest or (kept and hashed(text.lstrip()) == digest)
        if not same or float(SCORERS[one.scorer](one.gold, text, judge)) != verdict:
            different.append((one, text))
    assert not different
    assert compared > (400 if named else 300)


def test_a_reasoning_that_does_not_end_is_no_answer() -> None:
    texts = [
        (left_of(one, one.end), digest) for one, (digest, _) in zip(MADE, THEIRS, strict=True) if one.open
    ]
    assert len(texts) > 30
    assert {text for text, _ in texts} == {""}
    assert sum(digest != hashed("") for _, digest in texts) > 20
