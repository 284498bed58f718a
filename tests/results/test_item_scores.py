"""The scores of a run's items, read without the rest of their records."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.results.journal import Journal, latest, read_journal
from pytest_touchstone.results.records import STATUSES, Record
from pytest_touchstone.results.store_entry import items_of, read_scores

NAMES = st.sampled_from(["a", 'b","message":"', 'c\\"', "한국어", ',"message":', ""])


def record(**more: object) -> Record:
    known = {"item": "i", "benchmark": "b", "example": "e", "checkpoint": "c", "status": "scored", "row": "r"}
    return Record(**{**known, **more})  # type: ignore[arg-type]


def write(folder: Path, *records: Record) -> Path:
    with Journal(folder, "main") as journal:
        for one in records:
            journal.append(one)
    return folder / "items-main.jsonl"


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
    (tmp_path / "items-main.jsonl").unlink(missing_ok=True)
    write(tmp_path, *records)
    places: dict[tuple[str, str], list[Record]] = {}
    for one in latest(read_journal(tmp_path)).values():
        if one.status == "scored":
            places.setdefault((one.checkpoint, one.benchmark), []).append(one)
    found = read_scores(tmp_path)
    wanted = {place: items_of(own) for place, own in places.items()}
    assert {place: one.items for place, one in found.items()} == wanted
    for place, own in places.items():
        assert list(found[place].lines.each()) == sorted(own, key=lambda one: one.example)


def test_a_torn_last_line_is_left_out_and_a_broken_one_is_named(tmp_path: Path) -> None:
    shard = write(tmp_path, record(), record(item="j", example="f"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    assert read_scores(tmp_path)["c", "b"].items.examples == ["e"]
    shard.write_bytes(b"{}\n" + whole)
    with pytest.raises(JournalError, match=r"items-main\.jsonl, line 1: "):
        read_scores(tmp_path)


def test_a_line_with_its_fields_in_another_order_is_read_whole(tmp_path: Path) -> None:
    line = '{"kind":"item","row":"r","schema":1,"item":"i","benchmark":"b","example":"e","checkpoint":"c",'
    (tmp_path / "items-main.jsonl").write_text(f'{line}"status":"scored","scores":{{"acc":1.0}}}}\n')
    assert read_scores(tmp_path)["c", "b"].items.scores == {"acc": [1.0]}


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
    with pytest.raises(JournalError, match=r"not the record of e any more|no record"):
        list(lines.of({"e"}))
    shard.unlink()
    with pytest.raises(JournalError, match="No such file"):
        list(lines.each())
