"""What each setting may change: one table, which every option is in, and which all that compare runs go by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints.config_files import step_of_row
from pytest_touchstone.core.conditions import (
    OF_RESULTS,
    affects,
    condition_names,
    differing,
    known_conditions,
    of_settings,
    same_answers,
)
from pytest_touchstone.core.settings import settings_table
from tests.support.options import settings_given

OTHER = {
    "checkpoint": ["elsewhere"],
    "strict": True,
    "no_cache": True,
    "trust_remote_code": True,
    "limit": "5",
    "shard": "2/5",
    "tasks": "arc_easy",
    "steps": "300:",
    "shots": "3",
    "fewshot": "lm-eval",
    "seed": "7",
    "samples": "4",
    "system": "Be brief.",
    "judge": "fake:causal",
    "judge_tokens": "512",
    "think_end": "</r>",
    "thinking": "off",
    "temperature": "0.7",
    "top_p": "0.5",
    "batch": "3",
    "memory": "2GiB",
    "dtype": "bfloat16",
    "chat": "off",
    "max_new_tokens": "9",
    "speculative": "off",
    "texts": "own",
    "device": "cuda",
    "device_map": "auto",
    "seq_len": "77",
    "base_model": "elsewhere",
    "data": ".",
    "sandbox": "none",
    "grader": "reference",
    "program_seconds": "5",
    "output": "elsewhere",
    "markdown": "elsewhere.md",
    "run_id": "other",
    "batch_items": "3",
    "engine": "ray:2",
    "gate": True,
    "gate_mode": "strict",
    "baseline": "best",
    "baseline_allow": ["shots"],
    "gate_metric": ["acc"],
    "gate_sequential": True,
    "gate_config": "elsewhere",
    "config": "elsewhere.json",
    "dry_run": True,
    "model_name": "other",
    "tokenizer": "elsewhere",
    "concurrency": "3",
    "request_timeout": "3",
    "item_timeout": "3",
    "run_timeout": "3",
    "price": "1,2",
    "reuse_served": True,
    "beside": True,
    "server_args": "--seed 3",
    "mlflow": True,
    "mlflow_experiment": "other",
    "wandb": True,
    "wandb_project": "other",
}
"""A value of each option that is not its default."""


def recorded(**values: Any) -> dict[str, Any]:
    """What a run with these options writes down."""
    return settings_given(**{f"eval_{name}": value for name, value in values.items()}).recorded()


def test_every_option_has_another_value_here() -> None:
    assert set(OTHER) == {name for name, row in settings_table().items() if row.option}


def test_the_defaults_in_the_table_are_those_of_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOUCHSTONE_DATA", raising=False)
    found = recorded()
    counting = [name for name in found if affects(name) in ("answers", "items")]
    assert {name: found[name] or None for name in counting} == {
        name: settings_table()[name].default or None for name in counting
    }


@pytest.mark.parametrize("name", OTHER)
def test_an_option_changes_conditions_and_reuse_as_its_row_says(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("elsewhere.json").write_text('{"benchmarks": {"arc_easy": {"enabled": true}}}', encoding="utf-8")
    more = {"temperature": "0.7"} if name == "samples" else {}
    before, after = recorded(**more), recorded(**more, **{name: OTHER[name]})
    role = affects(name)
    conditions = differing(of_settings(before), of_settings(after))
    told_by_the_result = name in ("shots", "fewshot", "chat")
    assert bool(conditions) is (role in ("answers", "items") and not told_by_the_result)
    assert same_answers(before, after) is (role != "answers" and name != "device")
    if name == "device":  # its kind is a setting of its own
        assert role == "speed"
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


def test_a_run_on_a_cpu_and_one_on_an_accelerator_are_asked_alike_but_share_no_answers() -> None:
    cpu, gpu = recorded(device="cpu"), recorded(device="cuda")
    assert not differing(of_settings(cpu), of_settings(gpu))
    assert not same_answers(cpu, gpu)
