"""Benchmarks are chosen by name, tag, pattern and group, and a wrong name says what was probably meant.

The benchmarks of a file, read without running it.

Groups of benchmarks: the shipped lines name what there is, and a project's own go before them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.checkpoints.info import SERVES
from pytest_touchstone.core.benchmark import Benchmark, Published, declaration_of
from pytest_touchstone.core.errors import BenchmarkError, OptionError
from pytest_touchstone.core.files import load_module, shipped_evals
from pytest_touchstone.core.requests import FillMask, Generate, Loglikelihood, RunProgram
from pytest_touchstone.core.tasks import (
    TAGS,
    TaskSelection,
    benchmark_names_in,
    declared_groups,
    shipped_groups,
    shipped_names,
    tags_of,
    task_groups,
)
from tests.conformance.kit import kits
from tests.support.lines import naming
from tests.support.places import ROOT


def one(name: str, asks: Any = Loglikelihood, **more: Any) -> Benchmark:
    from pytest_touchstone import benchmark

    @benchmark(name, version=1, data=f"{name}/test", asks=asks, primary="acc", **more)
    def test_it(example: Any) -> Any:
        yield

    found = declaration_of(test_it)
    assert found is not None
    return found


SUBJECTS = {"astronomy": 3, "machine_learning": 4}
BENCHMARKS = (
    one("arc_easy"),
    one("arc_challenge"),
    one("mmlu_stem", group="subject", published=Published(SUBJECTS)),
    one("gsm8k", Generate, tags=("math", "mathematics")),
    one("math", Generate, tags=("math", "mathematics"), group="subject", published=Published({"Algebra": 2})),
    one("mbpp", (Generate, RunProgram)),
    one("real_coref", FillMask, tags=("korean",)),
)
NAMES = [spec.name for spec in BENCHMARKS]
KNOWN = [(spec, declared_groups(spec, None)) for spec in BENCHMARKS]


def chosen(*texts: str) -> list[str]:
    tasks = TaskSelection.of(texts, names=NAMES)
    return [spec.name for spec in BENCHMARKS if tasks.chosen(spec)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("arc_easy,gsm8k", ["arc_easy", "gsm8k"]),
        (" ARC_easy , gsm8k", ["arc_easy", "gsm8k"]),
        ("arc_*", ["arc_easy", "arc_challenge"]),
        ("masked", ["real_coref"]),
        ("korean", ["real_coref"]),
        ("code", ["mbpp"]),
        ("generation", ["gsm8k", "math", "mbpp"]),
        ("scoring", ["arc_easy", "arc_challenge", "mmlu_stem"]),
        ("math", ["math"]),
        ("Math", ["math"]),
        ("mathematics", ["gsm8k", "math"]),
        ("mathematics,-math", ["gsm8k"]),
        ("math/*", ["math"]),
        ("mmlu_stem/astronomy", ["mmlu_stem"]),
        ("causal,-code,-arc*", ["mmlu_stem", "gsm8k", "math"]),
        ("-causal", ["real_coref"]),
        ("-mmlu_stem/astronomy", NAMES),
    ],
)
def test_a_term_is_a_name_a_tag_or_a_pattern(text: str, names: list[str]) -> None:
    assert chosen(text) == names
    assert TaskSelection.of([text]).unknown(KNOWN) is None


def test_without_terms_every_benchmark_is_chosen_and_several_options_add_up() -> None:
    assert chosen() == NAMES
    assert chosen("arc_easy", "code,masked") == chosen("arc_easy,code,masked")


def test_of_a_benchmark_only_the_named_groups_are_taken() -> None:
    mmlu = BENCHMARKS[2]
    within, without = (
        TaskSelection.of(["mmlu_stem/astro*"]),
        TaskSelection.of(["mmlu*", "-mmlu_stem/astronomy"]),
    )
    assert [group for group in SUBJECTS if within.takes(mmlu, group)] == ["astronomy"]
    assert [group for group in SUBJECTS if without.takes(mmlu, group)] == ["machine_learning"]
    assert not within.takes(mmlu, None)
    assert not within.takes(BENCHMARKS[0], None)


def test_a_subject_of_mmlu_is_meant_by_its_name_as_a_task_too() -> None:
    mmlu = one("mmlu", group="subject", published=Published({"virology": 2, "marketing": 3}))
    tasks = TaskSelection.of(["mmlu_virology"])
    assert tasks.unknown([(mmlu, ("virology", "marketing"))]) is None
    assert (tasks.chosen(mmlu), tasks.takes(mmlu, "virology"), tasks.takes(mmlu, "marketing")) == (
        True,
        True,
        False,
    )
    without = TaskSelection.of(["mmlu", "-mmlu_virology"])
    assert (without.chosen(mmlu), without.takes(mmlu, "virology"), without.takes(mmlu, "marketing")) == (
        True,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("arc_chalenge", ("arc_challenge",)),
        ("arc", ("arc_easy", "arc_challenge")),
        ("gsm8k,-korea", ("korean",)),
        ("machine_learning", ("mmlu_stem/machine_learning",)),
        ("mmlu_stem/astro", ("mmlu_stem/astronomy",)),
        ("math/zzz", ("math/Algebra", "`touchstone benchmarks`")),
        ("arc_easy/x", ("no groups", "arc_easy")),
        ("zz*", ("arc_easy, arc_challenge, mmlu_stem",)),
    ],
)
def test_a_wrong_name_says_what_was_probably_meant(text: str, meant: tuple[str, ...]) -> None:
    line = TaskSelection.of([text]).unknown(KNOWN)
    assert naming(f"--eval-tasks {text.rpartition(',')[2]!r}", *meant).search(str(line))


GROUPS = {"board": "arc_challenge 25-shot, gsm8k 5-shot", "all": "board, arc_easy", "math": "gsm8k"}


def test_the_name_of_a_group_of_benchmarks_stands_for_its_terms() -> None:
    tasks = TaskSelection.of(["ALL,-gsm8k", "mmlu_stem/astronomy 3-shot"], GROUPS)
    found = {spec.name: tasks.shots(spec) for spec in BENCHMARKS if tasks.chosen(spec)}
    assert found == {"arc_easy": None, "arc_challenge": 25, "mmlu_stem": 3}
    assert tasks.takes(BENCHMARKS[2], "astronomy")
    assert not tasks.takes(BENCHMARKS[2], "machine_learning")
    without = TaskSelection.of(["-board"], GROUPS)
    assert [spec.name for spec in BENCHMARKS if not without.chosen(spec)] == ["arc_challenge", "gsm8k"]
    assert TaskSelection.of(["board 0-shot"], GROUPS).shots(BENCHMARKS[1]) == 0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "arc_easy 5-shot,arc* 10-shot",
            ("--eval-tasks 'arc_easy'", "arc_easy 5-shot", "arc* 10-shot"),
        ),
        ("boord", ("--eval-tasks 'boord'", "board")),
        ("arc_esy 5-shot", ("--eval-tasks 'arc_esy 5-shot'", "arc_easy")),
    ],
)
def test_a_run_has_one_number_of_shots_for_a_benchmark(text: str, names: tuple[str, ...]) -> None:
    groups = {name: line for name, line in GROUPS.items() if name != "math"}
    assert naming(*names).search(str(TaskSelection.of([text], groups).unknown(KNOWN)))


def test_a_group_has_no_name_of_a_benchmark_or_tag() -> None:
    assert naming("'math'", "rename").search(str(TaskSelection.of(["board"], GROUPS).unknown(KNOWN)))


def test_a_group_may_be_any_where_nobody_knows_the_groups() -> None:
    unknown = [(BENCHMARKS[2], declared_groups(BENCHMARKS[2], "a folder"))]
    assert TaskSelection.of(["mmlu_stem/botany"]).unknown(unknown) is None
    assert TaskSelection.of(["mmlu_stem/botany"]).unknown(KNOWN) is not None


@pytest.mark.parametrize("text", ["", "arc_easy,", ",", "-", "a,-,b", "mmlu_stem/", "/astronomy"])
def test_an_empty_name_is_a_mistake(text: str) -> None:
    with pytest.raises(ValueError, match="names, separated by commas"):
        TaskSelection.of([text])


@given(st.lists(st.sampled_from([*NAMES, *TAGS, "m*", "mmlu_stem/*"]), max_size=4), st.sampled_from(NAMES))
def test_what_is_left_out_by_name_is_never_chosen(terms: list[str], name: str) -> None:
    tasks = TaskSelection.of([*terms, f"-{name}"])
    (spec,) = (one for one in BENCHMARKS if one.name == name)
    assert not tasks.chosen(spec)
    assert not tasks.takes(spec, "astronomy")


@pytest.mark.parametrize("kit", list(kits()), ids=lambda kit: kit.spec.name)
def test_the_tags_of_shipped_benchmarks_follow_from_what_they_ask(kit: Any) -> None:
    asks, tags = set(kit.spec.asks), set(tags_of(kit.spec))
    serving = {kind for kind in ("causal", "masked") if asks - {RunProgram} <= set(SERVES[kind])}
    assert tags & {"causal", "masked"} == serving
    assert ("code" in tags) == (RunProgram in asks)
    assert len(tags & {"scoring", "generation", "masked"}) == 1


@pytest.mark.parametrize("tags", ["korean", ("a,b",), ("-x",), (1,), ("",)])
def test_a_tag_is_a_word(tags: Any) -> None:
    with pytest.raises(BenchmarkError, match="tags="):
        one("tagged", tags=tags)


def test_a_task_of_lm_eval_without_its_file_says_which_file_is_lacking() -> None:
    assert "test_lm_eval.py" in (TaskSelection.of(["lm_eval:arc_easy"]).unknown([]) or "")


FILES = sorted((ROOT / "evals").glob("test_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_benchmarks_of_a_shipped_file_are_read_as_they_are_declared(path: Path) -> None:
    found = map(declaration_of, vars(load_module(path, f"declared_{path.stem}")).values())
    assert sorted(benchmark_names_in(path)) == sorted(spec.name for spec in found if spec is not None)


def test_the_names_in_a_file_are_read_and_nothing_is_run(tmp_path: Path) -> None:
    path = tmp_path / "test_mine.py"
    path.write_text(
        "raise SystemExit\n"
        "@benchmark('one', **TASKS)\ndef test_one(example): ...\n"
        "@touchstone.benchmark(version=1, name='two')\ndef test_two(example): ...\n"
        "@benchmark(NAME)\ndef test_three(example): ...\n"
    )
    assert list(benchmark_names_in(path)) == ["one", "two"]


def test_a_file_that_cannot_be_read_has_no_benchmarks(tmp_path: Path) -> None:
    path = tmp_path / "test_broken.py"
    path.write_text("def (")
    assert list(benchmark_names_in(path)) == []
    assert list(benchmark_names_in(tmp_path / "none.py")) == []


def of(text: str, folder: Path) -> dict[str, str]:
    path = folder / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    return task_groups(path)


def shipped() -> list[Benchmark]:
    modules = [load_module(path, f"grouped_{path.stem}") for path in shipped_evals().glob("test_*.py")]
    return [spec for one in modules for value in vars(one).values() if (spec := declaration_of(value))]


def test_no_name_of_a_shipped_benchmark_tag_or_group_is_that_of_another() -> None:
    specs = shipped()
    tags = {*TAGS, *(tag for spec in specs for tag in tags_of(spec))}
    names = [name.casefold() for name in (*(spec.name for spec in specs), *tags, *shipped_groups())]
    assert len(specs) == len(shipped_names())
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_the_shipped_groups_name_benchmarks_that_there_are() -> None:
    specs = shipped()
    known = [(spec, None) for spec in specs]
    for name in shipped_groups():
        assert TaskSelection.of([name], shipped_groups()).unknown(known) is None
    tasks = TaskSelection.of(["leaderboard_v1"], shipped_groups())
    shots = {spec.name: tasks.shots(spec) for spec in specs if tasks.chosen(spec)}
    assert shots == {"arc_challenge": 25, "hellaswag": 10, "mmlu": 5, "winogrande": 5, "gsm8k": 5}


def test_a_project_has_groups_of_its_own_which_may_name_others(tmp_path: Path) -> None:
    found = of(
        '[tool.touchstone.groups]\nmine = "openllm, -gsm8k, piqa 3-shot"\nopenllm = "arc_easy"\n', tmp_path
    )
    terms = TaskSelection.of(["mine"], found).terms
    assert [(one.name, one.shots, one.out) for one in terms] == [
        ("arc_easy", None, False),
        ("gsm8k", None, True),
        ("piqa", 3, False),
    ]
    assert task_groups(tmp_path / "none.toml") == shipped_groups()


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("groups = 3", ("pyproject.toml", "[tool.touchstone.groups] is 3", "table")),
        ("groups.a = ['x']", ("[tool.touchstone.groups] a", "['x']", "text")),
        ("groups.a = 'x,,y'", ("[tool.touchstone.groups] a 'x,,y'", "commas")),
        ("groups.a = 'b'\ngroups.b = 'a'", ("a -> b -> a",)),
    ],
)
def test_a_wrong_line_is_named(table: str, names: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=naming(*names)):
        of(f"[tool.touchstone]\n{table}\n", tmp_path)
