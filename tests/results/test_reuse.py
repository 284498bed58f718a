"""The earlier runs that the cache searches, and the records that count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.reuse import EarlierRun, Reuse, ReusePlan, find_earlier_runs, write_reuse_plan

CHANGING = {"seed": 1, "limit": None, "base_model": None}
BENCHMARK = {"version": 1, "data": "d" * 64, "few_shot": {"num_fewshot": 0}, "code": "c" * 64}


def manifest(run_id: str, began: float, **more: Any) -> dict[str, Any]:
    settings = {**CHANGING, "device_kind": "cpu", **more.pop("settings", {})}
    checkpoints = [{"name": "step-1", "fingerprint": "f" * 64, "format": "folder"}]
    plain = {"run_id": run_id, "began": began, "checkpoints": checkpoints, "benchmarks": {"b": BENCHMARK}}
    return {**plain, "settings": settings, **more}


def decided(output: Path, *others: dict[str, Any], mine: dict[str, Any] | None = None) -> ReusePlan:
    for other in others:
        (output / other["run_id"]).mkdir(parents=True, exist_ok=True)
        (output / other["run_id"] / "run.json").write_text(json.dumps(other))
    return find_earlier_runs(mine or manifest("now", 10.0), output)


def test_the_newest_run_comes_first_also_one_of_before_the_clock_was_put_back(tmp_path: Path) -> None:
    others = [manifest("old", 1.0), manifest("older", 0.5), manifest("put back since", 11.0)]
    names = ("put back since", "old", "older")
    assert decided(tmp_path, *others) == {
        "step-1": {"b": [EarlierRun(str(tmp_path / name), "step-1") for name in names]}
    }


WEAK = [{"name": "step-1", "fingerprint": "weak-" + "f" * 64, "format": "served"}]


def ended(output: Path, run_id: str, *, lost: int) -> None:
    """The summary of a run, with that many items that it did not get to."""
    result = {"checkpoint": "step-1", "benchmark": "b", "errors": 0, "timeouts": 0, "lost": lost}
    (output / run_id).mkdir(parents=True)
    (output / run_id / "summary.json").write_text(json.dumps({"results": [result]}))


def test_of_a_weak_fingerprint_only_what_was_stopped_since_the_last_whole_run_is_taken(
    tmp_path: Path,
) -> None:
    others = [manifest(name, when, checkpoints=WEAK) for name, when in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    ended(tmp_path, "a", lost=3)
    ended(tmp_path, "b", lost=0)  # of c there is no summary: it was killed
    mine = manifest("now", 10.0, checkpoints=WEAK)
    assert decided(tmp_path, *others, mine=mine) == {
        "step-1": {"b": [EarlierRun(str(tmp_path / "c"), "step-1")]}
    }
    asked = manifest("now", 10.0, checkpoints=WEAK, settings={"reuse_served": True})
    taken = decided(tmp_path, *others, mine=asked)
    assert [Path(one.directory).name for one in taken["step-1"]["b"]] == ["c", "b", "a"]


def test_another_name_of_the_same_checkpoint_is_looked_up(tmp_path: Path) -> None:
    other = manifest("old", 1.0, checkpoints=[{"name": "final", "fingerprint": "f" * 64}])
    assert decided(tmp_path, other) == {"step-1": {"b": [EarlierRun(str(tmp_path / "old"), "final")]}}


@pytest.mark.parametrize(
    "different",
    [
        {"settings": {"seed": 2}},
        {"settings": {"device_kind": "cuda"}},
        {"benchmarks": {"b": {**BENCHMARK, "version": 2}}},
        {"benchmarks": {"b": {**BENCHMARK, "data": "e" * 64}}},
        {"benchmarks": {"b": {**BENCHMARK, "few_shot": {"num_fewshot": 5}}}},
        {"benchmarks": {"b": {**BENCHMARK, "code": "e" * 64}}},
        {"benchmarks": {}},
        {"checkpoints": [{"name": "step-1", "fingerprint": "e" * 64}]},
        {"checkpoints": [{"name": "step-1", "fingerprint": None}]},
    ],
    ids=str,
)
def test_a_run_that_differs_in_what_scores_depend_on_is_not_looked_at(
    tmp_path: Path, different: dict[str, Any]
) -> None:
    assert decided(tmp_path, manifest("old", 1.0, **different)) == {}


def test_what_only_chooses_items_or_says_where_things_are_may_differ(tmp_path: Path) -> None:
    assert decided(tmp_path, manifest("old", 1.0, settings={"limit": 5, "base_model": "elsewhere"}))


@pytest.mark.parametrize("row", [{"cacheable": False}, {"fingerprint": None}])
def test_fake_checkpoints_and_unknown_fingerprints_take_nothing(tmp_path: Path, row: dict[str, Any]) -> None:
    rows = [{"name": "step-1", "fingerprint": "f" * 64, "format": "folder", **row}]
    old = manifest("old", 1.0, checkpoints=rows)
    assert decided(tmp_path, old, mine=manifest("now", 10.0, checkpoints=rows)) == {}


def test_a_benchmark_without_a_hash_of_its_code_takes_nothing(tmp_path: Path) -> None:
    none = {"benchmarks": {"b": {**BENCHMARK, "code": ""}}}
    assert decided(tmp_path, manifest("old", 1.0, **none), mine=manifest("now", 2.0, **none)) == {}


def stored(folder: Path, *records: Record) -> Reuse:
    (folder / "old").mkdir()
    (folder / "now").mkdir()
    with Journal(folder / "old", "main") as journal:
        for record in records:
            journal.append(record)
    write_reuse_plan(folder / "now", {"step-1": {"b": [EarlierRun(str(folder / "old"), "final")]}})
    return Reuse(folder / "now")


def record(status: Any = "scored", item: str = 't.py::t[final-b/"0"]', row: str = "r") -> Record:
    scores = {"acc": 1.0} if status == "scored" else {}
    return Record(
        item=item, benchmark="b", example='b/"0"', checkpoint="final", status=status, row=row, scores=scores
    )


def found(reuse: Reuse, row: str = "r") -> Record | None:
    return reuse.find("new item", "step-1", "b", 'b/"0"', row)


def test_a_record_becomes_the_new_runs_own_and_says_where_it_is_from(tmp_path: Path) -> None:
    one = found(stored(tmp_path, record()))
    assert one is not None
    assert (one.item, one.checkpoint, one.reused_from, one.scores) == (
        "new item",
        "step-1",
        "old",
        {"acc": 1.0},
    )


def test_the_last_record_counts_but_lost_never_replaces_scored(tmp_path: Path) -> None:
    assert found(stored(tmp_path, record("error"), record(), record("lost"))) is not None


@pytest.mark.parametrize(
    "records",
    [
        [record(), record("error")],
        [record("error")],
        [record(row="another")],
        [record(), record(item="t.py::t[other-b/0]")],
    ],
    ids=["an error later", "an error", "another row", "two items of one example"],
)
def test_what_is_no_score_of_this_very_item_is_not_taken(tmp_path: Path, records: list[Record]) -> None:
    assert found(stored(tmp_path, *records)) is None


def test_a_run_that_has_gone_meanwhile_has_nothing(tmp_path: Path) -> None:
    reuse = stored(tmp_path, record())
    (tmp_path / "old" / "items" / "items-main.jsonl").unlink()
    assert found(reuse) is None


def test_without_a_decision_nothing_is_known(tmp_path: Path) -> None:
    assert not Reuse(tmp_path).has("step-1", "b", "b/0")
