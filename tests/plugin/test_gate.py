"""``pytest --gate``: exit code 0, 8 or 9, a verdict for each benchmark, and every mistake one line with exit code 4."""

from __future__ import annotations

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.compare.gate.accepted import read_accepted, write_accepted
from pytest_touchstone.core import disk
from pytest_touchstone.core.disk import locked
from tests.support.forking import python
from tests.support.lines import missing
from tests.support.mistakes import refused
from tests.support.project import ALONE, Project, gate_of

BENCHMARK = """
from pathlib import Path
from pytest_touchstone import Loglikelihood, benchmark


@benchmark(name="{name}", version={version}, data="sums/test", asks=Loglikelihood, primary="acc")
def test_{name}(example):
    '''Right half as often as the file "skill" says.'''
    yield [Loglikelihood(example["q"], " 1")]
    return {{"acc": example["n"] < int(Path("skill").read_text()) // 2, "other": 0.5}}
"""


@pytest.fixture
def skilled(project: Project) -> Project:
    """A project whose benchmark ``skills`` has 100 items, of which half as many are right as the file "skill" says."""
    (project.path / "test_sums.py").unlink()
    project.rows(100)
    write(project)
    return project


def write(project: Project, name: str = "skills", version: int = 1) -> None:
    text = BENCHMARK.format(name=name, version=version)
    (project.path / f"test_{name}.py").write_text(text, encoding="utf-8")


def score(project: Project, skill: int, run_id: str, *arguments: str, **more: Any) -> pytest.RunResult:
    (project.path / "skill").write_text(str(skill))
    result: pytest.RunResult = project.run("--eval-run-id", run_id, *arguments, **more)
    return result


def test_a_worse_checkpoint_is_8_the_first_and_a_better_one_pass(skilled: Project) -> None:
    first = score(skilled, 150, "first", "--gate")
    assert first.ret == 0
    first.stdout.fnmatch_lines(["*gate passed: *first*"])
    worse = score(skilled, 120, "worse", "--gate")
    assert worse.ret == 8
    worse.stdout.fnmatch_lines(
        ["worse*skills acc*0.6000, -15.00 *", "*baseline *first*0.7500*", "gate failed (exit code 8):*"]
    )
    assert gate_of(skilled.path, "worse")["exit_code"] == 8
    better = score(skilled, 190, "better", "--gate")
    assert better.ret == 0
    assert gate_of(skilled.path, "better")["lines"][0]["verdict"] == "better"


def test_a_checkpoint_that_is_inconclusive_does_not_become_the_best(skilled: Project) -> None:
    text = (skilled.path / "test_skills.py").read_text()
    moved = text.replace('example["n"] <', '(example["n"] + int(Path("moved").read_text())) % 100 <')
    (skilled.path / "test_skills.py").write_text(moved)
    for run_id, skill, by in (("first", 100, 0), ("higher", 108, 20), ("last", 100, 0)):
        (skilled.path / "moved").write_text(str(by))
        assert score(skilled, skill, run_id, "--gate", "--eval-no-cache").ret == 0
    (line,) = gate_of(skilled.path, "higher")["lines"]
    assert (line["kind"], line["value"]) == ("inconclusive", 0.54)
    (last,) = gate_of(skilled.path, "last")["lines"]
    assert last["against"]["run_id"] == "first"
    assert [note.rpartition(": ")[2] for note in last["notes"]] == ["fake-causal in higher"]


def test_a_path_after_gate_is_a_path(skilled: Project) -> None:
    result = score(skilled, 150, "first", "--gate", "test_skills.py")
    assert result.ret == 0
    assert gate_of(skilled.path, "first")["mode"] == "plain"
    for place, words in enumerate((["--gate", "--eval-gate-mode", "strict"], ["--eval-gate-mode=strict"])):
        assert score(skilled, 148, f"strict{place}", *words, "test_skills.py").ret == 8
        assert gate_of(skilled.path, f"strict{place}")["mode"] == "strict"


def test_a_trial_run_makes_no_later_gate_fail_and_the_same_command_again_passes_too(skilled: Project) -> None:
    score(skilled, 150, "trial", "--eval-limit", "2")
    first = score(skilled, 150, "first", "--gate")
    assert first.ret == 0
    first.stdout.fnmatch_lines(["gate passed: *on these items; *first*"])
    assert not missing(gate_of(skilled.path, "first")["lines"][0]["notes"][0], "in trial", "2 of 100 items")
    again = score(skilled, 150, "again", "--gate")
    assert again.ret == 0
    again.stdout.fnmatch_lines(["gate passed: 1 not worse"])


def test_an_item_that_is_left_out_leaves_nothing_to_compare_and_the_decision_says_so(
    skilled: Project,
) -> None:
    score(skilled, 150, "first")
    left_out = ("--deselect", "test_skills.py::test_skills[skills/7]")
    less = score(skilled, 150, "less", "--gate", *left_out)
    assert less.ret == 0
    less.stdout.fnmatch_lines(["not compared *", "gate passed WITHOUT A COMPARISON: *"])
    assert not missing(gate_of(skilled.path, "less")["text"], "skills acc", "99 of 100 items")
    again = score(skilled, 150, "again", "--gate", *left_out)
    assert again.ret == 0
    again.stdout.fnmatch_lines(["gate passed:*skills*99 of 100 items)"])
    named = score(skilled, 150, "named", "--gate", "--baseline", "first", *left_out)
    refused(named, "--baseline first, skills: ", "other items: 1 item missing here: skills/7;")


def test_a_removed_row_of_data_is_refused_until_items_may_differ(skilled: Project) -> None:
    score(skilled, 150, "first")
    skilled.rows(99)
    refused(score(skilled, 150, "less", "--gate"), "its rows are others")
    allowed = score(
        skilled, 150, "allowed", "--gate", "--baseline", "first", "--eval-baseline-allow", "data,items"
    )
    assert allowed.ret == 0
    assert "compared on 99 common items" in gate_of(skilled.path, "allowed")["lines"][0]["notes"][0]


def test_an_item_that_ends_in_error_is_9_even_where_the_rest_is_worse(skilled: Project) -> None:
    score(skilled, 150, "first")
    path = skilled.path / "test_skills.py"
    path.write_text(path.read_text().replace("    return", "    assert example['n'] != 3\n    return"))
    result = score(skilled, 50, "broken", "--gate")
    assert result.ret == 9
    assert not missing(gate_of(skilled.path, "broken")["text"], "1 of 100 items", "error")


def test_items_that_the_benchmark_skips_are_no_part_of_it_if_the_baseline_skipped_them_too(
    skilled: Project,
) -> None:
    file = skilled.path / "test_skills.py"
    code = file.read_text()
    skip = "):\n    if example['n'] < 3: __import__('pytest').skip('ambiguous')\n"
    file.write_text(code.replace("):\n", skip, 1))
    assert score(skilled, 150, "first", "--gate").ret == 0
    assert score(skilled, 150, "alike", "--gate", "--eval-gate-mode", "strict").ret == 0
    assert score(skilled, 120, "worse", "--gate").ret == 8
    file.write_text(code.replace("):\n", skip.replace("3", "9"), 1))
    more = score(skilled, 150, "more", "--gate")
    assert more.ret == 9
    assert not missing(gate_of(skilled.path, "more")["text"], "not whole", "9 of 100 items", "skipped")


def test_without_gate_a_baseline_only_shows_verdicts(skilled: Project) -> None:
    score(skilled, 150, "first")
    result = score(skilled, 100, "shown", "--baseline", "first")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["worse *", "verdicts: 1 worse; --gate *"])


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=str)
def test_other_conditions_are_named_before_anything_is_asked_and_may_be_allowed(
    skilled: Project, workers: list[str]
) -> None:
    score(skilled, 150, "first")
    for baseline in ([], ["--baseline", "first"]):
        result = score(skilled, 150, "seed", "--gate", "--eval-seed", "7", *baseline, *workers)
        refused(result, "skills: fake-causal in first is not comparable: seed is 7 here and 1234 there")
        assert not (skilled.path / "results" / "seed").exists()
    shown = score(skilled, 150, "shown", "--baseline", "best", "--eval-seed", "7", *workers)
    assert shown.ret == 0  # only a gate is refused
    assert score(skilled, 150, "fine", "--gate", "--eval-seed", "7", "--eval-baseline-allow", "seed").ret == 0
    part = score(skilled, 150, "part", "--gate", "--eval-seed", "9", "--eval-limit", "5")
    assert part.ret == 0  # nothing saved is on these items
    write(skilled, version=2)
    refused(score(skilled, 150, "new", "--gate", *workers), "version is 2 here and 1 there")


def test_a_session_without_a_benchmark_passes_no_gate(skilled: Project) -> None:
    (skilled.path / "test_plain.py").write_text("def test_plain(): pass\n")
    result = score(skilled, 150, "plain", "--gate", "test_plain.py")
    assert result.ret == 9
    result.stdout.fnmatch_lines(["*(exit code 9): no benchmark*"])
    assert score(skilled, 150, "listed", "--gate", "--co").ret == 0


def test_a_checkpoint_that_no_benchmark_could_be_asked_of_passes_no_gate(skilled: Project) -> None:
    result = score(skilled, 150, "two", "--gate", "--checkpoint", "fake:masked")
    assert result.ret == 9
    assert not missing(gate_of(skilled.path, "two")["text"], 9, "fake-masked")


def test_a_configuration_in_pyproject_sets_floors_and_margins(skilled: Project) -> None:
    (skilled.path / "pyproject.toml").write_text(
        "[tool.touchstone.gate]\nbaseline = 'none'\n"
        "[tool.touchstone.gate.benchmarks.skills]\nfloors = ['acc >= 0.7']\n"
    )
    assert score(skilled, 140, "fine", "--gate").ret == 0
    low = score(skilled, 139, "low", "--gate")
    assert low.ret == 8
    low.stdout.fnmatch_lines(["*exit code 8):*skills acc*0.7*0.69"])
    (skilled.path / "own.toml").write_text("[benchmarks.skills]\nmargin = 0.3\n")
    assert (
        score(skilled, 100, "wide", "--gate", "--baseline", "fine", "--eval-set", "gate_config=own.toml").ret
        == 0
    )
    assert gate_of(skilled.path, "wide")["lines"][0]["verdict"] == "not worse"


def test_a_benchmark_that_was_not_run_has_no_floor_kept(skilled: Project) -> None:
    write(skilled, "others")
    (skilled.path / "g.toml").write_text("[benchmarks.others]\nfloors = ['acc >= 0.1']\n")
    result = score(skilled, 140, "some", "--gate", "--eval-set", "gate_config=g.toml", "test_skills.py")
    assert result.ret == 9
    assert not missing(gate_of(skilled.path, "some")["text"], "others acc", "acc >= 0.1")


def test_a_benchmark_that_the_baseline_has_and_the_run_has_not_is_said(skilled: Project) -> None:
    write(skilled, "others")
    score(skilled, 140, "both")
    result = score(skilled, 140, "one", "--gate", "test_skills.py")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*the baseline *results of others,*"])


def test_workers_change_no_verdict(skilled: Project) -> None:
    score(skilled, 150, "first")
    result = score(skilled, 120, "worse", "-n", "2", "--gate", "test_skills.py")
    assert result.ret == 8
    assert [line["verdict"] for line in gate_of(skilled.path, "worse")["lines"]] == ["worse"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--eval-gate-mode", "hard"], ["invalid --eval-gate-mode 'hard': expected plain or strict"]),
        (["--gate", "--baseline", "x" * 300], ["--baseline: cannot read", "name too long"]),
        (["--gate", "--baseline", "nowhere"], ["nowhere: no run in", "touchstone baseline list"]),
        (["--gate", "--baseline", "none"], ["--baseline none, and no floors: nothing to judge"]),
        (["--gate", "--eval-baseline-allow", "shot"], ["unknown condition 'shot'; did you mean 'shots'?"]),
        (["--eval-set", "gate_metric=acc"], ["--eval-set gate_metric does nothing alone; give --gate"]),
        (["--gate", "--eval-set", "gate_config=none.toml"], ["cannot read", "none.toml"]),
        (["--gate", "--eval-set", "gate_config=key.toml"], ["unknown key 'margn'; did you mean 'margin'?"]),
        (
            ["--gate", "--eval-set", "gate_config=name.toml"],
            ["unknown benchmark 'skils'; did you mean 'skills'?"],
        ),
        (
            ["--gate", "--eval-set", "gate_config=metric.toml"],
            ["gate, skills: unknown metric 'f1'; known are acc, other"],
        ),
        (
            ["--gate", "--eval-set", "gate_metric=f1"],
            ["--eval-set gate_metric: unknown metric 'f1'; known are acc, other"],
        ),
        (["--gate", "--eval-set", "markdown=data"], ["--eval-set markdown data: this is a folder"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value[0].startswith("--") else "",
)
def test_a_mistake_is_one_line_before_anything_runs(
    skilled: Project, arguments: list[str], words: list[str]
) -> None:
    for name, text in {
        "key": "margn = 0.1",
        "name": "[benchmarks.skils]\nmargin = 0.1",
        "metric": "[benchmarks.skills]\nfloors = ['f1 >= 0.5']",
    }.items():
        (skilled.path / f"{name}.toml").write_text(text)
    skilled.rows(20)
    score(skilled, 10, "first")
    result = score(skilled, 10, "wrong", *arguments)
    refused(result, *words)
    assert not (skilled.path / "results" / "wrong").exists()


@pytest.mark.parametrize(
    "arguments", [["--eval-set", "gate_metric=f1"], ["--eval-set", "gate_config=metric.toml"]]
)
def test_a_metric_that_turns_out_to_be_unknown_is_4_at_the_end(
    skilled: Project, arguments: list[str]
) -> None:
    (skilled.path / "metric.toml").write_text("[benchmarks.skills]\nfloors = ['f1 >= 0.5']\n")
    result = score(skilled, 150, "first", "--gate", *arguments)
    assert result.ret == 4
    result.stdout.fnmatch_lines(["gate not judged: *f1*"])


def test_several_metrics_are_judged_in_one_run(skilled: Project) -> None:
    score(skilled, 150, "first")
    both = ("--eval-set", "gate_metric=acc", "--eval-set", "gate_metric=other")
    result = score(skilled, 120, "worse", "--gate", *both, "--junitxml", "junit.xml")
    assert result.ret == 8
    lines = gate_of(skilled.path, "worse")["lines"]
    assert [(line["metric"], line["verdict"]) for line in lines] == [("acc", "worse"), ("other", "not worse")]
    xml = (skilled.path / "junit.xml").read_text()
    assert '.skills.acc" value="worse"' in xml
    assert '.skills.other" value="not worse"' in xml
    refused(
        score(skilled, 1, "wrong", "--gate", *both, "--eval-set=gate_sequential"),
        "--eval-set gate_sequential settles a benchmark by one metric; acc, other are 2: name one",
    )
    refused(
        score(skilled, 1, "wrong", "--gate", *both, "--eval-set", "gate_metric=othr"),
        "--eval-set gate_metric: unknown metric 'othr'; did you mean 'other'?",
    )


@pytest.mark.parametrize(
    "arguments", [["--eval-set", "gate_metric=f1"], ["--eval-set", "gate_config=metric.toml"]]
)
def test_a_metric_that_is_not_declared_is_refused_before_a_first_run(
    skilled: Project, arguments: list[str]
) -> None:
    path = skilled.path / "test_skills.py"
    path.write_text(path.read_text().replace('primary="acc")', 'primary="acc", metrics=("acc", "other"))'))
    (skilled.path / "metric.toml").write_text("[benchmarks.skills]\nfloors = ['f1 >= 0.5']\n")
    refused(
        score(skilled, 150, "first", "--gate", *arguments),
        "unknown metric 'f1'; known are acc, bits_per_byte,",
    )
    assert not (skilled.path / "results" / "first").exists()


def test_an_unknown_benchmark_is_one_line_with_workers_too(skilled: Project) -> None:
    (skilled.path / "name.toml").write_text("[benchmarks.skils]\nmargin = 0.1\n")
    result = score(skilled, 10, "wrong", "--gate", "--eval-set", "gate_config=name.toml", "-n", "1")
    refused(result, "unknown benchmark 'skils'; did you mean 'skills'?")


def test_a_broken_saved_result_is_left_out_as_is_said_and_the_others_are_compared(skilled: Project) -> None:
    score(skilled, 10, "first")
    score(skilled, 150, "second")
    (saved,) = (skilled.path / "results" / "saved").glob("*/skills@first.json")
    for text in (saved.read_text()[:300], ""):
        saved.write_text(text)
        assert score(skilled, 100, f"worse{len(text)}", "--gate").ret == 8
        (line,) = gate_of(skilled.path, f"worse{len(text)}")["lines"]
        assert line["against"]["run_id"] == "second"
        (note,) = gate_of(skilled.path, f"worse{len(text)}")["notes"]
        assert "skills@first.json: cannot be read" in note
        assert "left out" in note


def test_reports_for_ci_are_written(skilled: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(skilled.path / "job.md"))
    score(skilled, 150, "first")
    files = ("--eval-set", "markdown=out/comment.md", "--junitxml", "junit.xml", "--json-report")
    result = score(skilled, 100, "worse", "--gate", *files)
    assert result.ret == 8
    result.stdout.fnmatch_lines(
        ["::error title=*skills acc worse::-25.00 *", "::error title=touchstone gate::*"]
    )
    assert "**gate failed (exit code 8)" in (skilled.path / "out" / "comment.md").read_text()
    assert (skilled.path / "job.md").read_text().count("### Benchmarks") == 2
    xml = (skilled.path / "junit.xml").read_text()
    assert '<property name="touchstone.gate.decision" value="failed"' in xml
    assert '.skills.acc" value="0.5"' in xml
    suite = ElementTree.fromstring(xml)[0]
    assert suite.attrib["failures"] == "1"
    assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
    (case,) = [case for case in suite.findall("testcase") if case.find("failure") is not None]
    assert case.attrib["classname"].startswith("touchstone.gate.")
    assert case.attrib["name"] == "skills acc"
    assert (case.findtext("failure") or "").startswith("worse: -25.00 [")
    report = json.loads((skilled.path / ".report.json").read_text())
    assert (report["exitcode"], report["eval"]["gate"]["exit_code"]) == (8, 8)


def test_a_copied_results_folder_is_a_baseline(skilled: Project) -> None:
    score(skilled, 150, "first")
    shutil.move(skilled.path / "results", skilled.path / "cache")
    assert score(skilled, 100, "worse", "--gate", "--baseline", "cache").ret == 8
    assert score(skilled, 100, "again", "--gate", "--baseline", "cache/first").ret == 8


def test_two_runs_at_once_share_the_saved_results(skilled: Project) -> None:
    (skilled.path / "skill").write_text("150")
    fixed = ("--checkpoint", "fake:causal", "--eval-data", "data", *ALONE, "--gate")
    runs = [
        skilled.pytester.popen(
            [python(), "-m", "pytest", *fixed, "--eval-run-id", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        for name in ("one", "two")
    ]
    said = [run.communicate(timeout=120)[0].decode() for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    saved = sorted(path.name for path in (skilled.path / "results" / "saved").glob("*/*"))
    assert saved == [f"skills@{name}{end}.json" for name in ("one", "two") for end in (".items", "")]
    assert score(skilled, 100, "three", "--gate").ret == 8


def test_a_named_baseline_is_set_shown_and_removed(
    skilled: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_touchstone.cli import main

    score(skilled, 150, "first")
    score(skilled, 190, "second")
    monkeypatch.chdir(skilled.path)
    capsys.readouterr()
    assert main(["baseline", "set", "first"]) == 0
    assert "main is " in capsys.readouterr().out
    assert main(["baseline", "list"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "skills acc"
    assert [line.split()[2] for line in lines if " first " in line or " second " in line][:2] == [
        "0.9500",
        "0.7500",
    ]
    assert lines[-1].startswith("main is ")
    assert main(["baseline", "show", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["run_id"] == "first"
    assert score(skilled, 150, "third", "--gate", "--baseline", "main").ret == 0
    assert main(["baseline", "rm", "main"]) == 0
    assert main(["baseline", "rm", "second", "--format", "json"]) == 0
    capsys.readouterr()
    assert main(["baseline", "rm", "second"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert not missing(line, "second", "results/")
    assert main(["runs", "--format", "json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["first", "second", "third"]


def test_a_refused_baseline_is_explained_once_and_the_decision_is_the_last_line(skilled: Project) -> None:
    score(skilled, 150, "first")
    path = skilled.path / "test_skills.py"
    path.write_text(path.read_text().replace('example["q"]', 'example["q"] + "?"'))
    result = score(skilled, 150, "other", "--gate", "--baseline", "first")
    assert result.ret == 9
    text = " ".join("\n".join(result.outlines).split())
    assert text.count("--eval-baseline-allow prompts") == 1  # the remedy
    assert text.count("(exit code 9): skills acc: ") == 1
    assert " passed in " in text.partition("gate not valid")[0]


def test_a_plan_of_the_gate_is_shown_and_nothing_is_asked(skilled: Project) -> None:
    assert score(skilled, 150, "first", "--gate").ret == 0
    planned = skilled.run("--gate", "--eval-dry-run")
    assert planned.ret == 0
    planned.stdout.fnmatch_lines(
        [
            "*= dry run =*",
            "*= plan of the gate =*",
            "plan *best, margin 1 point, *0.05",
            "skills acc * 100 *",
            "from *skills: assumed: *%*",
        ]
    )
    assert sorted(one.name for one in (skilled.path / "results").iterdir() if one.is_dir()) == [
        "first",
        "saved",
    ]
    planned.assert_outcomes()


def test_a_drop_is_accepted_with_a_reason_and_a_mistake_is_one_line(
    skilled: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(skilled.path)
    score(skilled, 150, "good", "--gate")
    assert score(skilled, 100, "new", "--gate").ret == 8
    score(skilled, 100, "plain")
    capsys.readouterr()
    why = ["--because", "half the data"]
    for words, said in (
        (["new", *why], "--benchmark is missing"),
        (["new", "--benchmark", "skills"], "--because is missing"),
        (["new", "--benchmark", "skills", "--because", " "], "give a reason"),
        (["new", "--benchmark", "skils", *why], "did you mean 'skills'?"),
        (["new", "--benchmark", "skills", "--metric", "ac", *why], "did you mean 'acc'?"),
        (["good", "--benchmark", "skills", *why], "there is nothing to accept"),
        (["plain", "--benchmark", "skills", *why], "no gate has judged it"),
        (["nowhere", "--benchmark", "skills", *why], "no such run"),
    ):
        assert main(["accept", *words]) == 4
        assert said in refused_line(capsys)
    assert main(["accept", "new", "--benchmark", "skills", *why]) == 0
    assert not missing(capsys.readouterr().out, "0.7500 to 0.5000")
    again = score(skilled, 100, "again", "--gate")
    assert again.ret == 0
    again.stdout.fnmatch_lines(
        ["accepted *skills acc *0.5000*", "*: *0.7500 to 0.5000 by *", "gate passed: 1 accepted"]
    )
    (skilled.path / "touchstone-accepted.json").write_text("{")
    assert main(["accept", "new", "--benchmark", "skills", *why]) == 4
    assert "touchstone-accepted.json: cannot be read" in refused_line(capsys)
    broken = score(skilled, 100, "broken", "--gate")
    assert broken.ret == 4
    assert "touchstone-accepted.json: cannot be read" in "".join(broken.errlines)


def test_a_drop_waits_for_another_that_is_being_accepted_and_leaves_it_there(
    skilled: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(skilled.path)
    score(skilled, 150, "good", "--gate")
    assert score(skilled, 100, "new", "--gate").ret == 8
    path, words = Path("touchstone-accepted.json"), ["accept", "new", "--benchmark", "skills", "--because"]
    assert main([*words, "first"]) == 0
    (first,) = read_accepted(path)
    with ThreadPoolExecutor() as pool, locked(path):
        second = pool.submit(main, [*words, "second"])
        with pytest.raises(TimeoutError):
            second.result(0.5)
        write_accepted(path, [first, replace(first, benchmark="another")])
    assert second.result() == 0
    assert [(one.benchmark, one.because) for one in read_accepted(path)] == [
        ("another", "first"),
        ("skills", "second"),
    ]
    monkeypatch.setattr(disk, "LOCK_SECONDS", 0.1)
    Path(".touchstone-accepted.json.lock").touch()
    capsys.readouterr()
    assert main([*words, "third"]) == 4
    assert "remove .touchstone-accepted.json.lock" in refused_line(capsys)


def refused_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line
