"""IFEval's rules, beside their verdicts on hard texts, which the conformance kit holds against the reference's."""

from __future__ import annotations

import pytest

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.metrics.ifeval import INSTRUCTIONS, follows, language
from tests.support.places import ROOT
from tests.support.rows import read_jsonl

VERDICTS = ROOT / "fixtures" / "conformance" / "verdicts" / "ifeval_strict.jsonl"


def test_every_kind_has_a_recorded_case_that_follows_it_and_one_that_does_not() -> None:
    cases = [case for case in read_jsonl(VERDICTS) if len(case["gold"]["kinds"]) == 1]
    for held in (0.0, 1.0):
        assert {case["gold"]["kinds"][0] for case in cases if case["verdict"] == held} == INSTRUCTIONS.keys()
    assert len(INSTRUCTIONS) == 25


def test_a_text_has_one_language_whatever_was_asked_before() -> None:
    mixed = "Bonjour my friend, comment are you ce soir? Gut, danke, and you?"
    assert len({language(text) for text in [mixed] * 12}) == 1
    assert language("12 ... 34") is None


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
        ("keywords:rhyme", {}, "'keywords:rhyme' is none of IFEval's 25 kinds"),
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
