"""A report ends with the command that comes next, which fits the situation and can be typed as it is."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.reports.files import write_results
from pytest_touchstone.reports.terminal import again, saved, steps
from pytest_touchstone.results.summary import Summary
from tests.support.summaries import sample

ARGUMENTS = ["evals/", "--checkpoint", "runs/*", "--eval-run-id", "today", "--eval-limit=8", "--checkpoint=b"]


def run(checkpoints: int = 1, *, faults: bool = False, **more: Any) -> Summary:
    found = sample(checkpoints, faults=faults)
    return replace(found, **{"manifest": {**found.manifest, "command": ARGUMENTS}, **more})


def commands(summary: Summary) -> list[str]:
    return [one.command for one in steps(summary)]


def test_after_a_checkpoint_of_ones_own_comes_a_gate_for_the_next() -> None:
    assert commands(run()) == ["pytest evals/ --eval-limit=8 --checkpoint NEW --gate"]


def test_what_belongs_to_the_old_checkpoint_is_not_said_of_the_new_one() -> None:
    found = run()
    served = ["evals/", "--checkpoint", "http://h:1", "--eval-model-name", "m", "--eval-tokenizer=t", "-q"]
    told = replace(found, manifest={**found.manifest, "command": served})
    assert commands(told) == ["pytest evals/ -q --checkpoint NEW --gate"]


def test_what_was_run_by_touchstone_is_run_by_it_again() -> None:
    found = run()
    command = [
        "-p",
        "pytest_touchstone.plugin.default_files",
        "--eval-tasks=a,b",
        "--eval-limit",
        "8",
        "-k",
        "not c",
    ]
    by_touchstone = replace(found, manifest={**found.manifest, "command": command})
    assert commands(by_touchstone) == [
        "touchstone run --tasks a,b --eval-limit 8 -k 'not c' --checkpoint NEW --gate"
    ]


def test_where_there_are_earlier_results_comes_a_verdict_against_them() -> None:
    change = {"checkpoint": "checkpoint-100", "benchmark": "winogrande", "metric": "acc"}
    assert commands(run(changes=[change])) == [
        "pytest evals/ --checkpoint 'runs/*' --eval-limit=8 --checkpoint=b --gate"
    ]


def test_several_checkpoints_are_compared_if_they_have_the_same_benchmarks() -> None:
    assert commands(run(3)) == ["touchstone compare 20260102_030405_77"]
    both = run(2)
    apart = [
        one for one in both.results if (one.benchmark == "winogrande") == (one.checkpoint == "checkpoint-100")
    ]
    assert commands(replace(both, results=apart))[0].endswith(" --checkpoint NEW --gate")


def test_faults_are_asked_again_and_what_failed_to_load_is_looked_at_first() -> None:
    again = "pytest evals/ --checkpoint 'runs/*' --eval-limit=8 --checkpoint=b"
    assert commands(run(faults=True)) == [again]
    broken = [{"name": "x", "path": "runs/my x", "message": "cut off"}]
    assert commands(run(faults=True, failed_to_load=broken)) == ["touchstone show 'runs/my x'", again]


@pytest.mark.parametrize("decision", ["passed", "failed", "not valid"])
def test_after_a_gate_comes_the_baseline_or_the_items_that_were_lost(decision: str) -> None:
    old = {
        "checkpoint": "old",
        "run_id": "r1",
        "step": None,
        "measured": 1,
        "shrunk": 1,
        "runs": 1,
        "contenders": 1,
    }
    line = {"checkpoint": "checkpoint-100", "benchmark": "b", "metric": "acc", "verdict": "worse", "why": ""}
    failed = {**line, "fails": ["worse"], "against": old}
    gate = {"decision": decision, "lines": [failed] if decision == "failed" else []}
    expected = {
        "passed": ["touchstone baseline set 20260102_030405_77"],
        "failed": ["touchstone compare 'r1#old' '20260102_030405_77#checkpoint-100' --show-flips 3"],
        "not valid": [],
    }
    assert commands(run(gate=gate)) == expected[decision]


def test_a_run_in_another_folder_is_named_with_it(tmp_path: Path) -> None:
    found = run(2, directory=str(tmp_path / "my results" / "r"))
    assert shlex.split(commands(found)[0])[-2:] == ["--output", str(tmp_path / "my results")]


def test_the_files_that_are_there_are_named_and_the_long_report_can_be_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    folder = tmp_path / "my results" / "r"
    folder.mkdir(parents=True)
    found = run(directory=str(folder))
    write_results(found)
    names = ["report.html", "summary.json", "results.csv", "checkpoints.csv"]
    assert saved(found).split("   ") == [f"{folder}/", *names]
    assert main(shlex.split(again(found, details=False).command)[1:]) == 0
    long = capsys.readouterr().out
    assert main(shlex.split(again(found, details=True).command)[1:]) == 0
    assert "acc_norm_macro" in long
    assert "acc_norm_macro" not in capsys.readouterr().out


def test_several_checkpoints_are_compared_next_also_where_one_is_not_valid() -> None:
    whole = sample(3, faults=False)
    results = [
        replace(one, invalid="cut") if one.checkpoint == "checkpoint-100" else one for one in whole.results
    ]
    commands = [step.command for step in steps(replace(whole, results=results))]
    assert any(command.startswith("touchstone compare ") for command in commands), commands
