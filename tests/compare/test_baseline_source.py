"""A baseline is found by what a person calls it: best, a run, a folder, a file, a name; or the mistake is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.baseline_source import (
    list_named_baselines,
    open_source,
    read_named_baseline,
    remove_named_baseline,
    set_named_baseline,
)
from pytest_touchstone.core.errors import DataError, GateError
from pytest_touchstone.core.files import write_json
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.summary import summary_json
from tests.support.entries import entry, right
from tests.support.summaries import DECLARATIONS, checkpoint_row, collect, score


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A results folder with two runs: one of one checkpoint, one of two."""
    folder = tmp_path / "results"
    store = ResultStore(folder)
    for one in (
        entry(right(3, 10), checkpoint="a", run_id="r1"),
        entry(right(4, 10), checkpoint="b", run_id="r2"),
        entry(right(5, 10), checkpoint="c", run_id="r2"),
    ):
        store.save(one.saved, one.items)
    return folder


def opened(text: str, output: Path) -> Any:
    return open_source(text, output, folder=output.parent)


def test_the_best_are_all_saved_results(output: Path) -> None:
    source = opened("best", output)
    assert (source.kind, len(source.saved)) == ("best", 3)
    assert source.load(source.saved[0]).items == entry(right(3, 10)).items
    assert opened("none", output).kind == "none"


def test_a_run_is_found_by_its_id(output: Path) -> None:
    source = opened("r2", output)
    assert (source.kind, [one.checkpoint for one in source.saved]) == ("run", ["b", "c"])


def test_another_results_folder_means_the_best_in_it(output: Path) -> None:
    shutil.move(output, output.parent / "cache")
    source = opened("cache", output)
    assert (source.kind, source.name, len(source.saved)) == ("best", "cache", 3)


def test_a_saved_results_file_means_that_result(output: Path) -> None:
    path = next((output / "saved").glob("*/b@r1.json"))
    source = opened(str(path), output)
    assert [one.run_id for one in source.saved] == ["r1"]
    assert source.load(source.saved[0]).items.scores == {"acc": right(3, 10)}


def test_a_saved_results_file_that_is_damaged_is_called_that(output: Path) -> None:
    path = next((output / "saved").glob("*/b@r1.json"))
    path.write_text(path.read_text(encoding="utf-8").replace("0.3", "0.9", 1), encoding="utf-8")
    with pytest.raises(GateError, match="damaged"):
        opened(str(path), output)


def run_folder(tmp_path: Path) -> Path:
    """The folder of a finished run that nothing is saved of."""
    folder = tmp_path / "elsewhere" / "r9"
    items = collect(["winogrande"], ["checkpoint-100"])
    records = score(items)
    summary = summarize(
        records,
        DECLARATIONS,
        items,
        run_id="r9",
        directory=str(folder),
        manifest={"settings": {"seed": 7, "device": "cpu"}, "began": 5.0},
        checkpoints=[checkpoint_row("checkpoint-100", 100)],
    )
    write_json(folder / "summary.json", summary_json(summary))
    with Journal(folder, "main") as journal:
        for record in records:
            journal.append(record)
    return folder


@pytest.mark.parametrize("file", ["", "summary.json"])
def test_a_run_whose_folder_was_copied_alone_is_read_from_its_journal(
    output: Path, tmp_path: Path, file: str
) -> None:
    folder = run_folder(tmp_path)
    source = open_source(str(folder / file), output, folder=tmp_path)
    (saved,) = source.saved
    assert (saved.run_id, saved.benchmark, saved.scored) == ("r9", "winogrande", 24)
    assert saved.conditions["seed"] == 7
    assert "device" not in saved.conditions
    assert len(source.load(saved).items.examples) == 24


def test_a_saved_result_is_read_wherever_it_was_copied_with_its_items(output: Path, tmp_path: Path) -> None:
    (path,) = (path for path in (output / "saved").glob("*/*@r1.json") if "items" not in path.name)
    copy = tmp_path / "elsewhere.json"
    copy.write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=r"elsewhere\.items\.json: the items of the result cannot be read"):
        opened(str(copy), output)
    copy.with_suffix(".items.json").write_bytes(path.with_suffix(".items.json").read_bytes())
    source = opened(str(copy), output)
    assert source.load(source.saved[0]).items.examples


def test_a_summary_that_was_copied_alone_is_refused_with_a_way_out(output: Path, tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    copy = tmp_path / "alone" / "summary.json"
    copy.parent.mkdir()
    copy.write_bytes((folder / "summary.json").read_bytes())
    with pytest.raises(GateError, match="baseline save"):
        opened(str(copy), output)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "bets",
            r"bets: no run in .*, no folder or file, and no baseline of that name; did you mean 'best'\?",
        ),
        ("nowhere/at/all", r"nowhere/at/all: no run in "),
        ("empty", r"empty is the folder of no finished run \(no summary\.json\), and no results folder"),
        ("notes.txt", r"notes\.txt is no baseline; name a run's folder, its summary\.json, a saved"),
        ("damaged.answers", r"damaged\.answers is no baseline; .*line 3: "),
        ("broken", r"broken/summary\.json: cannot be read"),
    ],
)
def test_what_is_no_baseline_is_named_in_one_line(output: Path, text: str, words: str) -> None:
    (output.parent / "empty").mkdir()
    (output.parent / "broken").mkdir()
    (output.parent / "broken" / "summary.json").write_text("{")
    (output.parent / "notes.txt").write_text("hello")
    (output.parent / "damaged.answers").write_text("touchstone answers 1\n\nbenchmark: [\n")
    with pytest.raises(GateError, match=words) as refused:
        opened(text, output)
    assert "\n" not in str(refused.value)


def test_a_broken_saved_result_is_named_and_left_out(output: Path) -> None:
    path = next((output / "saved").glob("*/b@r1.json"))
    path.write_text("[]")
    found = opened("best", output)
    assert [(one.run_id, one.checkpoint) for one in found.saved].count(("r1", "a")) == 0
    assert any("b@r1.json" in note for note in found.damaged)


def test_a_name_means_one_checkpoint_of_a_run(output: Path) -> None:
    pin, former = set_named_baseline(output, "main", "r2", "c")
    assert former is None
    assert read_named_baseline(output, "main") == pin
    assert [one.checkpoint for one in opened("main", output).saved] == ["c"]
    assert list_named_baselines(output) == [pin]
    assert set_named_baseline(output, "main", "r1")[1] == pin
    assert [one.checkpoint for one in opened("main", output).saved] == ["a"]
    assert remove_named_baseline(output, "main")
    assert not remove_named_baseline(output, "main")
    assert list_named_baselines(output) == []


@pytest.mark.parametrize(
    ("name", "run_id", "checkpoint", "words"),
    [
        ("best", "r1", None, r"'best' is no name for a baseline"),
        ("../x", "r1", None, r"'\.\./x' is no name for a baseline"),
        ("r1", "r2", "b", r"'r1' is the id of a run"),
        ("main", "r7", None, r"r7: no saved results of such a run"),
        ("main", "r2", None, r"r2 has 2 checkpoints; name one with --checkpoint: b, c"),
        ("main", "r2", "d", r"r2 has no checkpoint 'd'; it has b, c"),
    ],
)
def test_a_name_that_cannot_be_given_is_refused(
    output: Path, name: str, run_id: str, checkpoint: str | None, words: str
) -> None:
    with pytest.raises(GateError, match=words):
        set_named_baseline(output, name, run_id, checkpoint)


def test_a_name_goes_to_fewer_items_only_by_a_word(output: Path) -> None:
    small = entry(right(2, 4), checkpoint="d", run_id="r3")
    ResultStore(output).save(small.saved, small.items)
    pin, _ = set_named_baseline(output, "main", "r1")
    with pytest.raises(GateError, match=r"main .*r1.* 4 .*10; --replace"):
        set_named_baseline(output, "main", "r3")
    assert read_named_baseline(output, "main") == pin
    assert set_named_baseline(output, "main", "r3", allow_fewer=True)[1] == pin
    assert set_named_baseline(output, "main", "r1")[0] == pin


def test_a_name_goes_to_other_benchmarks_only_by_a_word(output: Path) -> None:
    other = entry(right(9, 20), checkpoint="e", run_id="r4", benchmark="other")
    ResultStore(output).save(other.saved, other.items)
    set_named_baseline(output, "main", "r1")
    with pytest.raises(GateError, match=r" 0 .*10; --replace"):
        set_named_baseline(output, "main", "r4")


def test_a_run_is_named_by_its_folder_too(output: Path) -> None:
    (output / "r1").mkdir()
    (output / "r1" / "run.json").write_text("{}")
    assert set_named_baseline(output, "main", str(output / "r1"))[0].run_id == "r1"


def test_a_name_that_cannot_be_read_is_set_again(output: Path) -> None:
    set_named_baseline(output, "main", "r1")
    (output / "baselines" / "main.json").write_text("{}")
    pin, former = set_named_baseline(output, "main", "r2", "b")
    assert (former, read_named_baseline(output, "main")) == (None, pin)


def test_a_name_whose_results_are_gone_is_said(output: Path) -> None:
    set_named_baseline(output, "main", "r1")
    store = ResultStore(output)
    for saved in store.find():
        store.remove(saved)
    with pytest.raises(GateError, match=r"main .*r1, .*gone"):
        opened("main", output)


@pytest.mark.parametrize("content", ["", "{}", "[]", json.dumps({"schema": 9, "kind": "baseline"})])
def test_a_broken_name_is_said(output: Path, content: str) -> None:
    (output / "baselines").mkdir()
    (output / "baselines" / "main.json").write_text(content)
    with pytest.raises(GateError, match=r"main\.json: .*set the baseline"):
        opened("main", output)


def test_a_results_file_of_one_checkpoint_is_a_baseline_of_totals(output: Path) -> None:
    row = {"checkpoint": "checkpoint-655", "real1": 0.65, "coref_samples": 2400}
    path = output.parent / "checkpoint-655_eval_results.json"
    path.write_text(json.dumps(row), encoding="utf-8")
    source = opened(path.name, output)
    assert (source.kind, [one.metrics["real@1"].value for one in source.saved]) == ("run", [0.65])
    assert source.load(source.saved[0]).items.examples == []
    path.write_text(json.dumps([row, {**row, "checkpoint": "b"}]), encoding="utf-8")
    with pytest.raises(GateError, match="2 checkpoints; name a file"):
        opened(path.name, output)
