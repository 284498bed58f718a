"""What each setting may change: one table, which every option is in, and which all that compare runs go by."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest

from harness.checkpoints.training_state import step_of_row
from harness.core.conditions import (
    OF_RESULTS,
    SETTINGS,
    condition_names,
    differing,
    known_conditions,
    of_settings,
    role_of,
    same_answers,
)
from harness.engines.sandbox.settings import SandboxSettings
from harness.engines.settings import ModelSettings
from harness.plugin.options import Settings, add_options, settings_of
from harness.results.reuse import device_kind

OTHER = {
    "checkpoint": ["elsewhere"],
    "strict": True,
    "fresh": True,
    "trust_remote_code": True,
    "limit": "5",
    "steps": "300:",
    "shots": "3",
    "seed": "7",
    "samples": "4",
    "temperature": "0.7",
    "top_p": "0.5",
    "batch": "3",
    "dtype": "bfloat16",
    "chat": "off",
    "max_new_tokens": "9",
    "speculative": "off",
    "device": "cuda",
    "seq_len": "77",
    "base_model": "elsewhere",
    "data": ".",
    "sandbox": "none",
    "grader": "reference",
    "program_seconds": "5",
    "output": "elsewhere",
    "markdown": "elsewhere.md",
    "run_id": "other",
    "unit": "3",
}
"""A value of each option that is not its default."""

FIELDS = {"checkpoints": "checkpoint", "kind": "sandbox", "threads": "workers"}
"""Fields of the settings that are called otherwise than their option."""


class Given:
    """A configuration in which these options are given, and no other."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.invocation_params = pytest.Config.InvocationParams(args=(), plugins=None, dir=Path())

    def getoption(self, name: str, default: Any = None) -> Any:
        key = name.removeprefix("--").removeprefix("eval-").replace("-", "_")
        unset = [] if key == "checkpoint" else False if OTHER.get(key) is True else default
        return self.values.get(key, unset)


class Options(list[str]):
    """Stands for pytest's parser, and remembers the names of the options."""

    def getgroup(self, *_: str) -> Options:
        return self

    def addoption(self, name: str, **_: Any) -> None:
        self.append(name.removeprefix("--").removeprefix("eval-").replace("-", "_"))


def options() -> list[str]:
    found = Options()
    add_options(cast("pytest.Parser", found))
    return found


def recorded(**values: Any) -> dict[str, Any]:
    """What a run with these options writes down."""
    settings = settings_of(cast("pytest.Config", Given(values)))
    return {**settings.recorded(), "device_kind": device_kind(settings.model.device)}


def test_every_option_is_in_the_table_and_has_another_value_here() -> None:
    assert set(options()) == set(OTHER)
    assert set(options()) <= set(SETTINGS)


def test_every_field_of_the_settings_is_in_the_table() -> None:
    parts = ("model", "sandbox", "sampling")
    names = [
        field.name
        for kind in (Settings, ModelSettings, SandboxSettings)
        for field in dataclasses.fields(kind)
        if field.name not in parts
    ]
    assert {FIELDS.get(name, name) for name in names} <= set(SETTINGS)


def test_what_a_run_writes_down_is_what_the_table_says_counts() -> None:
    counting = {name for name, one in SETTINGS.items() if one.role in ("answers", "items", "rounding")}
    assert counting <= set(recorded()) <= set(SETTINGS)


def test_the_defaults_in_the_table_are_those_of_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOUCHSTONE_DATA", raising=False)
    found = recorded()
    counting = [name for name in found if role_of(name) in ("answers", "items")]
    assert {name: found[name] for name in counting} == {name: SETTINGS[name].default for name in counting}


@pytest.mark.parametrize("name", OTHER)
def test_an_option_changes_conditions_and_reuse_as_its_row_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    more = {"temperature": "0.7"} if name == "samples" else {}
    before, after = recorded(**more), recorded(**more, **{name: OTHER[name]})
    role = role_of(name)
    conditions = differing(of_settings(before), of_settings(after))
    told_by_the_result = name in ("shots", "chat")
    assert bool(conditions) is (role in ("answers", "items") and not told_by_the_result)
    assert same_answers(before, after) is (role != "answers" and name != "device")
    if name == "device":  # its kind is a setting of its own
        assert role == "place"
        assert not same_answers(before, {**before, "device_kind": "mps"})


def test_a_setting_of_a_later_release_counts_until_it_is_known_better() -> None:
    before = recorded()
    assert not same_answers(before, {**before, "brand_new": 1})
    assert differing(of_settings(before), of_settings({**before, "brand_new": 1})) == {"brand_new": (None, 1)}


def test_a_run_of_an_earlier_release_did_as_the_default_says() -> None:
    now = recorded()
    before = {name: value for name, value in now.items() if name not in ("grader", "top_p", "seed")}
    assert same_answers(now, before)
    assert not same_answers(recorded(grader="reference"), before)
    assert not differing(known_conditions(of_settings(now)), known_conditions({"shots": None}), ["shots"])


def test_answers_are_not_taken_where_the_kind_of_device_is_not_known() -> None:
    before = recorded()
    assert not same_answers(before, {name: before[name] for name in before if name != "device_kind"})


def test_of_a_published_result_nothing_is_known_but_what_it_says() -> None:
    assert known_conditions({"shots": 5}, published=True) == {"shots": 5}


def test_what_an_earlier_release_took_for_a_condition_and_is_none_does_not_count() -> None:
    written = {
        **of_settings(recorded()),
        "base_model": "elsewhere",
        "device_kind": "cuda",
        "speculative": "off",
    }
    assert known_conditions(written) == known_conditions(of_settings(recorded()))


def test_conditions_that_may_be_allowed_are_those_that_results_have() -> None:
    saved = {*OF_RESULTS, *of_settings(recorded())}
    assert set(condition_names()) == saved


def test_what_differs_is_named_but_for_what_may_differ() -> None:
    mine, other = {"shots": 5, "seed": 1}, {"shots": 0, "seed": 2, "limit": 3}
    assert differing(mine, other) == {"shots": (5, 0), "seed": (1, 2), "limit": (None, 3)}
    assert differing(mine, other, allowed=("shots", "limit")) == {"seed": (1, 2)}


@pytest.mark.parametrize(
    ("row", "step"),
    [
        ({"global_step": 300, "step": 300, "name": "checkpoint-300"}, 300),
        ({"global_step": None, "step": 2, "name": "gpt2"}, None),
        ({"global_step": None, "step": 1.5, "epoch": 1.5}, None),
        ({"step": 390, "series": "mlm_v2"}, 390),
        ({}, None),
    ],
)
def test_the_step_is_what_the_trainer_or_the_table_says(row: dict[str, Any], step: int | None) -> None:
    assert step_of_row(row) == step
