"""Saved results are found again, whole, and a broken file is named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.errors import DataError, JournalError
from pytest_touchstone.results.journal import Journal, latest_records, read_journal
from pytest_touchstone.results.records import STATUSES, Record
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import (
    ItemScores,
    StoredResult,
    item_scores_of,
    read_scores,
    stored_result,
)
from pytest_touchstone.results.summary import Metric
from tests.support.lines import naming
from tests.support.summaries import DECLARATIONS


def items() -> ItemScores:
    return ItemScores(
        examples=["b/1", "b/2"],
        rows=["r1", "r2"],
        groups=[None, "g"],
        clusters=[None, None],
        scores={"acc": [1.0, 0.0], "extra": [None, 2.5]},
    )


def saved(**other: Any) -> StoredResult:
    metric = Metric(name="acc", value=0.5, low=0.1, high=0.9, stderr=0.3, n=2, method="wilson")
    plain = StoredResult(
        run_id="20260101_000000_1",
        directory="results/20260101_000000_1",
        began=1.0,
        checkpoint="step-100",
        fingerprint="ab" * 32,
        path="runs/step-100",
        step=100,
        benchmark="b",
        primary="acc",
        conditions={"version": 1, "shots": 0},
        aggregate={},
        metrics={"acc": metric},
        collected=2,
        scored=2,
        skipped=0,
        faults=0,
        invalid=None,
        items_sha256=items().digest(),
    )
    return dataclasses.replace(plain, **other)


def test_an_entry_and_its_items_come_back_as_they_were(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.save(saved(), items())
    assert store.find() == [saved()]
    assert store.items(saved()) == items()


def test_entries_are_found_by_benchmark_oldest_first(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    later = saved(run_id="r2", began=2.0)
    other = saved(fingerprint="cd" * 32, benchmark="b2")
    for one in (later, other, saved()):
        store.save(one, items())
    assert store.find(benchmark="b") == [saved(), later]
    assert store.find(benchmark="b2") == [other]


def test_a_prefix_that_two_fingerprints_share_does_not_mix_them(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    twin = saved(fingerprint="ab" * 31 + "00", run_id="r2")
    store.save(saved(), items())
    store.save(twin, items())
    assert store.find() == [saved(), twin]


def test_checkpoints_without_a_fingerprint_are_kept_beside_each_other(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    both = [saved(fingerprint="", checkpoint=name) for name in ("m1", "m2")]
    for one in both:
        store.save(one, items())
    assert store.find() == both


def test_a_removed_entry_is_gone_and_removing_it_again_is_no_error(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.save(saved(), items())
    store.remove(saved())
    store.remove(saved())
    assert store.find() == []
    with pytest.raises(DataError, match=r"items\.json"):
        store.items(saved())


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": 9}', '{"schema": 1, "kind": "saved"}'])
def test_a_broken_entry_is_named_with_what_to_do(tmp_path: Path, content: str) -> None:
    store = ResultStore(tmp_path)
    path = store.save(saved(), items())
    path.write_text(content, encoding="utf-8")
    assert store.find() == []
    assert naming(path.name, "remove").search(store.left_out[0])


def test_items_whose_columns_differ_in_length_are_refused(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.save(saved(), dataclasses.replace(items(), rows=["r1"]))
    with pytest.raises(DataError, match=r"columns of \[1, 2\] entries"):
        store.items(saved())


def test_the_digest_is_the_same_in_whatever_order_the_items_come() -> None:
    turned = dataclasses.replace(items(), examples=items().examples[::-1], rows=items().rows[::-1])
    assert turned.examples != items().examples
    assert turned.digest() == items().digest()


def test_the_digest_goes_by_ids_and_rows() -> None:
    assert items().digest() == dataclasses.replace(items(), scores={}).digest()
    assert items().digest() != dataclasses.replace(items(), rows=["r1", "r3"]).digest()


def test_an_entry_of_an_earlier_release_is_read_and_is_no_part(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    path = store.save(saved(of=4, mark="2 of 4 items"), items())
    assert store.find()[0].part
    plain = json.loads(path.read_text())
    del plain["of"], plain["mark"]
    path.write_text(json.dumps(plain))
    [old] = store.find()
    assert (old.of, old.mark, old.part) == (0, "", False)


@pytest.mark.parametrize("step", [None, 300])
def test_a_result_has_the_step_that_the_trainer_wrote_not_its_place_in_the_series(step: int | None) -> None:
    row = {"name": "gpt2", "global_step": step, "step": 2, "fingerprint": "f", "path": "runs/gpt2"}
    found = stored_result(
        DECLARATIONS["real_coref"],
        {"began": 5, "settings": {"limit": None, "device_kind": "cuda"}},
        row,
        run_id="r",
        directory="results/r",
        checkpoint="gpt2",
        chat=False,
        metrics={},
        collected=7,
    )
    assert (found.step, found.fingerprint, found.scored, found.complete) == (step, "f", 7, True)
    assert found.composites == DECLARATIONS["real_coref"].composites
    assert "device_kind" not in found.conditions


@pytest.mark.parametrize(("end", "before", "after"), [(".json", "0.5", "0.9"), (".items.json", "1.0", "0.0")])
def test_a_number_that_has_changed_on_the_disk_is_not_believed(
    tmp_path: Path, end: str, before: str, after: str
) -> None:
    store = ResultStore(tmp_path)
    path = store.save(saved(), items()).with_suffix(end)
    path.write_text(path.read_text(encoding="utf-8").replace(before, after, 1), encoding="utf-8")
    if end == ".json":
        assert not store.find()
        assert "damaged" in store.left_out[0]
    else:
        with pytest.raises(DataError, match="damaged"):
            store.items(saved())


# The scores of a run's items, read without the rest of their records.


NAMES = st.sampled_from(["a", 'b","message":"', 'c\\"', "한국어", ',"message":', ""])


def record(**more: object) -> Record:
    known = {"item": "i", "benchmark": "b", "example": "e", "checkpoint": "c", "status": "scored", "row": "r"}
    return Record(**{**known, **more})  # type: ignore[arg-type]


def write(folder: Path, *records: Record) -> Path:
    with Journal(folder, "main") as journal:
        for one in records:
            journal.append(one)
    return folder / "items" / "items-main.jsonl"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            record,
            item=NAMES,
            benchmark=NAMES,
            example=NAMES,
            checkpoint=NAMES,
            status=st.sampled_from(STATUSES),
            group=st.none() | NAMES,
            cluster=st.none() | NAMES,
            row=NAMES,
            message=st.none() | NAMES,
            scores=st.dictionaries(NAMES, st.floats(0, 1), max_size=2),
            exchanges=st.lists(st.fixed_dictionaries({"kind": NAMES, "message": NAMES}), max_size=2),
        ),
        max_size=6,
    )
)
def test_they_are_those_of_the_records(tmp_path: Path, records: list[Record]) -> None:
    (tmp_path / "items" / "items-main.jsonl").unlink(missing_ok=True)
    write(tmp_path, *records)
    places: dict[tuple[str, str], list[Record]] = {}
    for one in latest_records(read_journal(tmp_path)).values():
        if one.status == "scored":
            places.setdefault((one.checkpoint, one.benchmark), []).append(one)
    found = read_scores(tmp_path)
    wanted = {place: item_scores_of(own) for place, own in places.items()}
    assert {place: one.items for place, one in found.items()} == wanted
    for place, own in places.items():
        assert list(found[place].lines.each()) == sorted(own, key=lambda one: one.example)


def test_what_a_metric_takes_beside_the_score_is_kept_of_those_that_told_it(tmp_path: Path) -> None:
    told = record(facts={"right": [1], "chosen": [0], "gold": "b"})
    write(tmp_path, told, record(item="j", example="f", facts=None), record(item="k", benchmark="other"))
    found = read_scores(tmp_path, {"b": ("right", "chosen")})
    assert found["c", "b"].items.facts == {"right": [1, None], "chosen": [0, None]}
    assert found["c", "other"].items.facts == {}
    assert item_scores_of([told], ("right",)).facts == {"right": [1]}


def test_a_torn_last_line_is_left_out_and_a_broken_one_is_named(tmp_path: Path) -> None:
    shard = write(tmp_path, record(), record(item="j", example="f"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    assert read_scores(tmp_path)["c", "b"].items.examples == ["e"]
    shard.write_bytes(b"{}\n" + whole)
    with pytest.raises(JournalError, match=r"items-main\.jsonl, line 1: "):
        read_scores(tmp_path)


def test_of_a_run_in_several_shards_just_the_lines_that_are_asked_for_are_read(tmp_path: Path) -> None:
    for who in ("one", "two"):
        with Journal(tmp_path, who) as journal:
            for number in range(3):
                name = f"{who}{number}"
                journal.append(record(item=name, example=name, exchanges=[{"kind": name}]))
    lines = read_scores(tmp_path)["c", "b"].lines
    assert [one.exchanges for one in lines.of({"two1", "one2"})] == [[{"kind": "one2"}], [{"kind": "two1"}]]


def test_a_journal_that_has_changed_since_is_told(tmp_path: Path) -> None:
    shard = write(tmp_path, record(), record(item="j", example="f"))
    lines = read_scores(tmp_path)["c", "b"].lines
    first, second = shard.read_bytes().splitlines(keepends=True)
    shard.write_bytes(second + first)
    with pytest.raises(JournalError, match=r"record of e\b|no record"):
        list(lines.of({"e"}))
    shard.unlink()
    with pytest.raises(JournalError, match="No such file"):
        list(lines.each())
