"""Composites: the published formula, two names that never mix, and nothing without all parts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.composite import (
    ATTRIBUTE,
    Composite,
    WeightedMetric,
    composite,
    composite_value,
    composites_from_plain,
    missing_parts,
    parse_composite,
    project_composites,
    unique_composites,
)
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.results.store_entry import DEFAULT_COMPOSITES
from tests.support.lines import naming

SCORE, SCORE_WIKI = DEFAULT_COMPOSITES
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


def test_a_name_has_one_formula() -> None:
    assert unique_composites([*DEFAULT_COMPOSITES, *DEFAULT_COMPOSITES]) == list(DEFAULT_COMPOSITES)
    with pytest.raises(BenchmarkError, match=naming("'score'", SCORE.formula, "1 a:acc", "rename")):
        unique_composites([SCORE, parse_composite("score", {"a:acc": 1}, "composite")])


def test_a_declared_composite_is_found_in_the_module_that_declares_it() -> None:
    module = {"composite": composite}
    exec('composite("mix", {"a:acc": 0.5, "b:f1": 0.5})', module)
    assert [one.formula for one in module[ATTRIBUTE]] == ["0.5 a:acc + 0.5 b:f1"]  # type: ignore[attr-defined]
    assert ATTRIBUTE not in globals()


def test_a_composite_survives_its_plain_form() -> None:
    assert composites_from_plain([one.plain() for one in (*DEFAULT_COMPOSITES, SCORE)]) == list(
        DEFAULT_COMPOSITES
    )


def test_a_project_declares_composites_in_its_pyproject(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    assert project_composites(file) == []
    file.write_text('[tool.touchstone.composites]\nmix = { "a:acc" = 0.25, "b:f1" = 0.75 }\n')
    assert [one.formula for one in project_composites(file)] == ["0.25 a:acc + 0.75 b:f1"]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("0.5", "are no parts"),
        ("{}", "are no parts"),
        ('{ "acc" = 1.0 }', "'acc' names no metric; write benchmark:metric"),
        ('{ "a:acc" = "1" }', "the weight of a:acc is '1'"),
        ('{ "a:acc" = 0.5 }', "must be positive and add up to 1"),
    ],
)
def test_a_wrong_composite_is_named(tmp_path: Path, parts: str, message: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(f"[tool.touchstone.composites]\nmix = {parts}\n")
    with pytest.raises(BenchmarkError, match="mix") as caught:
        project_composites(file)
    assert message in str(caught.value)


def test_a_part_without_a_value_is_a_missing_part() -> None:
    found: dict[tuple[str, str], float | None] = {**FOUND, ("real_coref", "real@5"): None}
    assert composite_value(SCORE, found) is None
    assert missing_parts(SCORE, found) == ["real_coref:real@5"]


@pytest.mark.parametrize("weights", [(0.5, 0.4), (1.5, -0.5), (1.0, 0.0), ()])
def test_weights_that_are_no_weighted_mean_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(BenchmarkError, match="add up to 1"):
        Composite(
            "x", tuple(WeightedMetric(weight, "b", f"m{place}") for place, weight in enumerate(weights))
        )


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_a_composite_of_shares_is_a_share(shares: list[float]) -> None:
    value = composite_value(SCORE, dict(zip(FOUND, shares, strict=True)))
    assert value is not None
    assert min(shares) - 1e-12 <= value <= max(shares) + 1e-12
    assert math.isfinite(value)
