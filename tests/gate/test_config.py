"""A gate's configuration is read as a person means it, and what is not known is refused with the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import GateError
from harness.gate.config import Floor, Own, Plan, parse_floor, read_plan

WHOLE = """
mode = "strict"
baseline = "main"
metric = "score"
allow = ["shots", "items"]
margin = 0.02
alpha = 0.1

[benchmarks.real_coref]
metric = "real@5"
margin = 0
max_drop = 0.05
floors = ["real@1 >= 0.60", "reachable>0.9"]
"""


def plan(tmp_path: Path, text: str, name: str = "gate.toml") -> Plan:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_plan(path, required=True)


EXPECTED = Plan(
    mode="strict",
    baseline="main",
    metric="score",
    allow=("shots", "items"),
    margin=0.02,
    alpha=0.1,
    benchmarks={
        "real_coref": Own(
            metric="real@5",
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
    assert read_plan(tmp_path / "pyproject.toml", required=False) == Plan()
    assert read_plan(tmp_path / "none" / "pyproject.toml", required=False) == Plan()


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
        ("allow = [1]", r"allow is \[1\]; give a list of texts"),
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


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"cannot read .*nowhere\.toml: No such file"):
        read_plan(tmp_path / "nowhere.toml", required=True)


def test_one_floor_may_stand_without_a_list(tmp_path: Path) -> None:
    assert plan(tmp_path, "[benchmarks.b]\nfloors = 'acc > 0.5'").own("b").floors == (Floor("acc", ">", 0.5),)


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
