"""``--eval-tasks`` chooses benchmarks of any folder, beside ``-k`` and node ids; rows of others are not read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.lines import missing
from tests.support.mistakes import refused

Project = Any

FILE = '''
from pathlib import Path

from pytest_touchstone import Loglikelihood, Published, Shots, benchmark


def noted(row):
    Path("{name}.read").touch()
    return row


@benchmark(
    "{name}", version=1, data="sums/test", asks=Loglikelihood, primary="acc", prepare=noted, {more}
)
def test_of_{file}(example):
    """Nothing."""
    yield Loglikelihood(example["q"], " 1")
    return {{"acc": 1.0}}
'''


@pytest.fixture
def folder(project: Project) -> Project:
    """Three benchmarks in folders of somebody's own, one of them with groups."""
    (project.path / "test_sums.py").unlink()
    (project.path / "mine" / "deeper").mkdir(parents=True)
    rows = "".join(f'{{"q": "{n}", "part": "{part}"}}\n' for part in ("odd", "even") for n in range(4))
    (project.path / "data" / "sums" / "test.jsonl").write_text(rows)
    for place, name, more in (
        ("mine/test_one.py", "first", 'tags=("easy",)'),
        ("mine/test_two.py", "second", 'tags=("easy",)'),
        ("mine/deeper/test_three.py", "third", 'group="part"'),
    ):
        file = place.rpartition("_")[2].removesuffix(".py")
        (project.path / place).write_text(FILE.format(name=name, file=file, more=more))
    return project


def read(project: Project) -> set[str]:
    """The benchmarks whose rows were read since the last call."""
    found = list(project.path.glob("*.read"))
    for path in found:
        path.unlink()
    return {path.stem for path in found}


def scored(project: Project) -> dict[str, int]:
    """The numbers of items that the only run has scored, by benchmark."""
    examples = [example.partition("/")[0] for example in project.scores()]
    return {name: examples.count(name) for name in sorted(set(examples))}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--eval-tasks", "first,third"], {"first": 8, "third": 8}),
        (["--eval-tasks", "third/odd"], {"third": 4}),
        (["--eval-tasks", "easy", "--eval-tasks=-second"], {"first": 8}),
        (["--eval-tasks", "*ir*", "-k", "first/3 or third/odd/2"], {"first": 1, "third": 1}),
        (["--eval-tasks", "second", "mine/test_two.py::test_of_two[second/5]"], {"second": 1}),
        (["--eval-tasks", "third/odd", "--eval-limit", "1", "mine/deeper"], {"third": 1}),
    ],
    ids=" ".join,
)
def test_what_is_named_is_scored_and_no_other_row_is_read(
    folder: Project, arguments: list[str], found: dict[str, int]
) -> None:
    result = folder.run(*arguments)
    assert result.ret == 0
    assert scored(folder) == found
    assert read(folder) == set(found)


def tag(folder: Project, file: str, own: str) -> None:
    """Give a benchmark that has a form of few-shot examples this tag."""
    path = folder.path / "mine" / file
    shot = 'prepare=noted, shots=Shots(shot=lambda row: row["q"]),'
    path.write_text(path.read_text().replace('"easy"', f'"{own}"').replace("prepare=noted,", shot))


@pytest.mark.parametrize(("file", "name"), [("test_one.py", "second"), ("test_two.py", "first")])
@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_name_of_a_benchmark_is_not_a_tag_whichever_is_collected_first(
    folder: Project, file: str, name: str, workers: str
) -> None:
    tag(folder, file, name)
    assert folder.run("--eval-tasks", name, "-n", workers, apart=workers == "2").ret == 0
    assert scored(folder) == {name: 8}


@pytest.mark.parametrize("tasks", ["-second", "first,second 3-shot"])
def test_a_tag_that_is_known_too_late_for_the_name_of_a_benchmark_is_refused(
    folder: Project, tasks: str
) -> None:
    tag(folder, "test_one.py", "second")
    refused(folder.run(f"--eval-tasks={tasks}"), "first: a tag of it is the name of another benchmark")


def test_a_group_of_the_project_gives_its_benchmarks_shots_of_their_own(folder: Project) -> None:
    for path in (folder.path / "mine").glob("test_*.py"):
        text = path.read_text().replace(
            "prepare=noted,", 'prepare=noted, shots=Shots(shot=lambda row: row["q"]),'
        )
        path.write_text(text)
    table = '[tool.touchstone.groups]\nboard = "first 3-shot, second"\n'
    (folder.path / "pyproject.toml").write_text(table)
    assert folder.run("--eval-tasks", "board,third").ret == 0
    shots = {row["name"]: row["few_shot"]["num_fewshot"] for row in folder.summary["results"]}
    assert (shots["first"], shots["second"], shots["third"]) == (3, 0, 0)
    refused(
        folder.run("--eval-tasks", "board,first 5-shot"), "'first'", "first 3-shot and first 5-shot are two"
    )


def test_shots_by_hand_go_before_those_of_a_group(folder: Project) -> None:
    path = folder.path / "mine" / "test_one.py"
    path.write_text(
        path.read_text().replace("prepare=noted,", 'prepare=noted, shots=Shots(shot=lambda row: row["q"]),')
    )
    folder.run("--eval-tasks", "first 3-shot", "--eval-shots", "1")
    assert [row["few_shot"]["num_fewshot"] for row in folder.summary["results"]] == [1]


def test_workers_choose_the_same(folder: Project) -> None:
    assert folder.run("-n", "2", "--eval-tasks", "third/even,second").ret == 0
    assert scored(folder) == {"second": 8, "third": 4}


def test_a_part_of_a_benchmark_says_so(folder: Project) -> None:
    folder.run("--eval-tasks", "third/odd")
    (whole,) = [row for row in folder.summary["results"] if row["group"] is None]
    assert (whole["scored"], whole["of"]) == (4, 8)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_wrong_name_is_one_line_before_anything_runs(folder: Project, workers: str) -> None:
    result = folder.run("--eval-tasks", "first,thrid", "-n", workers, apart=True)
    refused(result, "invalid --eval-tasks 'thrid': no such benchmark or tag; did you mean third?")
    assert folder.runs == []


def test_a_name_is_looked_for_among_what_is_collected(folder: Project) -> None:
    refused(folder.run("--eval-tasks", "first", "mine/test_two.py"), "'first'", "there are second")


def test_a_file_that_cannot_be_imported_is_the_mistake_not_the_names_in_it(folder: Project) -> None:
    (folder.path / "mine" / "test_two.py").write_text("import no_such_module\n")
    result = folder.run("--eval-tasks", "second")
    assert result.ret == 2
    assert "no_such_module" in str(result.stdout)
    assert "invalid --eval-tasks" not in str(result.stdout) + str(result.stderr)


def test_choices_that_leave_nothing_say_so(folder: Project) -> None:
    result = folder.run("--eval-tasks", "first", "-k", "second")
    assert result.ret == 5
    (line,) = [line for line in result.outlines if "exit code" in line]
    assert not missing(line, 5, "3 benchmarks", "--eval-tasks 'first' -k 'second'")


def test_plain_tests_are_not_chosen_by_it(folder: Project) -> None:
    (folder.path / "test_plain.py").write_text("def test_plain(): pass\n")
    folder.run("--eval-tasks", "first").assert_outcomes(passed=9, deselected=2)


@pytest.mark.parametrize(
    ("keyword", "listed"),
    [
        ("not (first or second)", {"third"}),
        ("test_of_two and not third", {"second"}),
        ("second/3", {"second"}),
        ("first or odd", {"first", "third"}),
        ("7", {"first", "second"}),
    ],
)
def test_keywords_choose_among_the_items(folder: Project, keyword: str, listed: set[str]) -> None:
    result = folder.run("-k", keyword, "--co", "-q")
    assert {line.partition("[")[2].partition("/")[0] for line in result.outlines if "[" in line} == listed


def test_a_keyword_may_be_a_parameter_of_somebody_else(folder: Project) -> None:
    path = folder.path / "mine" / "test_one.py"
    path.write_text(
        path.read_text()
        .replace("@benchmark", '@pytest.mark.parametrize("style", ["polite"])\n@benchmark')
        .replace("(example)", "(example, style)")
        .replace("from pytest_touchstone", "import pytest\nfrom pytest_touchstone", 1)
    )
    folder.run("-k", "polite", "--co", "-q").stdout.fnmatch_lines(["*polite-first/0*"])


def test_a_keyword_that_items_get_later_chooses_too(folder: Project) -> None:
    (folder.path / "conftest.py").write_text(
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n        item.extra_keyword_matches.add('late')\n"
    )
    folder.run("-k", "late and third", "--co", "-q").stdout.fnmatch_lines(["*third/*"])
