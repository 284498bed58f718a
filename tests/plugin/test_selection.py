"""Benchmarks that nobody selects cannot stop a run or print in it; selected ones that cannot be asked are named."""

from __future__ import annotations

import json

import pytest

from tests.support.lines import missing
from tests.support.mistakes import refused
from tests.support.project import Project

FINE = """
from pytest_touchstone import Loglikelihood, Shots, benchmark


@benchmark(name="fine", version=1, data="sums/test", asks=Loglikelihood, primary="acc",
           shots=Shots(shot=lambda row: row["q"]))
def test_fine(example, fewshot):
    yield Loglikelihood(fewshot.text + example["q"], " 1")
    return {"acc": 1.0}
"""

STRANGE = {
    "a broken row": ('data="broken/test", asks=Loglikelihood', "example", "row 2: not valid JSON"),
    "too few rows for the shots": (
        'data="few/test", asks=Loglikelihood, shots=Shots(9, lambda row: "")',
        "example",
        "9 few-shot examples asked for",
    ),
    "no data": (
        'data="none/test", asks=Loglikelihood',
        "example",
        "strange (data/none/test.jsonl): the data folder has no",
    ),
    "another kind of checkpoint": ('data="sums/test", asks=FillMask', "example", "asks FillMask, which"),
    "a package that is missing": (
        'data="sums/test", asks=Loglikelihood, needs={"no_such_package": "pip install it"}',
        "example",
        "needs the package no_such_package",
    ),
    "a name that another has": (
        'data="sums/test", asks=Loglikelihood',
        "example",
        "two benchmarks are named 'fine'",
    ),
    "a fixture of one function": (
        'data="sums/test", asks=Loglikelihood',
        "example, one",
        "'one' is function-scoped",
    ),
    "no argument named example": (
        'data="sums/test", asks=Loglikelihood',
        "row=1",
        "takes no argument named 'example'",
    ),
}
LEFT_OUT = (
    *("too few rows for the shots", "no data"),
    *("another kind of checkpoint", "a package that is missing"),
)


def strange(project: Project, fault: str) -> str:
    """Puts a benchmark with this fault beside one that is fine; the text that tells the fault."""
    declared, arguments, text = STRANGE[fault]
    (project.path / "test_sums.py").unlink()
    (project.path / "test_fine.py").write_text(FINE)
    name = "fine" if fault == "a name that another has" else "strange"
    (project.path / "test_strange.py").write_text(
        "import pytest\nfrom pytest_touchstone import FillMask, Loglikelihood, Shots, benchmark\n\n"
        "@pytest.fixture\ndef one():\n    return 1\n\n"
        f'@pytest.mark.odd\n@benchmark(name="{name}", version=1, primary="acc", {declared})\n'
        f'def test_strange({arguments}):\n    yield Loglikelihood("a", " b")\n    return {{"acc": 1.0}}\n'
    )
    (project.path / "pytest.ini").write_text("[pytest]\nmarkers = odd: odd ones\n")
    for folder, rows in (("broken", '{"q": "1"}\n{\n'), ("few", '{"q": "1"}\n{"q": "2"}\n')):
        (project.path / "data" / folder).mkdir()
        (project.path / "data" / folder / "test.jsonl").write_text(rows)
    return text


@pytest.mark.parametrize("fault", STRANGE)
def test_a_benchmark_that_nobody_selects_neither_stops_the_run_nor_speaks(
    project: Project, fault: str
) -> None:
    said = strange(project, fault)
    node = "test_strange.py"
    ways = (["-k", "test_fine"], ["-m", "not odd"], ["--deselect", node], ["test_fine.py::test_fine[fine/3]"])
    for place, way in enumerate(ways):
        run = f"run{place}"
        result = project.run(*way, "--eval-run-id", run)
        assert result.ret == 0, way
        assert said not in str(result.stdout) + str(result.stderr), way
        summary = json.loads((project.path / "results" / run / "summary.json").read_text())
        assert [found["scored"] for found in summary["results"]] == [1 if "::" in way[0] else 20]
        assert summary["deselected"] == []
    assert said not in str(project.run("--co", "-k", "test_fine").stdout)


@pytest.mark.parametrize("fault", STRANGE)
def test_one_that_is_selected_is_named_or_stops_the_run(project: Project, fault: str) -> None:
    said = strange(project, fault)
    result = project.run()
    if fault not in LEFT_OUT:
        refused(result, said)
        return
    assert result.ret == 0
    assert said in " ".join(str(result.stdout).split()).replace(" left out ", " ")
    assert any(said in line for line in project.summary["deselected"])
    assert [found["scored"] for found in project.summary["results"]] == [20]


def test_workers_agree_about_what_is_selected(project: Project) -> None:
    said = strange(project, "a broken row")
    assert project.run("-n", "2", "-k", "test_fine").ret == 0
    assert len(project.records) == 20
    refused(project.run("-n", "2"), said)


def test_last_failed_hears_nothing_of_what_did_not_fail(project: Project) -> None:
    said = strange(project, "too few rows for the shots")
    path = project.path / "test_fine.py"
    path.write_text(path.read_text().replace("    return", '    assert example["n"] != 3\n    return'))
    arguments = ("--checkpoint", "fake:causal", "--eval-data", "data")
    assert said in str(project.pytester.runpytest(*arguments).stdout)
    project.scores()
    again = project.pytester.runpytest(*arguments, "--lf")
    again.assert_outcomes(failed=1)
    assert said not in str(again.stdout)


@pytest.mark.parametrize(
    "selection",
    [["-k", "strange/1"], ["-k", "strange and 1"], ["-k", "1"], ["test_strange.py::test_strange[strange/1]"]],
    ids=" ".join,
)
def test_an_example_of_a_benchmark_whose_rows_cannot_be_read_is_a_selection_of_it(
    project: Project, selection: list[str]
) -> None:
    said = strange(project, "a broken row")
    refused(project.run(*selection), said)


def test_a_benchmark_that_cannot_give_the_shots_is_left_out_unless_it_is_the_only_one(
    project: Project,
) -> None:
    said = strange(project, "too few rows for the shots")
    refused(project.run("-k", "strange"), said)
    assert project.runs == []


def test_what_stands_for_an_unknown_example_is_no_selected_item(project: Project) -> None:
    strange(project, "no data")
    project.run().stdout.fnmatch_lines(["collected 21*1 deselected*20 selected"])


def test_plain_tests_are_not_troubled_by_a_benchmark_beside_them(project: Project) -> None:
    strange(project, "a broken row")
    (project.path / "test_plain.py").write_text("def test_plain(): pass\n")
    result = project.run("-k", "plain")
    assert result.ret == 0
    result.assert_outcomes(passed=1, deselected=21)
    assert not [line for line in result.outlines if "benchmarks" in line or "left out" in line]
    assert not (project.path / "results").exists()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_selection_of_nothing_is_one_line_with_the_nearest_names(project: Project, workers: str) -> None:
    strange(project, "a broken row")
    result = project.run("-k", "finne/3 and not slow", "-n", workers)
    assert result.ret == 5
    (line,) = [line for line in result.outlines if "exit code" in line]
    assert line.endswith("; nearest: fine")
    assert not missing(line, "exit code 5", "2 benchmarks", "-k 'finne/3 and not slow'")
    assert not (project.path / "results").exists()
