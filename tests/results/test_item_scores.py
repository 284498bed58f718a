"""The scores of a run's items, read without the rest of their records."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core.errors import JournalError
from harness.results.item_scores import read_scores
from harness.results.journal import Journal, latest, read_journal
from harness.results.records import STATUSES, Record
from harness.results.store_entry import items_of

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
    assert read_scores(tmp_path) == {place: items_of(own) for place, own in places.items()}


def test_a_torn_last_line_is_left_out_and_a_broken_one_is_named(tmp_path: Path) -> None:
    shard = write(tmp_path, record(), record(item="j", example="f"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    assert read_scores(tmp_path)["c", "b"].examples == ["e"]
    shard.write_bytes(b"{}\n" + whole)
    with pytest.raises(JournalError, match=r"items-main\.jsonl, line 1: "):
        read_scores(tmp_path)


def test_a_line_with_its_fields_in_another_order_is_read_whole(tmp_path: Path) -> None:
    line = '{"kind":"item","row":"r","schema":1,"item":"i","benchmark":"b","example":"e","checkpoint":"c",'
    (tmp_path / "items-main.jsonl").write_text(f'{line}"status":"scored","scores":{{"acc":1.0}}}}\n')
    assert read_scores(tmp_path)["c", "b"].scores == {"acc": [1.0]}
