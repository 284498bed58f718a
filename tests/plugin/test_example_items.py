"""Every example is an ordinary pytest item: selection, order and stopping work as they do for tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.lines import missing
from tests.support.project import Project
from tests.support.tiny import tiny_causal


def test_a_benchmark_file_of_ones_own_is_scored_item_by_item(project: Project) -> None:
    result = project.run("-v")
    assert result.ret == 0
    result.assert_outcomes(passed=20)
    result.stdout.fnmatch_lines(
        ["*test_sums.py::test_sums[[]sums/0[]] [01].00 *", "*benchmarks*", "*sums*acc*"]
    )
    assert set(project.records) == {f"sums/{n}" for n in range(20)}
    assert project.summary["results"][0]["scored"] == 20


def test_letters_carry_the_score_and_the_bar_stays_green(project: Project) -> None:
    result = project.run("--color=yes")
    dots = next(line for line in result.outlines if line.startswith("test_sums.py "))
    assert {"+", "-"} & set(dots)
    assert "\x1b[33m" not in dots
    assert "20 passed" in result.outlines[-1]
    assert "\x1b[32m" in result.outlines[-1]


@pytest.mark.parametrize(
    ("arguments", "examples"),
    [
        (["-k", "sums/7"], {7}),
        (["-k", "sums/1 and not sums/11"], {1, 10, *range(12, 20)}),
        (["test_sums.py::test_sums[sums/3]"], {3}),
        (["--eval-limit", "5"], set(range(5))),
        (["--eval-limit", "0.2"], set(range(4))),
        (["--eval-limit", "0.01"], {0}),
        (["--deselect", "test_sums.py::test_sums[sums/0]", "--eval-limit", "3"], {1, 2}),
    ],
)
def test_selected_items_are_run_and_no_others(
    project: Project, arguments: list[str], examples: set[int]
) -> None:
    assert project.run(*arguments).ret == 0
    assert set(project.records) == {f"sums/{n}" for n in examples}


def test_marks_select_benchmarks(project: Project) -> None:
    text = (project.path / "test_sums.py").read_text()
    (project.path / "test_sums.py").write_text(
        "import pytest\n" + text.replace("@benchmark", "@pytest.mark.quick\n@benchmark")
    )
    (project.path / "pytest.ini").write_text("[pytest]\nmarkers = quick: quick ones\n")
    assert project.run("-m", "not quick").ret == 5
    assert project.run("-m", "quick").ret == 0


def test_collecting_only_lists_the_items_and_writes_nothing(project: Project) -> None:
    result = project.run("--co", "-q")
    result.stdout.fnmatch_lines(
        ["test_sums.py::test_sums[[]sums/0[]]", "test_sums.py::test_sums[[]sums/19[]]"]
    )
    assert project.runs == []


def test_last_failed_runs_the_failed_items_alone(project: Project) -> None:
    project.write("assert example['n'] not in (3, 7)")
    first = project.pytester.runpytest("--checkpoint", "fake:causal", "--eval-data", "data")
    assert first.ret == 9
    project.scores()
    again = project.pytester.runpytest("--checkpoint", "fake:causal", "--eval-data", "data", "--lf")
    again.assert_outcomes(failed=2)
    assert set(project.records) == {"sums/3", "sums/7"}


def test_stepwise_goes_on_where_it_stopped(project: Project) -> None:
    project.write("assert example['n'] != 5")
    for passed, deselected in ((5, 0), (0, 5)):
        result = project.pytester.runpytest("--checkpoint", "fake:causal", "--eval-data", "data", "--sw")
        result.assert_outcomes(passed=passed, failed=1, deselected=deselected)
        result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_exitfirst_stops_and_every_item_has_a_record(project: Project) -> None:
    project.write("assert example['n'] != 5")
    result = project.run("-x", "--eval-set", "batch_items=8")
    result.assert_outcomes(passed=5, failed=1)
    statuses = {example: record.status for example, record in project.records.items()}
    assert len(statuses) == 20
    assert statuses["sums/5"] == "error"
    assert statuses["sums/7"] == "scored"  # its unit was computed before pytest stopped
    assert statuses["sums/8"] == "lost"
    assert "stopped early" in str(project.records["sums/8"].message)
    assert result.ret == 9


def test_the_next_unit_is_begun_before_one_is_answered_and_each_item_once(project: Project) -> None:
    project.write("note('answered')")
    note = "def note(what):\n    with open('noted', 'a') as file:\n        file.write(what + ' ')\n\n"
    text = (project.path / "test_sums.py").read_text()
    text = text.replace("    right, wrong", "    note('begun')\n    right, wrong")
    (project.path / "test_sums.py").write_text(note + text)
    assert project.run("--eval-set", "batch_items=8").ret == 0
    noted = [word[0] for word in (project.path / "noted").read_text().split()]
    assert "".join(noted) == "b" * 16 + "a" * 8 + "b" * 4 + "a" * 12


@pytest.mark.parametrize(
    ("kind", "arguments", "first"),
    [
        ("Generate", (), 600),
        ("Generate", ("--eval-set", "batch_items=64"), 128),
        ("Generate", ("-n", "1"), 64),
        ("Loglikelihood", (), 128),
    ],
)
def test_many_texts_are_generated_together_unless_said_otherwise(
    project: Project, kind: str, arguments: tuple[str, ...], first: int
) -> None:
    count = max(200, first)
    project.rows(count)
    (project.path / "test_sums.py").write_text(
        f"""
from pytest_touchstone import Generate, Loglikelihood, benchmark

def note(what):
    with open("noted", "a") as file:
        file.write(what)

@benchmark(name="sums", version=1, data="sums/test", asks={kind}, primary="acc")
def test_sums(example):
    note("b")
    yield {"Generate(example['q'], max_new_tokens=3)" if kind == "Generate" else "Loglikelihood('a', 'b')"}
    note("a")
    return {{"acc": 1.0}}
"""
    )
    assert project.run(*arguments, apart="-n" in arguments).ret == 0
    noted = (project.path / "noted").read_text()
    assert (noted.index("a"), noted.count("b"), noted.count("a")) == (first, count, count)


def test_a_benchmark_that_also_runs_programs_suits_the_same_checkpoints(project: Project) -> None:
    text = (project.path / "test_sums.py").read_text()
    text = text.replace("asks=Loglikelihood", "asks=(Loglikelihood, RunProgram)")
    (project.path / "test_sums.py").write_text(
        "from pytest_touchstone.core.requests import RunProgram\n" + text
    )
    result = project.run("--co", "-q", "--eval-limit", "2", "--checkpoint", "fake:masked")
    found = [line for line in result.outlines if line.startswith(("test_sums", "deselected"))]
    assert found[1:] == [f"test_sums.py::test_sums[fake-causal-sums/{n}]" for n in range(2)]
    assert not missing(found[0], "deselected sums", "Loglikelihood", "fake-masked (masked LM)")


def test_parameters_of_ones_own_do_not_tear_units_apart(project: Project) -> None:
    project.write("note('ended', style)")
    note = "import pytest\n\ndef note(*what):\n    with open('noted', 'a') as file:\n"
    note += "        file.write('-'.join(what) + ' ')\n\n"
    text = (
        (project.path / "test_sums.py").read_text().replace("(example, fewshot)", "(example, fewshot, style)")
    )
    text = text.replace("@benchmark(", "@pytest.mark.parametrize('style', ['x', 'y'])\n@benchmark(")
    text = text.replace("    right, wrong", "    note('begun', style)\n    right, wrong")
    (project.path / "test_sums.py").write_text(note + text)
    project.rows(4)
    project.run("--eval-set", "batch_items=8").assert_outcomes(passed=8)
    noted = (project.path / "noted").read_text().split()
    assert noted[:8] in ([f"begun-{style}"] * 4 + [f"ended-{style}"] * 4 for style in "xy")


def test_generators_begun_for_a_unit_that_never_comes_are_closed(project: Project) -> None:
    project.write("assert example['n'] != 5")
    text = (project.path / "test_sums.py").read_text()
    text = text.replace("    right, wrong = yield", "    try:\n        right, wrong = yield")
    text += "    finally:\n        with open('closed', 'a') as file:\n            file.write(str(example['n']) + ' ')\n"
    text = text.replace("    assert", "        assert").replace("    return", "        return")
    (project.path / "test_sums.py").write_text(text)
    assert project.run("-x", "--eval-set", "batch_items=8").ret == 9
    assert sorted(map(int, (project.path / "closed").read_text().split())) == list(range(16))
    assert project.records["sums/8"].status == "lost"


def test_an_interrupt_while_the_next_unit_begins_closes_the_one_that_should_run(project: Project) -> None:
    project.write()
    note = "def note(what):\n    with open('noted', 'a') as file:\n        file.write(f'{what} ')\n\n"
    text = (project.path / "test_sums.py").read_text()
    question = "    right, wrong = yield"
    guarded = f"    if example['n'] == 8:\n        raise KeyboardInterrupt\n    try:\n    {question}"
    text = text.replace(question, guarded).replace("    pass", "    finally:\n        note(example['n'])")
    (project.path / "test_sums.py").write_text(note + text)
    (project.path / "conftest.py").write_text(
        note + "def pytest_keyboard_interrupt():\n    note('interrupted')\n"
    )
    assert project.run("--eval-set", "batch_items=8", apart=True).ret == 2
    *closed, last = (project.path / "noted").read_text().split()
    assert (sorted(map(int, closed)), last) == (list(range(8)), "interrupted")


def test_without_xdist_and_json_report_all_works(project: Project) -> None:
    assert project.run("-p", "no:xdist", "-p", "no:pytest_jsonreport").ret == 0
    assert len(project.records) == 20


def test_a_skip_mark_and_a_skip_inside_are_skips_with_a_record(project: Project) -> None:
    project.write("__import__('pytest').skip('odd') if example['n'] % 2 else None")
    result = project.run("--eval-limit", "4")
    result.assert_outcomes(passed=2, skipped=2)
    assert result.ret == 0
    assert project.records["sums/1"].status == "skipped"
    assert project.summary["results"][0]["skipped"] == 2
    project.scores()
    text = (project.path / "test_sums.py").read_text()
    (project.path / "test_sums.py").write_text(
        "import pytest\n" + text.replace("@benchmark", "@pytest.mark.skip(reason='later')\n@benchmark")
    )
    result = project.run("--eval-limit", "4")
    result.assert_outcomes(skipped=4)
    assert {record.status for record in project.records.values()} == {"skipped"}
    assert all(not record.exchanges for record in project.records.values())


def test_an_expected_failure_is_run_alone_and_reported_as_pytest_does(project: Project) -> None:
    text = (project.path / "test_sums.py").read_text()
    text = text.replace("    pass", "    assert example['n'] != 2")
    (project.path / "test_sums.py").write_text(
        "import pytest\n" + text.replace("@benchmark", "@pytest.mark.xfail\n@benchmark")
    )
    result = project.run("--eval-limit", "4")
    result.assert_outcomes(xfailed=1, xpassed=3)


def test_fixtures_of_module_scope_are_shared_and_others_refused_at_collection(project: Project) -> None:
    text = (
        (project.path / "test_sums.py").read_text().replace("(example, fewshot)", "(example, fewshot, bonus)")
    )
    fixture = "import pytest\n@pytest.fixture(scope='module')\ndef bonus():\n    return 1\n"
    (project.path / "test_sums.py").write_text(fixture + text.replace("    pass", "    assert bonus == 1"))
    assert project.run().ret == 0
    (project.path / "test_sums.py").write_text(fixture.replace("scope='module'", "scope='function'") + text)
    result = project.run()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: benchmark sums: fixture 'bonus' *"])


def test_parametrized_module_fixtures_run_apart(project: Project) -> None:
    text = (
        (project.path / "test_sums.py").read_text().replace("(example, fewshot)", "(example, fewshot, style)")
    )
    fixture = "import pytest\n@pytest.fixture(scope='module', params=['a', 'b'])\n"
    fixture += "def style(request):\n    return request.param\n"
    (project.path / "test_sums.py").write_text(fixture + text.replace('" " + option', "style + option"))
    result = project.run("--eval-limit", "3", "-v")
    result.assert_outcomes(passed=6)
    (run,) = project.runs
    lines = [json.loads(line) for line in (run / "items" / "items-main.jsonl").read_text().splitlines()]
    for line in lines:
        style = "a" if "[a-" in line["item"] or "-a]" in line["item"] else "b"
        assert line["exchanges"][0]["request"]["continuation"].startswith(style)


def test_ordinary_tests_beside_benchmarks_run_as_ever(project: Project) -> None:
    (project.path / "test_plain.py").write_text(
        "def test_one():\n    assert True\ndef test_two(tmp_path):\n    assert False\n"
    )
    result = project.run()
    result.assert_outcomes(passed=21, failed=1)
    assert result.ret == 1


def test_a_run_without_benchmarks_leaves_no_folder(project: Project) -> None:
    (project.path / "test_sums.py").write_text("def test_one():\n    assert True\n")
    assert project.run().ret == 0
    assert project.runs == []


def test_several_checkpoints_become_a_parameter_and_come_one_after_the_other(
    project: Project, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        tiny_causal(tmp_path / name)
    result = project.run(
        "--checkpoint",
        str(tmp_path / "two"),
        "-v",
        "--eval-limit",
        "2",
        checkpoint=str(tmp_path / "one"),
    )
    assert result.ret == 0
    ran = [line.split()[0].partition("[")[2] for line in result.outlines if "test_sums[" in line]
    assert ran == ["one-sums/0]", "one-sums/1]", "two-sums/0]", "two-sums/1]"]
    assert [(found["checkpoint"], found["scored"]) for found in project.summary["results"]] == [
        ("one", 2),
        ("two", 2),
    ]


def test_two_kinds_of_checkpoint_each_get_what_they_can_answer(project: Project) -> None:
    result = project.run("--checkpoint", "fake:masked", "--eval-limit", "2")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*sums: *Loglikelihood*masked*"])


def test_checkpoints_of_two_kinds_are_loaded_once_each(project: Project) -> None:
    mask = (project.path / "test_sums.py").read_text()
    mask = mask.replace("Loglikelihood", "FillMask").replace('name="sums"', 'name="masks"')
    mask = mask[: mask.index("    right, wrong")] + "    yield FillMask('a [MASK]')\n    return {'acc': 1}\n"
    (project.path / "test_a.py").write_text(
        (project.path / "test_sums.py").read_text().replace('"sums"', '"more"')
    )
    (project.path / "test_b.py").write_text(mask.replace("test_sums", "test_masks"))
    result = project.run("--checkpoint", "fake:masked", "--eval-limit", "3", "--setup-show")
    assert result.ret == 0
    assert str(result.stdout).count("SETUP    S touchstone_checkpoint") == 2


def test_a_benchmark_the_checkpoint_cannot_answer_is_left_out_with_the_reason(project: Project) -> None:
    result = project.run(checkpoint="fake:masked")
    assert result.ret == 5
    result.stdout.fnmatch_lines(["*sums: *Loglikelihood*masked*"])
    listed = project.run("--co", checkpoint="fake:masked")
    listed.stdout.fnmatch_lines(["*deselected sums: *Loglikelihood*"])


def test_a_benchmark_whose_scorer_lacks_a_package_is_left_out_with_what_to_do(project: Project) -> None:
    text = (project.path / "test_sums.py").read_text()
    text = text.replace('primary="acc"', 'primary="acc", needs={"no_such_package": "pip install it"}')
    (project.path / "test_sums.py").write_text(text)
    result = project.run("--co")
    result.stdout.fnmatch_lines(["*deselected sums: *no_such_package; pip install it"])


def test_few_shot_examples_are_the_same_whatever_is_selected(project: Project) -> None:
    project.run("--eval-shots", "2", "-k", "sums/3")
    alone = project.records["sums/3"].exchanges[0]["request"]
    project.scores()
    project.run("--eval-shots", "2")
    assert project.records["sums/3"].exchanges[0]["request"] == alone
    assert alone["context"].count("\n\n") == 2


def test_the_json_report_carries_the_results(project: Project) -> None:
    result = project.run("--json-report", "--json-report-file", "out.json")
    assert result.ret == 0
    report = json.loads((project.path / "out.json").read_text())
    assert report["eval"]["results"] == project.summary["results"]
    assert dict(next(iter(p.items())) for p in report["tests"][0]["user_properties"])["acc"] in (0.0, 1.0)
