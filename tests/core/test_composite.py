"""Composites: the published formula, two names that never mix, and nothing without all parts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.composite import COMPOSITES, Composite, Part, composite_value, missing_parts, weighted_parts
from harness.core.errors import BenchmarkError

SCORE, SCORE_WIKI = COMPOSITES
FOUND = {("real_coref", "real@1"): 0.6604, ("real_coref", "real@5"): 0.8, ("ko_lambada", "lambada@1"): 0.5}


def test_the_score_follows_its_formula() -> None:
    assert SCORE.name == "score"
    assert SCORE.formula == "0.4 real_coref:real@1 + 0.3 real_coref:real@5 + 0.3 ko_lambada:lambada@1"
    assert composite_value(SCORE, FOUND) == pytest.approx(0.4 * 0.6604 + 0.3 * 0.8 + 0.3 * 0.5, abs=1e-15)


def test_the_wikipedia_form_has_its_own_name_and_never_takes_the_other_part() -> None:
    assert SCORE_WIKI.name == "score_wiki"
    assert composite_value(SCORE_WIKI, FOUND) is None
    assert missing_parts(SCORE_WIKI, FOUND) == ["ko_lambada_wiki:lambada@1"]
    wiki = {**FOUND, ("ko_lambada_wiki", "lambada@1"): 0.1}
    assert composite_value(SCORE_WIKI, wiki) == pytest.approx(0.4 * 0.6604 + 0.3 * 0.8 + 0.3 * 0.1, abs=1e-15)
    assert composite_value(SCORE, wiki) == composite_value(SCORE, FOUND)


def test_names_are_unique() -> None:
    assert len({composite.name for composite in COMPOSITES}) == len(COMPOSITES)


def test_a_part_without_a_value_is_a_missing_part() -> None:
    found: dict[tuple[str, str], float | None] = {**FOUND, ("real_coref", "real@5"): None}
    assert composite_value(SCORE, found) is None
    assert weighted_parts(SCORE, found) is None
    assert missing_parts(SCORE, found) == ["real_coref:real@5"]


def test_parts_come_with_their_weights_in_order() -> None:
    assert weighted_parts(SCORE, FOUND) == [(0.4, 0.6604), (0.3, 0.8), (0.3, 0.5)]


@pytest.mark.parametrize("weights", [(0.5, 0.4), (1.5, -0.5), (1.0, 0.0), ()])
def test_weights_that_are_no_weighted_mean_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(BenchmarkError, match="add up to 1"):
        Composite("x", tuple(Part(weight, "b", f"m{place}") for place, weight in enumerate(weights)))


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_a_composite_of_shares_is_a_share(shares: list[float]) -> None:
    value = composite_value(SCORE, dict(zip(FOUND, shares, strict=True)))
    assert value is not None
    assert min(shares) - 1e-12 <= value <= max(shares) + 1e-12
    assert math.isfinite(value)
