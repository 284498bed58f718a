"""Groups of benchmarks: the shipped lines name what there is, and a project's own go before them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pytest_touchstone.core.benchmark import Benchmark, declared
from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.files import load_module, shipped_evals
from pytest_touchstone.core.tasks import TAGS, Tasks, shipped_groups, shipped_names, tags_of, task_groups


def of(text: str, folder: Path) -> dict[str, str]:
    path = folder / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    return task_groups(path)


def shipped() -> list[Benchmark]:
    modules = [load_module(path, f"grouped_{path.stem}") for path in shipped_evals().glob("test_*.py")]
    return [spec for one in modules for value in vars(one).values() if (spec := declared(value))]


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
        assert Tasks.of([name], shipped_groups()).unknown(known) is None
    tasks = Tasks.of(["leaderboard_v1"], shipped_groups())
    shots = {spec.name: tasks.shots(spec) for spec in specs if tasks.chosen(spec)}
    assert shots == {"arc_challenge": 25, "hellaswag": 10, "mmlu": 5, "winogrande": 5, "gsm8k": 5}


def test_a_project_has_groups_of_its_own_which_may_name_others(tmp_path: Path) -> None:
    found = of(
        '[tool.touchstone.groups]\nmine = "openllm, -gsm8k, piqa 3-shot"\nopenllm = "arc_easy"\n', tmp_path
    )
    terms = Tasks.of(["mine"], found).terms
    assert [(one.name, one.shots, one.out) for one in terms] == [
        ("arc_easy", None, False),
        ("gsm8k", None, True),
        ("piqa", 3, False),
    ]
    assert task_groups(tmp_path / "none.toml") == shipped_groups()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("groups = 3", r"pyproject.toml: \[tool.touchstone.groups\] is 3; expected a table"),
        ("groups.a = ['x']", r"groups\] a is \['x'\]; expected a text such as"),
        (
            "groups.a = 'x,,y'",
            r"invalid \[tool.touchstone.groups\] a 'x,,y': expected names, separated by commas",
        ),
        ("groups.a = 'b'\ngroups.b = 'a'", r"expected a group that does not name itself \(a -> b -> a\)"),
    ],
)
def test_a_wrong_line_is_named(table: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=said):
        of(f"[tool.touchstone]\n{table}\n", tmp_path)
