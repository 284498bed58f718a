"""A finished run, loaded into Python: its results, its items, and the table that a notebook shows."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

import pytest_touchstone
from pytest_touchstone.compare.gate.result import GateResult, gate_json
from pytest_touchstone.core.requests import Refusal
from pytest_touchstone.reports.files import write_results
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.summary import RESULT_COLUMNS, load_summary
from tests.support.lines import missing
from tests.support.places import ROOT
from tests.support.runs import run as made_up
from tests.support.summaries import sample

KEPT = ROOT / "tests" / "results" / "kept" / "20261122_041947_5582"


@pytest.fixture
def run(tmp_path: Path) -> pytest_touchstone.FinishedRun:
    return pytest_touchstone.load(made_up(tmp_path, "one", "checkpoint-100", "checkpoint-200"))


def test_a_run_is_found_by_path_by_id_and_as_the_last(tmp_path: Path) -> None:
    for when, name in enumerate(("older", "newer", "the_newest"), start=1):
        made_up(tmp_path, name, "a", when=when)
    assert pytest_touchstone.load(tmp_path / "older").run_id == "older"
    assert pytest_touchstone.load("newer", output=tmp_path).directory == tmp_path / "newer"
    assert pytest_touchstone.load("last", output=tmp_path).run_id == "the_newest"
    with pytest.raises(pytest_touchstone.HarnessError, match=r"newr: .*did you mean 'newer'\?"):
        pytest_touchstone.load("newr", output=tmp_path)


def test_results_are_objects_with_the_columns_of_the_file(run: pytest_touchstone.FinishedRun) -> None:
    (row,) = (
        one
        for one in run.results
        if (one.checkpoint, one.benchmark, one.metric) == ("checkpoint-200", "real_coref", "real@1")
    )
    assert tuple(field.name for field in fields(row)) == RESULT_COLUMNS
    assert (row.n, row.valid) == (24, True)
    assert 0 <= (row.low or 0) <= (row.value or 0) <= (row.high or 0) <= 1
    assert run.valid
    assert run.problems == ()


def test_items_are_read_one_by_one_the_last_record_of_each(run: pytest_touchstone.FinishedRun) -> None:
    items = run.items
    assert len(items) == 96
    first, last = items[0], items[-1]
    assert (first.example, first.benchmark, first.status) == ("winogrande/0", "winogrande", "scored")
    assert (first.right, last.right) == (first.scores["acc"] == 1, last.scores["real@1"] == 1)
    assert [one.example for one in items[:3]] == ["winogrande/0", "winogrande/1", "winogrande/2"]
    assert [one.record for one in items][5] == items[5].record
    with Journal(run.directory, "zz") as journal:
        journal.append(replace(first.record, status="error", scores={}, message="later"))
        journal.append(replace(items[1].record, status="lost", scores={}))
    again = pytest_touchstone.load(run.directory).items
    assert (len(again), again[0].message, again[1].status) == (96, "later", "scored")
    assert again[0].failed


def test_an_item_has_its_prompts_and_answers(run: pytest_touchstone.FinishedRun) -> None:
    exchanges = [
        {
            "kind": "Loglikelihood",
            "request": {"context": "Q: ", "continuation": "A"},
            "answer": {"logprob": -1.5, "is_greedy": True, "tokens": 1, "truncated": 0, "spans_join": False},
        },
        {
            "kind": "Generate",
            "request": {"prompt": "P", "max_new_tokens": 3},
            "answer": {"error": "no memory"},
        },
    ]
    with Journal(run.directory, "zz") as journal:
        journal.append(replace(run.items[0].record, exchanges=exchanges, no_answer=1))
    item = pytest_touchstone.load(run.directory).items[0]
    assert item.prompts == ["Q: A", "P"]
    assert item.answers == [
        pytest_touchstone.LoglikelihoodAnswer(-1.5, is_greedy=True, tokens=1),
        Refusal("no memory"),
    ]
    assert item.invalid


def test_a_score_that_is_no_share_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    items = pytest_touchstone.load(made_up(tmp_path, "one", "a")).items
    assert replace(items[0], record=replace(items[0].record, scores={"acc": -2.5})).right is None
    assert replace(items[0], record=replace(items[0].record, scores={"acc": 0.5})).right is False


def test_the_row_of_an_item_is_the_datasets(tmp_path: Path) -> None:
    item = next(one for one in pytest_touchstone.load(KEPT).items if one.benchmark == "arc_easy")
    with pytest.raises(pytest_touchstone.HarnessError):
        _ = pytest_touchstone.load(made_up(tmp_path, "one", "a")).items[0].row
    assert set(item.row) >= {"question", "answerKey"}


def test_problems_name_what_failed_and_the_table_says_so(tmp_path: Path) -> None:
    summary = sample(1)
    results = [
        replace(one, invalid="9 of 9 outputs ended" if one.name == "real_coref" else None)
        for one in summary.results
    ]
    broken = [{"name": "bad", "path": "runs/bad", "message": "no weights"}]
    write_results(replace(summary, results=results, failed_to_load=broken), tmp_path)
    run = pytest_touchstone.load(tmp_path)
    assert not run.valid
    assert not missing(run.problems[0], "bad", "no weights")
    assert not missing(run.problems[1], "real_coref of checkpoint-100", "9 of 9 outputs ended")
    assert run.problems[2].startswith("error: evals/test_winogrande.py::test_winogrande[")
    (left_out,) = run.left_out
    assert not missing(left_out, "humaneval", "Generate", "checkpoint-100 (causal LM)")
    shown = repr(run)
    assert "NOT VALID" in shown
    assert not missing(shown, "5 problems", ".problems", "no weights")
    assert "left out, in .left_out: humaneval" in shown
    assert "runs/bad" not in shown
    notebook = run._repr_markdown_()
    assert "**not valid**" in notebook
    assert all(name in notebook for name in ("no weights", "9 of 9 outputs ended", "humaneval"))


@pytest.mark.parametrize("decision", ["failed", "not valid", "mistake", "passed", "shown"])
def test_only_a_gate_that_was_asked_and_has_not_passed_is_a_problem(tmp_path: Path, decision: str) -> None:
    plain = GateResult(mode="plain", baseline="best", margin=0.01, alpha=0.05)
    gate = {**gate_json(plain, "the gate's line"), "decision": decision}
    write_results(replace(load_summary(made_up(tmp_path, "one", "a")), gate=gate), tmp_path)
    run = pytest_touchstone.load(tmp_path)
    assert run.gate == gate
    fine = decision in ("passed", "shown")
    assert (run.valid, run.problems) == (fine, () if fine else ("the gate's line",))
    assert "NOT VALID" not in repr(run)
    assert (not missing(repr(run), "1 problem, in .problems", "the gate's line")) is not fine


def test_a_notebooks_table_escapes_what_names_have(tmp_path: Path) -> None:
    summary = load_summary(made_up(tmp_path, "one", "a"))
    named = [replace(one, checkpoint="<b>&") for one in summary.results]
    write_results(replace(summary, results=named), tmp_path)
    assert "**&#60;b&#62;&#38;**" in pytest_touchstone.load(tmp_path)._repr_markdown_()


def test_data_frames_have_the_results_and_the_items(run: pytest_touchstone.FinishedRun) -> None:
    pandas = pytest.importorskip("pandas")
    frame = run.to_pandas()
    assert tuple(frame.columns) == RESULT_COLUMNS
    assert len(frame) == len(run.results)
    read = pandas.read_csv(run.directory / "results.csv")
    pandas.testing.assert_frame_equal(
        read[["value", "low", "n", "valid"]], frame[["value", "low", "n", "valid"]]
    )
    items = run.items.to_pandas()
    assert (len(items), items["acc"].notna().sum()) == (96, 48)


def test_without_pandas_the_error_says_how_to_get_it(
    run: pytest_touchstone.FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for frame in (run.to_pandas, run.items.to_pandas):
        with pytest.raises(pytest_touchstone.HarnessError, match="pip install pandas"):
            frame()
