"""Results that the former version wrote (its commit is 2493ba4) are read as they were: nothing in them is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.rescore import rescore
from pytest_touchstone.compare.baseline_source import list_named_baselines
from pytest_touchstone.reports import terminal
from pytest_touchstone.reports.page.builder import run_page
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.journal import latest, read_journal
from pytest_touchstone.results.records import RARE
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import composites_of, saved_of
from pytest_touchstone.results.summary import load_summary, summary_json
from tests.support.installed import run_python
from tests.support.places import ROOT
from tests.support.project import ALONE

KEPT = Path(__file__).parent / "former_version"
RUN = "20261122_041947_5582"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder of the former version, to be written into."""
    return Path(shutil.copytree(KEPT, tmp_path / "results"))


def test_the_journal_gives_the_numbers_of_the_summary() -> None:
    summary = load_summary(KEPT / RUN)
    records = latest(read_journal(KEPT / RUN))
    items, declarations, deselected = RunDirectory(KEPT / RUN).read_collected()
    assert (len(records), len(items)) == (16, 16)
    again = summarize(
        records.values(),
        declarations,
        items,
        run_id=RUN,
        directory="",
        manifest=summary.manifest,
        checkpoints=summary.checkpoints,
        deselected=deselected,
    )
    assert again.results == summary.results


def test_the_summary_is_the_same_when_written_again_and_can_be_shown() -> None:
    summary = load_summary(KEPT / RUN)
    written = json.loads((KEPT / RUN / "summary.json").read_text(encoding="utf-8"))
    again = json.loads(json.dumps(summary_json(summary)))
    assert again.pop("leaders") == []
    assert [one.pop("composites") for one in again["declarations"]] == [None] * 4
    assert [one.pop("settings") for one in again["declarations"]] == [{}] * 4
    assert [one.pop("file") for one in again["declarations"]] == [""] * 4
    assert [one.pop("temperature") for one in again["declarations"]] == [None] * 4
    assert [one.pop("hub") for one in again["declarations"]] == [{}] * 4
    assert {(one.pop("unanswered"), one.pop("answered")) for one in again["results"]} == {(0, None)}
    assert {one.pop(name) for one in again["results"] for name in RARE} == {0}
    assert [one.pop("missing_modules") for one in again["results"]] == [{}] * len(again["results"])
    assert {one.pop("xfailed") for one in (*again["results"], again["totals"])} == {0}
    assert {**again, "directory": ""} == {
        name: value for name, value in {**written, "directory": ""}.items() if name != "best"
    }
    shown = terminal.render(summary, 100, color=False, details=True)
    assert "arc_easy" in shown
    assert "real@1" in shown
    assert "fake-masked" in run_page(summary)


def test_its_results_are_part_of_the_studied_composites() -> None:
    summary = load_summary(KEPT / RUN)
    made = saved_of(summary, latest(read_journal(KEPT / RUN)).values())
    assert [one.name for one in composites_of(saved for saved, _ in made)] == ["score", "score_wiki"]


def test_saved_results_and_named_baselines_are_found(results: Path) -> None:
    store = ResultStore(results)
    saved = store.find()
    assert sorted(one.benchmark for one in saved) == ["arc_easy", "gsm8k", "humaneval", "real_coref"]
    assert all(len(store.items(one).examples) == 4 for one in saved)
    assert [(one.name, one.checkpoint) for one in list_named_baselines(results)] == [
        ("main", "fake-causal"),
        ("masked", "fake-masked"),
    ]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (
            "list",
            f"{RUN[:8]}",
        ),
        ("baseline list", f"main is fake-causal of run {RUN}"),
        ("baseline list --by acc", "   1  0.5000 [0.1500, 0.8500]  n 4  fake-causal  " + RUN),
        ("baseline show masked", f"masked is fake-masked of run {RUN}"),
        (
            f"compare {RUN}#fake-causal fake-causal",
            "arc_easy: the same checkpoint, and every item scores as before",
        ),
    ],
)
def test_the_commands_show_them(
    results: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    line: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert main([*command.split(), "--output", str(results)]) == 0
    assert line in capsys.readouterr().out


def test_its_answers_are_scored_again_as_they_were() -> None:
    found = rescore(KEPT / RUN, root=ROOT)
    # Scores that today's benchmarks have besides are new for its items; those that it had are the same.
    assert found.added == dict.fromkeys(("bits_per_byte", "log_odds", "logprob_margin", "p_right"), 4)
    assert (found.items, found.changes, found.unscored) == (16, [], [])


def test_a_gate_judges_a_new_run_by_its_named_baseline(results: Path) -> None:
    asked = ["evals/test_arc.py", "-k", "arc_easy", "--checkpoint", "fake:causal", "--eval-limit", "4"]
    given = [*asked, "--eval-output", str(results), *ALONE, "-q"]
    run = run_python("-m", "pytest", *given, "--gate", "--baseline", "main", "--eval-run-id", "now", cwd=ROOT)
    assert run.returncode == 0, run.stdout
    assert "gate passed: 1 not worse" in run.stdout
    [line] = load_summary(results / "now").gate["lines"]  # type: ignore[index]
    assert (line["against"]["run_id"], line["verdict"], line["n"]) == (RUN, "not worse", 4)


def test_its_run_is_not_continued_under_its_id(results: Path) -> None:
    (results / RUN / "summary.json").unlink()  # as if it had been killed
    asked = [
        "evals/test_arc.py",
        "--checkpoint",
        "fake:causal",
        "--eval-run-id",
        RUN,
        *ALONE,
    ]
    run = run_python("-m", "pytest", *asked, "--eval-output", str(results), cwd=ROOT)
    assert run.returncode == 4
    assert "belongs to another run; choose another --eval-run-id" in run.stderr
