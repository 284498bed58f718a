"""Records that are kept as columns are those that were added, and one of each item is the latest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.results.journal import Following, Journal, latest, read_journal
from pytest_touchstone.results.kept_records import FiledRecords, KeptRecords, RecordColumns
from pytest_touchstone.results.records import STATUSES, Record

TEXTS = st.sampled_from(["", "a", "b/1", "b/02", "b/10", "0123456789abcdef", "한국어 7", "x\ud83dy"])
SCORES = st.dictionaries(st.sampled_from(["acc", "f1"]), st.sampled_from([0, 0.0, 1, 1.0, True, 0.25]))

records = st.builds(
    Record,
    item=TEXTS,
    benchmark=TEXTS,
    example=TEXTS,
    checkpoint=st.sampled_from(["c", "d"]),
    status=st.sampled_from(STATUSES),
    scores=SCORES,
    group=st.none() | TEXTS,
    cluster=st.none() | TEXTS,
    row=TEXTS,
    message=st.none() | TEXTS,
    seconds=st.sampled_from([0.0, 0.125, 3.5]),
    outputs=st.integers(0, 2),
    unanswered=st.integers(0, 2),
    programs=st.dictionaries(st.just("passed"), st.integers(1, 2)),
    weak_tests=st.dictionaries(TEXTS, st.lists(TEXTS, max_size=2), max_size=1),
    told=st.none() | st.dictionaries(st.sampled_from(["right", "length"]), st.integers(0, 2), min_size=1),
    reused_from=st.none() | TEXTS,
)


@given(st.lists(records, max_size=20))
def test_records_come_back_as_they_were_added(some: list[Record]) -> None:
    kept = KeptRecords.of(some)
    assert list(kept) == some
    assert [repr(one.scores) for one in kept] == [repr(one.scores) for one in some], "types are kept too"
    assert [kept[place] for place in range(len(kept))] == some


def test_only_what_aggregations_take_is_kept_of_what_was_told() -> None:
    plain = Record(item="i", benchmark="b", example="e", checkpoint="c", status="scored")
    columns = RecordColumns(told=["gold"])
    for told in ({"gold": 1, "length": 9}, {"length": 9}, None):
        columns.add(replace(plain, told=told))
    assert [columns.record(place).told for place in range(3)] == [{"gold": 1}, None, None]


@given(st.lists(st.tuples(st.sampled_from(["gw0", "gw1", "main"]), records, st.booleans()), max_size=20))
def test_the_latest_of_each_item_are_those_of_the_whole_journal_in_its_order(
    written: list[tuple[str, Record, bool]],
) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as name:
        folder = Path(name)
        following, filed = Following(folder), FiledRecords(told=["right", "length"])
        for who, record, read in written:
            with Journal(folder, who) as journal:
                journal.append(record)
            if read:
                for path, one in following.each():
                    filed.add(path, one)
        for path, one in following.each():
            filed.add(path, one)
        for checkpoint in (None, "c", "d"):
            own = [one for one in read_journal(folder) if checkpoint in (None, one.checkpoint)]
            known, found = latest(own), filed.latest(checkpoint)
            assert list(found) == list(known.values())
            for item, record in known.items():
                place = found.find(item)
                assert place is not None
                assert found.columns.record(place) == record
            assert found.find("another") is None


def test_scored_records_are_in_order_of_examples_then_of_items() -> None:
    plain = Record(item="", benchmark="b", example="", checkpoint="c", status="scored", scores={"acc": 1.0})
    some = [
        replace(plain, example=example, item=item)
        for example, item in (("b/2", "t2"), ("b/10", "t9"), ("b/10", "t10"), ("b/1", "t1"))
    ]
    lost = replace(plain, status="lost", scores={})
    found = KeptRecords.of([*some, lost]).scored()
    assert [one.item for one in found] == ["t1", "t10", "t9", "t2"]
    assert found.values("acc") == [1.0] * 4
    assert len(found.having("f1")) == 0
