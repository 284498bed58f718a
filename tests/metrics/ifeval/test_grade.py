"""The grade of a text under several instructions, and the share of instructions pooled over prompts."""

from __future__ import annotations

import pytest

from pytest_touchstone.core.grade import told_by
from pytest_touchstone.metrics.ifeval import IFEVAL_METRICS, grade_ifeval, pooled_share, readings
from pytest_touchstone.statistics.intervals import mean_estimate

KINDS = ["punctuation:no_comma", "startend:quotation", "detectable_format:title"]


def test_strict_and_loose_are_scored_by_prompt_and_by_instruction() -> None:
    grade = grade_ifeval(KINDS, [{}, {}, {}], 'Sure, here:\n"<<A>> text"')
    assert tuple(grade.scores) == tuple(sorted(IFEVAL_METRICS, key=lambda name: "loose" in name))
    assert grade.scores["prompt_level_strict_acc"] == 0.0
    assert grade.scores["inst_level_strict_acc"] == pytest.approx(1 / 3)
    assert grade.scores["prompt_level_loose_acc"] == grade.scores["inst_level_loose_acc"] == 1.0
    told = told_by(grade)
    assert told == {"extracted": {"not followed": "punctuation:no_comma, startend:quotation"}, "parts": [3]}


def test_an_empty_text_follows_nothing_and_has_no_answer() -> None:
    grade = grade_ifeval(KINDS[:1], [{}], " \n")
    assert set(grade.scores.values()) == {0.0}
    assert grade.no_answer


def test_the_loose_reading_has_eight_texts() -> None:
    assert readings("a\n*b*\nc") == ["a\n*b*\nc", "*b*\nc", "a\n*b*", "*b*", "a\nb\nc", "b\nc", "a\nb", "b"]


def test_a_pooled_share_weighs_items_by_their_parts() -> None:
    found = pooled_share([(1.0, 1), (0.0, 3), (1.0, 4), (0.5, 2)])
    assert found.value == pytest.approx(0.6)
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < 0.6 < found.high < 1
    even = [(float(number % 3 == 0), 1) for number in range(30)]
    plain = mean_estimate([share for share, _ in even])
    assert pooled_share(even).value == pytest.approx(plain.value)
    assert pooled_share(even).stderr == pytest.approx(plain.stderr)


def test_without_items_or_with_one_there_is_no_interval() -> None:
    assert pooled_share([]).why == "no items were scored"
    assert (pooled_share([(0.5, 2)]).value, pooled_share([(0.5, 2)]).low) == (0.5, None)
