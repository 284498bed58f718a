"""The grade of a text under several instructions, and the share of instructions pooled over prompts.

IFEval's rules, beside their verdicts on hard texts, which the conformance kit holds against the reference's.
"""

from __future__ import annotations

import pytest

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.grade import grade_details
from pytest_touchstone.metrics.ifeval import (
    IFEVAL_METRICS,
    INSTRUCTIONS,
    detect_language,
    follows,
    grade_ifeval,
    loose_readings,
    pooled_share,
)
from pytest_touchstone.statistics.intervals import mean_estimate
from tests.support.places import ROOT
from tests.support.rows import read_jsonl

KINDS = ["punctuation:no_comma", "startend:quotation", "detectable_format:title"]


def test_strict_and_loose_are_scored_by_prompt_and_by_instruction() -> None:
    grade = grade_ifeval(KINDS, [{}, {}, {}], 'Sure, here:\n"<<A>> text"')
    assert tuple(grade.scores) == tuple(sorted(IFEVAL_METRICS, key=lambda name: "loose" in name))
    assert grade.scores["prompt_level_strict_acc"] == 0.0
    assert grade.scores["inst_level_strict_acc"] == pytest.approx(1 / 3)
    assert grade.scores["prompt_level_loose_acc"] == grade.scores["inst_level_loose_acc"] == 1.0
    told = grade_details(grade)
    assert told == {"extracted": {"not followed": "punctuation:no_comma, startend:quotation"}, "parts": [3]}


def test_an_empty_text_follows_nothing_and_has_no_answer() -> None:
    grade = grade_ifeval(KINDS[:1], [{}], " \n")
    assert set(grade.scores.values()) == {0.0}
    assert grade.no_answer


def test_the_loose_reading_has_eight_texts() -> None:
    assert loose_readings("a\n*b*\nc") == [
        "a\n*b*\nc",
        "*b*\nc",
        "a\n*b*",
        "*b*",
        "a\nb\nc",
        "b\nc",
        "a\nb",
        "b",
    ]


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


VERDICTS = ROOT / "fixtures" / "conformance" / "verdicts" / "ifeval_strict.jsonl"


def test_every_kind_has_a_recorded_case_that_follows_it_and_one_that_does_not() -> None:
    cases = [case for case in read_jsonl(VERDICTS) if len(case["gold"]["kinds"]) == 1]
    for held in (0.0, 1.0):
        assert {case["gold"]["kinds"][0] for case in cases if case["verdict"] == held} == INSTRUCTIONS.keys()
    assert len(INSTRUCTIONS) == 25


def test_a_text_has_one_language_whatever_was_asked_before() -> None:
    mixed = "Bonjour my friend, comment are you ce soir? Gut, danke, and you?"
    assert len({detect_language(text) for text in [mixed] * 12}) == 1
    assert detect_language("12 ... 34") is None


def test_a_letter_that_is_none_is_counted_as_the_sign_that_it_is() -> None:
    values = {"letter": "#", "let_frequency": 2, "let_relation": "at least"}
    assert follows("keywords:letter_frequency", values, "# one\n# two")
    assert not follows("keywords:letter_frequency", values, "# one, and eeeee")


def test_counts_may_be_floats_and_null_values_do_not_count() -> None:
    values = {"num_words": 2.0, "relation": "at least", "keywords": None}
    assert follows("length_constraints:number_words", values, "two words")


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("keywords:rhyme", {}, "'keywords:rhyme' is none of the 25 kinds"),
        (
            "keywords:existence",
            {"keywords": None},
            "an instruction keywords:existence has no value 'keywords'",
        ),
        (
            "length_constraints:number_words",
            {"num_words": 3, "relation": "about"},
            "relation 'about': expected 'at least' or 'less than'",
        ),
    ],
)
def test_what_cannot_be_checked_is_named(kind: str, values: dict[str, object], said: str) -> None:
    with pytest.raises(BenchmarkError, match=said):
        follows(kind, values, "a text")
