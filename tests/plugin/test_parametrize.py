"""Each combination of a user's own parameters is a result of its own, wherever the parameters come from."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from pytest_touchstone.cli import main
from tests.support.forking import python
from tests.support.lines import missing
from tests.support.project import Project

STYLED = """
import pytest
from pytest_touchstone import Loglikelihood, benchmark

{above}

{mark}
@benchmark(name="styled", version=1, data="sums/test", asks=Loglikelihood, primary="acc")
def test_styled({arguments}):
    answer = yield Loglikelihood(example["q"], " " + str({value}))
    return {{"acc": {score}}}
"""

SCORE = 'example["n"] < len(str({value}))'


def styled(
    project: Project,
    mark: str = '@pytest.mark.parametrize("style", ["polite", "terse"])',
    arguments: str = "example, style",
    value: str = "style",
    above: str = "",
) -> None:
    """A benchmark that has as many items right as its parameter has letters."""
    text = STYLED.format(
        mark=mark, arguments=arguments, value=value, above=above, score=SCORE.format(value=value)
    )
    (project.path / "test_sums.py").write_text(text)


def results(project: Project) -> dict[str, tuple[float, int]]:
    return {
        one["name"]: (one["metrics"]["acc"]["value"], one["scored"]) for one in project.summary["results"]
    }


FIXTURE = '@pytest.fixture(scope="module", params=["polite", "terse"])\ndef style(request):\n    return request.param'
HOOK = (
    "def pytest_generate_tests(metafunc):\n"
    '    if "style" in metafunc.fixturenames:\n        metafunc.parametrize("style", ["polite", "terse"])'
)
INDIRECT = '@pytest.fixture(scope="module")\ndef style(request):\n    return request.param'

PLACES: dict[str, dict[str, str]] = {
    "a mark": {},
    "an indirect mark": {
        "mark": '@pytest.mark.parametrize("style", ["polite", "terse"], indirect=True)',
        "above": INDIRECT,
    },
    "a fixture": {"mark": "", "above": FIXTURE},
    "a fixture that is only used": {
        "mark": '@pytest.mark.usefixtures("style")',
        "arguments": "example",
        "value": '"same"',
        "above": FIXTURE,
    },
    "a hook of the module": {"mark": "", "above": HOOK},
    "a mark of the module": {
        "mark": "",
        "above": 'pytestmark = pytest.mark.parametrize("style", ["polite", "terse"])',
    },
}


@pytest.mark.parametrize("place", PLACES)
def test_each_value_of_a_parameter_is_a_result(project: Project, place: str) -> None:
    styled(project, **PLACES[place])
    assert project.run().ret == 0
    right = (4, 4) if "value" in PLACES[place] else (6, 5)
    assert results(project) == {
        "styled[polite]": (right[0] / 20, 20),
        "styled[terse]": (right[1] / 20, 20),
    }
    (run,) = project.runs
    saved = sorted(
        path.name for path in (run.parent / "saved").glob("*/*@*.json") if "items" not in path.name
    )
    assert len(saved) == 2
    assert all("[" not in name for name in saved)


def test_combinations_are_named_as_pytest_names_them(project: Project) -> None:
    mark = (
        '@pytest.mark.parametrize("style", ["polite", pytest.param("a/b", id="a/b")])\n'
        '@pytest.mark.parametrize("tone", [1, pytest.param(2, id=pytest.HIDDEN_PARAM)])'
    )
    styled(project, mark, "example, style, tone")
    result = project.run("--eval-limit", "2", "-v")
    assert list(results(project)) == ["styled[1-polite]", "styled[1-a_b]", "styled[polite]", "styled[a_b]"]
    result.stdout.fnmatch_lines(["*::test_styled[[]1-polite-styled/0[]]*", "  styled[[]1-polite[]]*acc*"])
    assert {record.benchmark for record in read(project)} == set(results(project))


def read(project: Project) -> list[Any]:
    from pytest_touchstone.results.journal import latest_records, read_journal

    (run,) = project.runs
    return list(latest_records(read_journal(run)).values())


def test_two_combinations_of_one_name_are_refused(project: Project) -> None:
    mark = '@pytest.mark.parametrize("style", ["a/b", "a_b"])'
    styled(project, mark)
    result = project.run()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: two combinations *styled[[]a_b[]]; *"])


@pytest.mark.parametrize(
    "arguments",
    [["--eval-set", "batch_items=3"], ["-n", "2", "--eval-set", "batch_items=3"]],
    ids=" ".join,
)
def test_neither_workers_nor_units_matter(project: Project, arguments: list[str]) -> None:
    styled(project)
    assert project.run(*arguments).ret == 0
    assert results(project) == {"styled[polite]": (0.3, 20), "styled[terse]": (0.25, 20)}


def test_a_combination_that_is_selected_is_whole(project: Project) -> None:
    styled(project)
    project.run("-k", "polite")
    (found,) = project.summary["results"]
    assert (found["name"], found["scored"], found["of"], found["mark"]) == ("styled[polite]", 20, 20, "")


def test_several_checkpoints_keep_their_results_apart(project: Project) -> None:
    styled(project)
    result = project.run(
        "--checkpoint", "fake:masked", "--checkpoint", "fake:causal", "--eval-limit", "3", "-v"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*::test_styled[[]fake-causal-polite-styled/0[]]*"])
    assert list(results(project)) == ["styled[polite]", "styled[terse]"]


def test_a_gate_judges_each_by_the_bounds_of_its_own_or_of_the_benchmark(project: Project) -> None:
    styled(project)
    (project.path / "g.toml").write_text('baseline = "none"\n[benchmarks.styled]\nfloors = ["acc >= 0.28"]\n')
    low = project.run("--gate", "--eval-set", "gate_config=g.toml", "--eval-run-id", "one")
    assert low.ret == 8
    low.stdout.fnmatch_lines(["*exit code 8): styled[[]terse[]] acc*0.28:*"])
    with (project.path / "g.toml").open("a") as file:
        file.write('[benchmarks."styled[terse]"]\nfloors = ["acc >= 0.2"]\n')
    assert project.run("--gate", "--eval-set", "gate_config=g.toml", "--eval-run-id", "two").ret == 0
    assert project.run("--gate", "--eval-run-id", "three").ret == 0
    gate = json.loads((project.path / "results/three/summary.json").read_text())["gate"]
    assert [(line["benchmark"], line["verdict"]) for line in gate["lines"]] == [
        ("styled[polite]", "not worse"),
        ("styled[terse]", "not worse"),
    ]
    compared = subprocess.run(
        [python(), "-m", "pytest_touchstone.cli", "compare", "one", "two"],
        cwd=project.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "styled[polite]" in compared.stdout, compared


def test_a_benchmark_that_stops_early_does_so_for_each(project: Project) -> None:
    project.rows(40)
    styled(project)
    for name in ("one", "two"):
        result = project.run("--gate", "--eval-set=gate_sequential", "--eval-run-id", name)
        assert result.ret == 0
    schedules = json.loads((project.path / "results/two/details/schedules.json").read_text())
    assert [row["benchmark"] for row in schedules["schedules"]] == ["styled[polite]", "styled[terse]"]


def test_scoring_again_leaves_out_what_only_pytest_can_give(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    styled(project)
    project.run("--eval-limit", "2")
    (run,) = project.runs
    capsys.readouterr()
    assert main(["score", str(run)]) == 0
    assert not missing(capsys.readouterr().out, "0 with another verdict", "4 not scored again")


MARKED = """
import pytest
from pytest_touchstone import Loglikelihood, benchmark


@pytest.mark.parametrize("style", [pytest.param("polite", marks=pytest.mark.kind), "terse"])
@pytest.mark.parametrize("tone", [1, 2])
@pytest.mark.sums
@benchmark(name="styled", version=1, data="sums/test", asks=Loglikelihood, primary="acc")
def test_styled(example, style, tone, fewshot):
    answer = yield Loglikelihood(example["q"], f" {style} {tone}")
    return {"acc": answer.is_greedy}
"""


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("-m", "kind"), 10),
        (("-m", "sums and not kind"), 10),
        (("-k", "terse and 3"), 2),
        (("test_sums.py::test_styled[1-terse-styled/3]",), 1),
        (("--deselect", "test_sums.py::test_styled[1-terse-styled/3]"), 19),
    ],
)
def test_items_are_chosen_as_ever(project: Project, arguments: tuple[str, ...], count: int) -> None:
    project.rows(5)
    (project.path / "test_sums.py").write_text(MARKED)
    (project.path / "pytest.ini").write_text("[pytest]\nmarkers =\n    sums: sums\n    kind: kind\n")
    project.run(*arguments).assert_outcomes(passed=count, deselected=20 - count if count > 1 else 0)


def test_parameters_may_be_given_after_all_others(project: Project) -> None:
    class Late:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Any:
            found = yield
            metafunc.parametrize("late", ["a", "b"])
            return found

    class Register:
        def __init__(self) -> None:
            self.names: set[str] = set()

        def pytest_pycollect_makeitem(self, collector: pytest.Module, name: str) -> None:
            if name == "test_sums" and not collector.config.pluginmanager.has_plugin("late"):
                collector.config.pluginmanager.register(Late(), "late")

        def pytest_runtest_call(self, item: pytest.Item) -> None:
            self.names.add(item.name)

    text = (
        (project.path / "test_sums.py").read_text().replace("(example, fewshot)", "(example, fewshot, late)")
    )
    text = text.replace('{"acc"', '{"late": late == "a", "acc"').replace(
        '("acc", "margin")', '("acc", "margin", "late")'
    )
    (project.path / "test_sums.py").write_text(text)
    register = Register()
    project.run(plugins=[register]).assert_outcomes(passed=40)
    assert register.names == {f"test_sums[sums/{n}-{late}]" for n in range(20) for late in "ab"}
