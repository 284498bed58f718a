"""Settings have one order of precedence: defaults, pyproject.toml, the file, the environment, options."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.settings import of_environment, of_project, of_table, settings_table
from pytest_touchstone.plugin.options import Settings
from tests.support.options import settings_given

PROJECT = (
    '[tool.touchstone]\nseed = 1\nshots = 1\nsamples = 1\nlimit = 1\nno-cache = true\ncheckpoint = ["p"]\n'
)
FILE = {
    "settings": {"shots": 2, "samples": 2, "limit": 2},
    "tasks": {"arc_easy": {"limit": 9, "num_fewshot": 9}},
}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings where each source says one more than the next stronger one."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "c.json").write_text(json.dumps(FILE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOUCHSTONE_SAMPLES", "3")
    monkeypatch.setenv("TOUCHSTONE_LIMIT", "3")
    monkeypatch.setenv("TOUCHSTONE_DTYPE", "")
    return settings_given(rootpath=tmp_path, eval_config="c.json", eval_limit="4")


def test_the_strongest_source_wins_and_is_told(found: Settings) -> None:
    names = ("dtype", "seed", "shots", "samples", "limit", "no_cache", "checkpoint", "tasks")
    assert {name: (found.values[name], found.origins[name]) for name in names} == {
        "dtype": ("auto", "default"),
        "seed": (1, "pyproject.toml"),
        "shots": (2, "c.json"),
        "samples": (3, "TOUCHSTONE_SAMPLES"),
        "limit": (4, "option"),
        "no_cache": (True, "pyproject.toml"),
        "checkpoint": (("p",), "pyproject.toml"),
        "tasks": (("arc_easy",), "c.json"),
    }
    assert not found.demonstration


def test_only_environment_and_options_go_before_what_a_file_says_of_a_benchmark(found: Settings) -> None:
    assert found.file is not None
    assert found.by_hand == {"samples", "limit", "config"}
    assert found.file.choices[0].asking.without(found.by_hand).settings == {"shots": 9}


@pytest.mark.parametrize(
    "row", [row for row in settings_table().values() if row.option], ids=lambda row: row.name
)
def test_every_option_has_a_key_and_a_variable(row: Any) -> None:
    plain: Any
    if row.action == "switch":
        text, plain = "yes", True
    else:
        found = (
            row.choices[0]
            if row.choices
            else {
                "fewshot": "lm-eval",
                "steps": "3:",
                "data": "hub",
                "price": "1,2",
                "shard": "2/5",
                "engine": "ray",
            }.get(row.name)
        )
        text = plain = found or ("cpu" if row.name == "device" else "1")
    assert of_environment({f"TOUCHSTONE_{row.name.upper()}": text})[0].keys() == {row.name}
    assert of_table({row.name.replace("_", "-"): plain}, "x", "pyproject.toml")[0].keys() == {row.name}


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"devise": "cpu"}, "x: unknown key 'devise'; did you mean 'device'?"),
        ({"device": "gpu"}, "invalid x device 'gpu': expected auto, cpu, cuda"),
        ({"limit": True}, "invalid x limit True: expected a text or a number"),
        ({"strict": "yes"}, "invalid x strict 'yes': expected true or false"),
        ({"checkpoint": [1.5, None]}, "invalid x checkpoint None: expected a text or a list of texts"),
    ],
)
def test_a_wrong_key_or_value_of_a_table_is_refused(table: dict[str, Any], line: str) -> None:
    with pytest.raises(OptionError, match=re.escape(line)):
        of_table(table, "x", "pyproject.toml")


def test_a_variable_has_several_values_as_in_a_shell() -> None:
    assert of_environment({"TOUCHSTONE_CHECKPOINT": "runs/a 'runs/b c'"})[0] == {
        "checkpoint": ("runs/a", "runs/b c")
    }
    with pytest.raises(OptionError, match="invalid TOUCHSTONE_STRICT 'maybe': expected 1 or 0"):
        of_environment({"TOUCHSTONE_STRICT": "maybe"})


def test_the_tables_of_the_gate_and_others_are_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    assert of_project(path) == ({}, {})
    path.write_text("[tool.touchstone.gate]\nmargin = 0.1\n[tool.touchstone.other]\nx = 1\n")
    assert of_project(path) == ({}, {})
