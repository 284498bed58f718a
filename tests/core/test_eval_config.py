"""A file of benchmarks: what it enables, under which names, with which options; and each of its faults in one line.

The demonstration: its table is about the shipped benchmarks and no others, and its options change nothing else.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone import Generate, Loglikelihood, benchmark
from pytest_touchstone.core.benchmark import Benchmark, BenchmarkCode, Dataset, declaration_of
from pytest_touchstone.core.eval_config import (
    AS_THE_RUN,
    FILE,
    REST,
    BenchmarkOptions,
    ConfigFileError,
    EvalConfig,
    benchmark_options_of,
    config_summary,
    read_eval_config,
)
from pytest_touchstone.core.files import load_module, shipped_evals
from pytest_touchstone.core.tasks import find_metrics, task_difference, translate_task
from tests.support.lines import naming

KNOWN = ("arc_easy", "arc_challenge", "gsm8k", "lambada", "math", "mmlu", "hellaswag", "mmlu_stem")

TASK = {
    "enabled": True,
    "tasks": ["arc_easy"],
    "num_fewshot": 25,
    "batch_size": 8,
    "limit": None,
    "description": "grade-school science",
    "metrics": ["acc", "acc_norm"],
    "output_path": "out/arc_easy",
    "log_samples": True,
    "priority": "high",
    "timeout": 3600,
}


def read(tmp_path: Path, file: Any, name: str = "c.json") -> EvalConfig:
    path = tmp_path / name
    path.write_text(file if isinstance(file, str) else json.dumps(file), encoding="utf-8")
    return read_eval_config(path, KNOWN)


def test_benchmarks_select_tasks_which_have_the_options(tmp_path: Path) -> None:
    file = {
        "benchmarks": {
            "arc": {"enabled": True, "description": "", "tasks": ["arc_easy"]},
            "off": {"enabled": False, "description": "", "tasks": ["hellaswag"]},
        },
        "tasks": {"arc_easy": TASK, "hellaswag": {"enabled": True}, "gsm8k": {"limit": 2}},
    }
    found = read(tmp_path, file)
    (one,) = found.choices
    assert (one.term, one.where, found.batch) == ("arc_easy", "tasks.arc_easy.tasks[0]", 8)
    assert one.asking.settings == {"limit": "all", "shots": 25}
    assert (one.asking.priority, one.asking.seconds, one.asking.samples) == ("high", 3600, True)
    assert (one.asking.metrics, one.asking.output_path) == (("acc", "acc_norm"), "out/arc_easy")
    (by_switch, unselected) = found.off
    assert naming("benchmarks.off", "enabled").search(" ".join(by_switch))
    assert naming("tasks.gsm8k", "benchmarks").search(" ".join(unselected))


@pytest.mark.parametrize("section", ["benchmarks", "tasks"])
def test_an_entry_may_say_only_enabled_and_limit(tmp_path: Path, section: str) -> None:
    found = read(tmp_path, {section: {"gsm8k": {"enabled": True, "limit": 5}, "math": {"enabled": False}}})
    assert found.terms == ("gsm8k",)
    assert found.choices[0].asking.settings == {"limit": 5}


def test_toml_has_the_same_shape(tmp_path: Path) -> None:
    text = '[benchmarks.arc]\ntasks = ["arc_easy"]\nlimit = 0.5\n[tasks.arc_easy]\nnum_fewshot = 3\n'
    assert read(tmp_path, text, "c.toml").choices[0].asking.settings == {"limit": 0.5, "shots": 3}


def test_comments_are_no_keys(tmp_path: Path) -> None:
    assert read(tmp_path, {"$schema": "x", "_note": 1, "tasks": {"math": {"_why": "so"}}}).terms == ("math",)


def test_names_of_the_other_harness_are_translated(tmp_path: Path) -> None:
    names = ["lambada_openai", "minerva_math_num_theory", "mmlu_virology", "ai2_arc", "gsm8k"]
    file = {"tasks": {"all": {"tasks": names}}}
    expected = ("lambada", "math_5000/Number_Theory", "mmlu/virology", "arc_easy", "arc_challenge", "gsm8k")
    assert read(tmp_path, file).terms == expected


def test_a_benchmark_of_that_name_goes_before_the_translation() -> None:
    assert translate_task("lambada_openai", ["lambada_openai", "lambada"]) == ("lambada_openai",)
    assert len(translate_task("mmlu_humanities", ["mmlu"])) == 13
    assert translate_task("mmlu_stem", ["mmlu_stem"]) == ("mmlu_stem",)
    assert translate_task("nothing_like_it", KNOWN) == ("nothing_like_it",)


def test_a_name_that_both_have_is_translated_where_it_is_known_to_be_theirs() -> None:
    theirs = translate_task("mmlu_stem", ["mmlu_stem", "mmlu"], theirs=True)
    assert len(theirs) == 19
    assert "mmlu/anatomy" in theirs
    assert translate_task("gsm8k", ["gsm8k"], theirs=True) == ("gsm8k",)


def test_a_name_that_stands_for_other_rows_there_is_said_to(tmp_path: Path) -> None:
    names = ["mmlu_stem", "minerva_math500", "minerva_math_algebra", "gsm8k"]
    (note,) = read(tmp_path, {"tasks": {"all": {"tasks": names}}}).notes
    assert naming("mmlu_stem", 19, 14).search(note)
    assert task_difference("mmlu_stem", "mmlu/anatomy") is None


def test_metrics_are_meant_by_either_name() -> None:
    ours = ["exact_match_flexible", "exact_match_strict", "acc", "acc_norm", "pass@1", "maj@8"]
    assert find_metrics("exact_match", ours) == ours[:2]
    assert find_metrics("acc,none", ours) == ["acc"]
    assert find_metrics("pass_at_1", ours) == ["pass@1"]
    assert find_metrics("exact_match,maj@8", ours) == ["maj@8"]
    assert find_metrics("bleu", ours) == []


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ({"taks": {}}, ("taks", "'tasks'")),
        ({"tasks": {"a": {"num_fewshots": 1}}}, ("tasks.a.num_fewshots", "'num_fewshot'")),
        ({"tasks": {"a": {"num_fewshot": "5"}}}, ("tasks.a.num_fewshot", '"5"', "from 0")),
        ({"tasks": {"a": {"limit": 0}}}, ("tasks.a.limit", "invalid 0", "(50)")),
        ({"tasks": {"a": {"limit": True}}}, ("tasks.a.limit", "invalid true", "(50)")),
        ({"tasks": {"a": {"priority": "urgent"}}}, ('"urgent"', "high, medium or low")),
        ({"tasks": {"a": {"tasks": [3]}}}, ("tasks.a.tasks[0]", "invalid 3", "names")),
        ({"tasks": {"a": {"timeout": -1}}}, ("tasks.a.timeout", "invalid -1", "seconds")),
        ({"tasks": {"a": {"enabled": 1}}}, ("tasks.a.enabled", "invalid 1", "true or false")),
        ({"tasks": {"a": {"batch_size": 0}}}, ("tasks.a.batch_size", "invalid 0", "from 1")),
        ({"tasks": {"a": 3}}, ("tasks.a", "invalid 3", "table")),
        ({"benchmarks": []}, ("benchmarks", "invalid []", "table")),
        ([1], ("the file", "invalid [1]", "table")),
        ({"tasks": {"a": {"enabled": False}}}, ("no benchmark is enabled",)),
        ('{"tasks": {"a": {}, "a": {}}}', ("JSON", "key 'a'")),
        ("{", ("JSON",)),
        (
            {"tasks": {"mmlu_virology": {"limit": 1}, "mmlu_anatomy": {"limit": 2}}},
            ("'mmlu_anatomy'", "mmlu", "tasks.mmlu_virology"),
        ),
    ],
)
def test_a_fault_is_a_line_with_its_place_its_value_and_what_was_expected(
    tmp_path: Path, file: Any, names: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigFileError, match=naming(*names)) as caught:
        read(tmp_path, file)
    assert len(caught.value.lines) == 1


def test_a_run_names_the_first_fault_and_counts_the_others(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigFileError, match=naming("2 other", "`touchstone benchmarks --config`")
    ) as caught:
        read(tmp_path, {"tasks": {"a": {"limit": 0, "timeout": 0, "priority": 0}}})
    assert len(caught.value.lines) == 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match=naming("--eval-config", "none.json", "No such file")):
        read_eval_config(tmp_path / "none.json", KNOWN)


def test_an_entry_by_name_goes_before_one_by_tag_or_pattern_whatever_their_order(tmp_path: Path) -> None:
    entries = {"easy": {"limit": 5}, "arc_*": {"limit": 6}, "arc_easy": {"limit": 7}}
    found = read(tmp_path, {"tasks": entries})

    @benchmark("arc_easy", version=1, data="a/test", asks=Loglikelihood, primary="acc", tags=("easy",))
    def test_it(example: Any) -> Any:
        yield

    spec = declaration_of(test_it)
    assert spec is not None
    assert found.asking(spec).limit == found.asking_named("arc_easy").limit == 7


WITHOUT_DATA = {"apps_stdin", "ko_lambada"}


def shipped_specs() -> dict[str, Benchmark]:
    modules = [
        load_module(path, f"demonstrated_{path.stem}") for path in sorted(shipped_evals().glob("test_*.py"))
    ]
    specs = [declaration_of(value) for module in modules for value in vars(module).values()]
    return {spec.name: spec for spec in specs if spec is not None}


def table() -> dict[str, dict[str, object]]:
    return tomllib.loads((shipped_evals() / FILE).read_text(encoding="utf-8"))


def spec(folder: Path, name: str = "gsm8k") -> Benchmark:
    return Benchmark(
        name=name,
        version=1,
        data=Dataset(local="a/b"),
        asks=(Generate,),
        primary="acc",
        code=BenchmarkCode(folder=folder),
    )


def test_the_table_is_about_shipped_benchmarks_and_the_others_are_left_out() -> None:
    shipped, own = shipped_specs(), {name: row for name, row in table().items() if name != REST}
    assert own.keys() < shipped.keys()
    assert benchmark_options_of(shipped["piqa"]).left_out == table()[REST]["left_out"]
    for name, row in own.items():
        sized = {"limit", "max_new_tokens"} if Generate in shipped[name].asks else {"limit"}
        assert row.keys() == ({"left_out"} if "left_out" in row else set() if name in WITHOUT_DATA else sized)


def test_only_shipped_benchmarks_are_reduced(tmp_path: Path) -> None:
    assert benchmark_options_of(spec(tmp_path)) == AS_THE_RUN
    assert benchmark_options_of(spec(shipped_evals())).settings == table()["gsm8k"]


@pytest.mark.parametrize(("most", "chat"), [(1, None), (64, None), (64, 32), (64, 768)])
def test_a_limit_of_tokens_counts_for_both_forms_of_a_question(most: int, chat: int | None) -> None:
    request = Generate("a", max_new_tokens=500, stop=("b",), turns_max_new_tokens=chat)
    asked = BenchmarkOptions(max_new_tokens=most).request(request)
    assert asked == Generate("a", max_new_tokens=most, stop=("b",))
    assert BenchmarkOptions(limit=3).request(request) is request
    assert BenchmarkOptions(max_new_tokens=most).request(Loglikelihood("a", "b")) == Loglikelihood("a", "b")


def test_what_is_given_by_hand_goes_before_the_table() -> None:
    asking = BenchmarkOptions(limit=8, max_new_tokens=64)
    assert asking.without({"max_new_tokens", "seed"}).settings == {"limit": 8}
    assert BenchmarkOptions(left_out="because").without({"limit"}).left_out == "because"


def test_the_line_has_commands_that_can_be_pasted() -> None:
    made = config_summary(
        ["pytest", "evals/", "-k", "not math"], [{"limit": 4, "max_new_tokens": 9}, {"limit": 32}]
    )
    assert naming("builtin", "4 rows").search(made["what"])
    call = "pytest evals/ -k 'not math'"
    assert (made["all"], made["own"]) == (f"{call} --eval-limit all", f"{call} --checkpoint PATH")
