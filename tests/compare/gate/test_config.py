"""A gate's configuration is read as a person means it, and what is not known is refused with the nearest name."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.gate.config import (
    BenchmarkRules,
    Floor,
    GateConfig,
    check_names,
    check_plan,
    parse_floor,
    read_gate_config,
    validate_floors,
)
from pytest_touchstone.core.aggregation import STANDARD, mean
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.results.store_entry import DEFAULT_COMPOSITES, StoredResult
from tests.support.entries import entry
from tests.support.summaries import declaration

WHOLE = """
mode = "strict"
baseline = "main"
metric = "score"
margin = 0.02
alpha = 0.1

[benchmarks.real_coref]
metric = "real@5"
margin = 0
max_drop = 0.05
floors = ["real@1 >= 0.60", "reachable>0.9"]
"""


def plan(tmp_path: Path, text: str, name: str = "gate.toml") -> GateConfig:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_gate_config(path, required=True)


EXPECTED = GateConfig(
    mode="strict",
    baseline="main",
    metrics=("score",),
    margin=0.02,
    alpha=0.1,
    benchmarks={
        "real_coref": BenchmarkRules(
            metrics=("real@5",),
            margin=0.0,
            max_drop=0.05,
            floors=(Floor("real@1", ">=", 0.6), Floor("reachable", ">", 0.9)),
        )
    },
)


def test_every_key_is_read_from_a_file_of_its_own(tmp_path: Path) -> None:
    assert plan(tmp_path, WHOLE) == EXPECTED


def test_the_same_tables_stand_in_a_pyproject(tmp_path: Path) -> None:
    text = "[tool.touchstone.gate]" + WHOLE.replace("[benchmarks", "[tool.touchstone.gate.benchmarks")
    assert plan(tmp_path, text, "pyproject.toml") == EXPECTED
    assert plan(tmp_path, text) == EXPECTED


def test_a_pyproject_without_the_table_asks_for_nothing_special(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert read_gate_config(tmp_path / "pyproject.toml", required=False) == GateConfig()
    assert read_gate_config(tmp_path / "none" / "pyproject.toml", required=False) == GateConfig()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("margn = 0.1", r"gate\.toml: unknown key 'margn'; did you mean 'margin'\? known are mode, "),
        ("[benchmarks.b]\nfloor = []", r"benchmarks\.b: unknown key 'floor'; did you mean 'floors'"),
        ("mode = 'hard'", r"'hard' is no mode; use plain or strict"),
        ("margin = 1", r"margin is 1; give a share below 1: 0\.01 is one point"),
        ("margin = '1 %'", r"margin is '1 %'; give a number"),
        ("margin = true", r"margin is True; give a number"),
        ("alpha = 0", r"alpha is 0; give a share"),
        ("metric = ''", r"metric is ''; give a text"),
        ("allow = ['shots']", r"allow can only be said on the command line, by --eval-baseline-allow NAME"),
        ("benchmarks = 3", r"benchmarks is 3; give a table for each"),
        ("[benchmarks]\nb = 3", r"give a table for each: \[tool\.touchstone\.gate\.benchmarks\.NAME\]"),
        ("[benchmarks.b]\nfloors = ['0.6']", r"benchmarks\.b: '0\.6' is no floor; write METRIC >= NUMBER"),
        ("[benchmarks.b]\nfloors = ['acc >= 60 %']", r"'acc >= 60 %' is no floor"),
        ("[benchmarks.b]\nmax_drop = 5", r"max_drop is 5; give a share"),
        ("[tool.touchstone]\ngate = 3", r"gate of \[tool\.touchstone\.gate\] is no table"),
        ("[tool.other]\nx = 1", r"gate\.toml has no \[tool\.touchstone\.gate\]; give a file"),
        ("margin 0.1", r"gate\.toml is no TOML: "),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(GateError, match=words) as refused:
        plan(tmp_path, text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "share"),
    [("12%", 0.12), ("1.5%", 0.015), ("0.5%", 0.005), ("7%", 0.07), ("29%", 0.29), ("1.1%", 0.011)],
)
def test_shares_may_be_written_in_per_cent_everywhere(tmp_path: Path, text: str, share: float) -> None:
    found = plan(
        tmp_path,
        f"margin = '{text}'\nalpha = '{text}'\n[benchmarks.b]\nmargin = '{text}'\nmax_drop = '{text}'\n"
        f"floors = ['acc >= {text}']",
    )
    own = found.rules_of("b")
    assert (found.margin, found.alpha, own.margin, own.max_drop) == (share,) * 4
    assert own.floors == (Floor("acc", ">=", share, percent=True),)
    assert found == plan(
        tmp_path,
        f"margin = {share}\nalpha = {share}\n[benchmarks.b]\nmargin = {share}\nmax_drop = {share}\n"
        f"floors = ['acc >= {text}']",
    )


@pytest.mark.parametrize("key", ["margin", "max_drop"])
@pytest.mark.parametrize(
    "value",
    ["'sixty'", "'60 %'", "-5", "'-5%'", "nan", "inf", "true", "'0.05'", "'%'", "'100%'", "12", "'nan%'"],
)
def test_what_is_no_share_is_refused_with_key_and_value(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(GateError, match=rf"benchmarks\.b: {key} is .*; give a (number|share)") as refused:
        plan(tmp_path, f"[benchmarks.b]\n{key} = {value}")
    assert "\n" not in str(refused.value)


def test_points_are_refused_with_the_share_that_they_are(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r'max_drop.* 12; .*0\.12, or "12%"$'):
        plan(tmp_path, "[benchmarks.b]\nmax_drop = 12")


@pytest.mark.parametrize(
    "text", ["acc >= sixty", "acc >= 60 %", "acc >= nan", "acc >= 1e999", "acc >= %", "60%"]
)
def test_a_bound_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(GateError, match="is no floor"):
        parse_floor(text, "x")


# Floors that a share cannot have


def checked(floor: str, *saved: StoredResult) -> None:
    plan = GateConfig(benchmarks={"b": BenchmarkRules(floors=(parse_floor(floor, "x"),))})
    validate_floors(plan, saved)


@pytest.mark.parametrize(
    ("floor", "remedy"),
    [
        ("acc >= 60", "write 0.60 or 60%"),
        ("acc >= 60.5", "write 0.605 or 60.5%"),
        ("acc_norm > 5", "write 0.05 or 5%"),
        ("exact_match_flexible >= 60", "write 0.60 or 60%"),
        ("pass@10 <= 100", "write 1.00 or 100%"),
        ("real@1_strict >= 12", "write 0.12 or 12%"),
        ("acc >= 6000", "from 0 to 1"),
        ("acc >= -5", "from 0 to 1"),
        ("acc >= 150%", "from 0 to 1"),
    ],
)
def test_a_floor_above_1_for_a_share_is_refused_with_what_was_meant(floor: str, remedy: str) -> None:
    metric = floor.partition(" ")[0]
    with pytest.raises(GateError, match=rf"^gate, b: '.*': {metric} .*share") as refused:
        checked(floor)
    assert str(refused.value).endswith(remedy)


@pytest.mark.parametrize("floor", ["acc >= 0", "acc >= 1", "acc >= 60%", "real@1 >= 0.6", "acc >= 1.5%"])
def test_a_floor_that_a_share_can_have_is_taken(floor: str) -> None:
    checked(floor)


def test_a_composite_is_a_share() -> None:
    plan = GateConfig(
        benchmarks={"score": BenchmarkRules(floors=(parse_floor("score >= 65", "x"),))},
        composites=DEFAULT_COMPOSITES,
    )
    with pytest.raises(GateError, match=r"score .*share.*0\.65 or 65%"):
        validate_floors(plan, [])


@pytest.mark.parametrize("floor", ["perplexity <= 20", "logprob >= -3", "bleu >= 30", "tokens <= 500"])
def test_what_is_no_share_or_not_known_to_be_one_may_have_any_bound(floor: str) -> None:
    aggregate = {"perplexity": {"by": "perplexity", "of": "logprob"}}
    checked(floor, entry({"acc": [1.0], "logprob": [-2.0]}, aggregate=aggregate).saved)


def test_saved_values_say_that_a_metric_is_no_share_whatever_its_name() -> None:
    checked("f1 >= 80", entry({"f1": [75.0, 81.5]}).saved)
    with pytest.raises(GateError, match=r"f1 .*share.*0\.80 or 80%"):
        checked("f1 >= 80", entry({"f1": [0.75, 0.815]}).saved)


def test_several_metrics_stand_in_a_list_and_not_beside_a_single_one(tmp_path: Path) -> None:
    found = plan(tmp_path, 'metrics = ["real@1", "real@5"]\n[benchmarks.b]\nmetrics = ["acc", "f1"]')
    assert (found.metrics, found.rules_of("b").metrics) == (("real@1", "real@5"), ("acc", "f1"))
    with pytest.raises(GateError, match=r"metric and metrics.*leave metric out"):
        plan(tmp_path, 'metric = "a"\nmetrics = ["b"]')
    for nothing in ("[]", '[""]'):
        with pytest.raises(GateError, match="name at least one metric"):
            plan(tmp_path, f"metrics = {nothing}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"nowhere\.toml: No such file"):
        read_gate_config(tmp_path / "nowhere.toml", required=True)


def test_one_floor_may_stand_without_a_list(tmp_path: Path) -> None:
    rules = plan(tmp_path, "[benchmarks.b]\nfloors = 'acc > 0.5'").rules_of("b")
    assert rules.floors == (Floor("acc", ">", 0.5),)


@given(
    st.sampled_from(["acc", "real@1", "pass@10", "ppl/word"]),
    st.sampled_from([">=", "<=", ">", "<"]),
    st.floats(-1000, 1000).map(lambda value: float(f"{value:g}")),
)
def test_a_floor_is_read_as_it_is_written(metric: str, how: str, bound: float) -> None:
    floor = Floor(metric, how, bound)
    assert parse_floor(floor.text, "x") == floor
    assert parse_floor(floor.text.replace(" ", ""), "x") == floor
    assert floor.holds(bound) == ("=" in how)


@pytest.mark.parametrize(
    ("values", "bound"),
    [
        ([0.2] * 3 + [0.4] * 3 + [0.8] * 2, "0.425"),
        ([0.1] * 3, "10%"),
        ([2.3 * 3], "6.9"),
        ([0.7] * 10, "0.7"),
    ],
)
@pytest.mark.parametrize("off", [-4, 0, 4])
def test_a_value_that_misses_the_bound_by_rounding_is_at_it(
    values: list[float], bound: str, off: int
) -> None:
    value = math.fsum(values) / len(values) * (1 + off * 2.0**-52)
    kept = {how: parse_floor(f"acc {how} {bound}", "x").holds(value) for how in (">=", "<=", ">", "<")}
    assert kept == {">=": True, "<=": True, ">": False, "<": False}


def test_a_value_just_below_the_bound_is_shown_as_what_it_is() -> None:
    floor = parse_floor("acc >= 0.46", "x")
    assert not floor.holds(0.459996)
    assert floor.shown(0.459996) == "0.459996"
    assert floor.shown(0.4512345) == "0.4512"


def test_a_message_lists_the_first_of_many_names() -> None:
    with pytest.raises(GateError, match=r"'x';.* m0, .* m11 and 38 more$"):
        check_names(["x"], [f"m{number}" for number in range(50)], "--by", "metric")


def test_a_metric_with_a_unit_has_its_own_margin_and_not_the_one_of_shares() -> None:
    wide = GateConfig(margin=0.02, benchmarks={"own": BenchmarkRules(margin=0.05)})
    bits = STANDARD["bits_per_byte"]
    assert wide.margin_of("b", "acc", mean("acc")) == 0.02
    assert wide.margin_of("b", "bits_per_byte", bits) == bits.margin == 0.01
    assert wide.margin_of("own", "bits_per_byte", bits) == 0.05


def test_a_unit_without_a_margin_is_refused_before_anything_runs_unless_one_is_given() -> None:
    declared = {"b": declaration("b", scores=["acc", "log_odds"])}
    by_odds = GateConfig(mode="plain", metrics=("log_odds",))
    said = r"b log_odds is in nats, for which there is no margin; give one: margin = .* under \[tool.*benchmarks.b\]"
    with pytest.raises(GateError, match=said):
        check_plan(by_odds, declared, [], [])
    check_plan(replace(by_odds, benchmarks={"b": BenchmarkRules(margin=0.05)}), declared, [], [])
    check_plan(replace(by_odds, mode=None), declared, [], [])
