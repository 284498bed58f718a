"""The table of settings: what its rows say is what options, runs and documents have.

Settings have one order of precedence: defaults, pyproject.toml, the file, the environment, options.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from options_page import TITLES, options_page

from pytest_touchstone import plugin
from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.settings import (
    FILE,
    OF_RESULTS,
    PARSERS,
    SET,
    Setting,
    affects,
    condition_names,
    differences,
    known_conditions,
    load_environment_settings,
    load_project_settings,
    load_system_prompt,
    manifest_conditions,
    parse_set_options,
    parse_settings_table,
    same_answers,
    settings_table,
)
from pytest_touchstone.engines.sandbox import SandboxSettings
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.plugin import pytest_addoption
from pytest_touchstone.plugin.batches import DEFAULT_SIZE, GENERATING_SIZE, GPU_SIZE
from pytest_touchstone.plugin.options import Settings, device_kind, unknown_option_message
from tests.support.lines import naming
from tests.support.options import settings_given

TABLE = settings_table()


def registered(*taken: str) -> dict[str, dict[str, Any]]:
    """The options after ours were added, by a plugin that a conftest loads; ``taken`` are somebody's already."""
    parser, manager = pytest.Parser(_ispytest=True), pytest.PytestPluginManager()
    manager.register(ModuleType("conftest"), "conftest.py")
    for flag in taken:
        parser.addoption(flag)
    pytest_addoption(parser, manager)
    groups = [parser.getgroup(name) for name in ("_anonymous", "touchstone")]
    return {flag: option.attrs() for group in groups for option in group.options for flag in option.names()}


def test_every_row_is_an_option_by_its_names() -> None:
    rows = [row for row in TABLE.values() if row.option and not row.key]
    assert set(registered()) == {SET, *(flag for row in rows for flag in (row.flag, row.long_flag))}
    shown = {flag for flag, attributes in registered().items() if attributes["help"] != argparse.SUPPRESS}
    assert shown == {SET, *(row.flag for row in rows)}
    assert len(rows) <= 35


@pytest.mark.parametrize("row", [row for row in TABLE.values() if row.key], ids=lambda row: row.name)
def test_a_former_option_answers_with_its_key(row: Setting) -> None:
    former = f"--eval-{row.name.replace('_', '-')}"
    line = unknown_option_message([former], [former], ours_alone=False) or ""
    assert line.startswith(f"{former}: no such option; ")
    assert row.usage in line
    assert row.usage.startswith(f"--eval-set {row.name}")


def test_the_values_of_set_are_those_of_the_table() -> None:
    words = ["top_p=0.9", "beside", "gate-sequential=no", "gate_metric=a", "gate_metric=b c", "device=cpu"]
    assert parse_set_options(words) == {
        "top_p": 0.9,
        "beside": True,
        "gate_sequential": False,
        "gate_metric": ("a", "b", "c"),
        "device": "cpu",
    }
    for word, line in {
        "top_q=1": "--eval-set top_q: unknown key; did you mean 'top_p'? docs/options.md has all",
        "workers=2": "--eval-set workers: unknown key; docs/options.md has all",
        "top_p": "--eval-set top_p: the value is empty; give one, or leave the option out",
        "top_p=2": "invalid --eval-set top_p '2': expected a probability above 0, and 1 at most",
        "beside=maybe": "invalid --eval-set beside 'maybe': expected 1 or 0",
    }.items():
        with pytest.raises(OptionError, match=f"^{re.escape(line)}$"):
            parse_set_options([word])


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [("trust_remote_code", "1", True), ("sandbox", "none", "none"), ("baseline_allow", "shots", ["shots"])],
)
def test_what_gives_away_protection_is_said_on_the_command_line_alone(
    name: str, value: str, plain: Any, tmp_path: Path
) -> None:
    usage = re.escape(TABLE[name].usage)
    refused = f".*: can only be said on the command line, by {usage}; leave it out here$"
    with pytest.raises(OptionError, match=f"^TOUCHSTONE_{name.upper()} {refused}"):
        load_environment_settings({f"TOUCHSTONE_{name.upper()}": value})
    with pytest.raises(OptionError, match=rf"^pyproject.toml: \[tool.touchstone\] {name} {refused}"):
        parse_settings_table({name: plain}, "pyproject.toml: [tool.touchstone]", "pyproject.toml")
    project = tmp_path / "pyproject.toml"
    project.write_text(f"[tool.touchstone]\n{name} = {json.dumps(plain)}\n")
    with pytest.raises(OptionError, match=refused):
        load_project_settings(project)
    assert parse_set_options([f"{name}={value}"])[name]


def test_what_protects_may_be_said_anywhere() -> None:
    assert load_environment_settings({"TOUCHSTONE_SANDBOX": "docker", "TOUCHSTONE_TRUST_REMOTE_CODE": "0"})[
        0
    ] == {
        "sandbox": "docker",
        "trust_remote_code": False,
    }


def test_few_options_have_a_short_name() -> None:
    short = {row.short for row in TABLE.values() if row.short}
    assert short == {
        *("--checkpoint", "--gate", "--baseline"),
        *("--mlflow", "--wandb"),
    }
    assert all(row.long_flag.startswith("--eval-") for row in TABLE.values())


def test_a_short_name_gives_way_to_who_has_it_already() -> None:
    found = registered("--gate", "--checkpoint")
    assert [found[name]["dest"] for name in ("--gate", "--checkpoint")] == ["gate", "checkpoint"]
    assert "(--gate is another plugin's here)" in found["--eval-gate"]["help"]
    assert {"--eval-gate", "--eval-checkpoint", "--baseline"} <= set(found)


def test_argparse_reads_no_value_itself() -> None:
    assert not any(more.get("type") or more.get("choices") for more in registered().values())


def test_rows_are_complete() -> None:
    for row in TABLE.values():
        assert row.affects in ("answers", "rounding", "items", "checkpoints", "speed", "output")
        assert row.action in ("value", "append", "switch")
        assert row.parse in PARSERS or ":" in row.parse
        assert not row.option or bool(row.metavar) is (row.action != "switch"), row.name
        assert not row.option or row.section in TITLES


def test_every_setting_is_in_the_manifest() -> None:
    assert set(settings_given().recorded()) == set(TABLE)


def test_every_field_of_the_settings_has_a_row() -> None:
    parts = {
        "values",
        "origins",
        "notes",
        "model",
        "sandbox_settings",
        "sampling",
        "by_hand",
        "demonstration",
    }
    parts |= {"file", "groups"}
    names = {field.name for field in dataclasses.fields(Settings)} - parts
    assert names <= set(TABLE)
    assert {field.name for field in dataclasses.fields(ModelSettings)} - {"threads", "processes"} <= set(
        TABLE
    )
    assert {field.name for field in dataclasses.fields(SandboxSettings)} - {"kind"} <= set(TABLE)


ROW = """
[answers.repetition_penalty]
metavar = "R"
parse = "number"
least = 1
default = 1.0
affects = "answers"
help = "divide the logits of tokens that are there already"
"""


@pytest.fixture
def one_row_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The table with ``ROW``."""
    path = tmp_path / "settings.toml"
    path.write_text(FILE.read_text(encoding="utf-8") + ROW, encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr("pytest_touchstone.core.settings.FILE", path)
        patch.setattr("pytest_touchstone.plugin.TABLE", path)
        settings_table.cache_clear()
        plugin._options.cache_clear()
        yield
    settings_table.cache_clear()
    plugin._options.cache_clear()


@pytest.mark.usefixtures("one_row_more")
def test_a_new_setting_is_one_row() -> None:
    assert registered()["--eval-repetition-penalty"]["metavar"] == "R"
    before, after = settings_given().recorded(), settings_given(eval_repetition_penalty="1.2").recorded()
    assert (before["repetition_penalty"], after["repetition_penalty"]) == (1.0, 1.2)
    assert not same_answers(before, after)
    assert differences(manifest_conditions(before), manifest_conditions(after)) == {
        "repetition_penalty": (1.0, 1.2)
    }
    assert same_answers(before, {name: before[name] for name in before if name != "repetition_penalty"})
    assert "repetition_penalty" in condition_names()
    assert "| `--eval-repetition-penalty R` |" in options_page()
    with pytest.raises(OptionError, match=naming("--eval-repetition-penalty '0'", "from 1")):
        settings_given(eval_repetition_penalty="0")


def test_what_a_run_writes_down_is_plain() -> None:
    found = settings_given(eval_steps="300:", eval_checkpoint=["a", "b"], eval_limit="0.2").recorded()
    assert found["steps"] == "300:"
    assert found["checkpoint"] == ("a", "b")
    assert found["limit"] == 0.2


def test_sizes_in_the_help_are_those_of_the_code() -> None:
    assert f"{DEFAULT_SIZE}; {GPU_SIZE} on a GPU; {GENERATING_SIZE} of" in TABLE["batch_items"].help


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("limit", "50", 50),
        ("limit", ".2", 0.2),
        ("temperature", "0", 0.0),
        ("temperature", "1.", 1.0),
        ("top_p", "0.95", 0.95),
        ("top_p", "1", 1.0),
        ("batch", "auto", None),
        ("device", "cuda:1", "cuda:1"),
        ("program_seconds", ".1", 0.1),
        ("program_seconds", "3600", 3600.0),
        ("data", "hub", "hub"),
    ],
)
def test_values_are_read(name: str, text: str, value: object) -> None:
    assert TABLE[name].read(text) == value


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("limit", "0", ("--eval-limit '0'", "(50)", "(0.2)", "all")),
        ("shots", "-1", ("--eval-shots '-1'", "from 0")),
        ("dtype", "int8", ("--eval-dtype 'int8'", "auto, float32, bfloat16 or float16")),
        ("speculative", "on", ("--eval-set speculative 'on'", "auto or off")),
        ("program_seconds", "5s", ("--eval-set program_seconds '5s'", "0.1", "3600")),
        ("steps", "9:3", ("--eval-steps '9:3'", "3:9")),
        ("run_id", ".x", ("--eval-run-id '.x'", "letters, digits, '.', '_' and '-'")),
        ("checkpoint", " ", ("--checkpoint", "empty")),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(
    name: str, text: str, names: tuple[str, ...]
) -> None:
    with pytest.raises(OptionError, match=naming(*names)):
        TABLE[name].read(text)


@pytest.mark.parametrize("text", ["nan", "inf", "1e3", "0,2", "٣", "-0.1"])
@pytest.mark.parametrize("name", ["limit", "seed", "temperature", "top_p", "program_seconds"])
def test_only_plain_decimals_are_numbers(name: str, text: str) -> None:
    with pytest.raises(OptionError):
        TABLE[name].read(text)


@given(st.text(), st.sampled_from(sorted(TABLE)))
def test_any_text_is_read_or_refused_in_one_way(text: str, name: str) -> None:
    with contextlib.suppress(OptionError):
        TABLE[name].read(text)


@pytest.mark.parametrize(("device", "kind"), [("cpu", "cpu"), ("cuda:3", "cuda"), ("mps", "mps")])
def test_a_device_is_told_by_its_kind(device: str, kind: str) -> None:
    assert device_kind(device) == kind


def test_hidden_accelerators_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("sys.platform", "linux")
    assert device_kind("auto") == "cpu"


PROJECT = (
    '[tool.touchstone]\nseed = 1\nshots = 1\nsamples = 1\nlimit = 1\nno-cache = true\ncheckpoint = ["p"]\n'
)
CONFIG = {
    "settings": {"shots": 2, "samples": 2, "limit": 2},
    "tasks": {"arc_easy": {"limit": 9, "num_fewshot": 9}},
}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings where each source says one more than the next stronger one."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "c.json").write_text(json.dumps(CONFIG))
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
    "row",
    [row for row in settings_table().values() if row.option and row.typed != "any"],
    ids=lambda row: row.name,
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
                "lm_eval_path": ".",
                "price": "1,2",
                "shard": "2/5",
                "engine": "ray",
            }.get(row.name)
        )
        text = plain = found or ("cpu" if row.name == "device" else "1")
    assert load_environment_settings({f"TOUCHSTONE_{row.name.upper()}": text})[0].keys() == {row.name}
    assert parse_settings_table({row.name.replace("_", "-"): plain}, "x", "pyproject.toml")[0].keys() == {
        row.name
    }


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ({"devise": "cpu"}, ("x", "'devise'", "'device'")),
        ({"device": "gpu"}, ("x device 'gpu'", "auto, cpu, cuda")),
        ({"limit": True}, ("x limit True", "text", "number")),
        ({"strict": "yes"}, ("x strict 'yes'", "true or false")),
        ({"checkpoint": [1.5, None]}, ("x checkpoint None", "text", "list")),
    ],
)
def test_a_wrong_key_or_value_of_a_table_is_refused(table: dict[str, Any], names: tuple[str, ...]) -> None:
    with pytest.raises(OptionError, match=naming(*names)):
        parse_settings_table(table, "x", "pyproject.toml")


def test_a_variable_has_several_values_as_in_a_shell() -> None:
    assert load_environment_settings({"TOUCHSTONE_CHECKPOINT": "runs/a 'runs/b c'"})[0] == {
        "checkpoint": ("runs/a", "runs/b c")
    }
    with pytest.raises(OptionError, match=naming("TOUCHSTONE_STRICT 'maybe'", "1 or 0")):
        load_environment_settings({"TOUCHSTONE_STRICT": "maybe"})


def test_the_tables_of_the_gate_and_others_are_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    assert load_project_settings(path) == ({}, {})
    path.write_text("[tool.touchstone.gate]\nmargin = 0.1\n[tool.touchstone.other]\nx = 1\n")
    assert load_project_settings(path) == ({}, {})


def test_a_system_prompt_is_a_text_or_what_a_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "system.txt"
    path.write_text("\N{BYTE ORDER MARK}Be brief.\n", encoding="utf-8")
    assert load_system_prompt(str(path)) == "Be brief."
    assert load_system_prompt(" Answer in one word. ") == "Answer in one word."
    assert load_system_prompt("x" * 5000) == "x" * 5000
    for wrong in ("", "  ", str(tmp_path / "empty.txt")):
        (tmp_path / "empty.txt").touch()
        with pytest.raises(ValueError, match="which is not empty"):
            load_system_prompt(wrong)


@pytest.mark.parametrize("text", ["0/5", "6/5", "2", "2/", "/5", "2/0", "2/5/7", "-1/5", "auto"])
def test_a_shard_is_numbered_from_one_to_their_count(text: str) -> None:
    row = settings_table()["shard"]
    assert [row.read(one) for one in ("1/1", "2/5", "5/5")] == ["1/1", "2/5", "5/5"]
    with pytest.raises(OptionError, match="NUMBER/COUNT, such as 2/5"):
        row.read(text)


# Settings as conditions of results


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
    "lm_eval_path": ".",
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
    conditions = differences(manifest_conditions(before), manifest_conditions(after))
    told_by_the_result = name in ("shots", "fewshot", "chat")
    assert bool(conditions) is (role in ("answers", "items") and not told_by_the_result)
    assert same_answers(before, after) is (role != "answers" and name != "device")
    if name == "device":  # its kind is a setting of its own
        assert role == "speed"
        assert not same_answers(before, {**before, "device_kind": "mps"})


def test_a_setting_of_a_later_release_counts_until_it_is_known_better() -> None:
    before = recorded()
    assert not same_answers(before, {**before, "brand_new": 1})
    assert differences(manifest_conditions(before), manifest_conditions({**before, "brand_new": 1})) == {
        "brand_new": (None, 1)
    }


def test_a_run_of_an_earlier_release_did_as_the_default_says() -> None:
    now = recorded()
    before = {name: value for name, value in now.items() if name not in ("grader", "top_p", "seed")}
    assert same_answers(now, before)
    assert not same_answers(recorded(grader="reference"), before)
    assert not differences(
        known_conditions(manifest_conditions(now)), known_conditions({"shots": None}), ["shots"]
    )


def test_answers_are_not_taken_where_the_kind_of_device_is_not_known() -> None:
    before = recorded()
    assert not same_answers(before, {name: before[name] for name in before if name != "device_kind"})


def test_of_a_published_result_nothing_is_known_but_what_it_says() -> None:
    assert known_conditions({"shots": 5}, published=True) == {"shots": 5}


def test_what_an_earlier_release_took_for_a_condition_and_is_none_does_not_count() -> None:
    written = {
        **manifest_conditions(recorded()),
        "base_model": "elsewhere",
        "device_kind": "cuda",
        "speculative": "off",
    }
    assert known_conditions(written) == known_conditions(manifest_conditions(recorded()))


def test_conditions_that_may_be_allowed_are_those_that_results_have() -> None:
    saved = {*OF_RESULTS, *manifest_conditions(recorded())}
    assert set(condition_names()) == saved


def test_what_differs_is_named_but_for_what_may_differ() -> None:
    mine, other = {"shots": 5, "seed": 1}, {"shots": 0, "seed": 2, "limit": 3}
    assert differences(mine, other) == {"shots": (5, 0), "seed": (1, 2), "limit": (None, 3)}
    assert differences(mine, other, allowed=("shots", "limit")) == {"seed": (1, 2)}


def test_a_run_on_a_cpu_and_one_on_an_accelerator_are_asked_alike_but_share_no_answers() -> None:
    cpu, gpu = recorded(device="cpu"), recorded(device="cuda")
    assert not differences(manifest_conditions(cpu), manifest_conditions(gpu))
    assert not same_answers(cpu, gpu)
