"""The journal: every prefix of it reads back as a prefix of what was written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.errors import JournalError
from pytest_touchstone.core.files import has_checksum, with_checksum
from pytest_touchstone.results.journal import (
    Journal,
    JournalFollower,
    encode_record,
    iter_records,
    latest_records,
    read_journal,
)
from pytest_touchstone.results.records import STATUSES, Record
from pytest_touchstone.results.store_entry import read_scores

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
RECORDS: Any = st.lists(
    st.builds(
        Record,
        item=st.sampled_from(["a", "b", "c\u2028d", "가"]),
        benchmark=st.just("x"),
        example=st.just("x/1"),
        checkpoint=st.just("c"),
        status=st.sampled_from(STATUSES),
        scores=st.dictionaries(
            st.sampled_from(["acc", "f1"]), st.floats(allow_nan=False, allow_infinity=False)
        ),
        message=st.none() | TEXT,
        exchanges=st.lists(st.fixed_dictionaries({"kind": TEXT}), max_size=2),
    ),
    max_size=6,
)


@given(RECORDS, st.data())
def test_any_prefix_of_a_file_reads_as_a_prefix_of_its_records(
    records: list[Record], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Journal(Path(folder), "main") as journal:
            for record in records:
                journal.append(record)
        shard = Path(folder, "items", "items-main.jsonl")
        if not records:
            assert not shard.exists()
            return
        whole = shard.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        shard.write_bytes(whole[:cut])
        read = read_journal(Path(folder))
        assert read == records[: len(read)]
        assert len(read) == whole[:cut].count(b"\n")


def test_a_broken_line_that_is_not_the_last_is_an_error_with_its_place(tmp_path: Path) -> None:
    journal_at(tmp_path, b'{"schema":1,"kind":"item"\n{"schema":1}\n')
    with pytest.raises(JournalError, match=r"items-main.jsonl, line 1"):
        read_journal(tmp_path)


@pytest.mark.parametrize(
    "line", ['{"exchanges":[]}', '{"schema":99,"kind":"item"}', '{"schema":1,"kind":"item","item":"a"}']
)
def test_a_line_that_is_no_record_is_an_error(tmp_path: Path, line: str) -> None:
    journal_at(tmp_path, with_checksum(line[:-1].encode()))
    for read in (read_scores, read_journal, lambda folder: JournalFollower(folder).new()):
        with pytest.raises(JournalError, match="line 1"):
            read(tmp_path)


def test_records_are_chosen_by_their_fields_and_not_by_what_models_wrote(tmp_path: Path) -> None:
    said = [{"kind": "Generate", "request": {}, "answer": {"example": "x/2", "benchmark": "가"}}]
    with Journal(tmp_path, "main") as journal:
        for benchmark, example in (("x", "x/1"), ("x", "x/2"), ("가", "x/2")):
            record = Record(
                item=example, benchmark=benchmark, example=example, checkpoint="c", status="scored"
            )
            journal.append(replace(record, exchanges=said))

    def found(**having: list[str]) -> list[tuple[str, str]]:
        return [(record.benchmark, record.example) for record in iter_records(tmp_path, having=having)]

    assert found(example=["x/1"]) == [("x", "x/1")]
    assert found(example=["x/1", "x/2"], benchmark=["가"]) == [("가", "x/2")]
    assert found(benchmark=["x"], checkpoint=["d"]) == []


def test_records_without_exchanges_are_the_others_without_theirs(tmp_path: Path) -> None:
    said = [{"kind": "Generate", "answer": {"exchanges": ["}]}"], "text": '"exchanges":[]}'}}]
    told = {"exchanges": [{"exchanges": 1}], "text": '{"schema":1'}
    records = [replace(plain(str(n)), exchanges=said[:n], facts=told if n else None) for n in range(2)]
    with Journal(tmp_path, "main") as journal:
        for record in records:
            journal.append(record)
    assert read_journal(tmp_path) == records
    assert read_journal(tmp_path, exchanges=False) == [replace(record, exchanges=[]) for record in records]


def test_two_records_in_one_line_are_an_error_also_without_their_exchanges(tmp_path: Path) -> None:
    with Journal(tmp_path, "main") as journal:
        journal.append(replace(plain("a"), exchanges=[{"kind": "Generate"}]))
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-6] + whole)
    for exchanges in (True, False):
        with pytest.raises(JournalError, match="line 1"):
            read_journal(tmp_path, exchanges=exchanges)


def test_what_was_scored_is_not_lost_again() -> None:
    scored = Record(
        item="a", benchmark="x", example="x/0", checkpoint="c", status="scored", scores={"acc": 1.0}
    )
    lost = Record(item="a", benchmark="x", example="x/0", checkpoint="c", status="lost")
    error = Record(item="a", benchmark="x", example="x/0", checkpoint="c", status="error")
    assert latest_records([scored, lost]) == {"a": scored}
    assert latest_records([lost, scored]) == {"a": scored}
    assert latest_records([scored, error]) == {"a": error}


def test_a_writer_killed_in_mid_write_leaves_a_journal_that_reads_back(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pytest_touchstone.results.journal import Journal\n"
        "from pytest_touchstone.results.records import Record\n"
        "journal = Journal(Path(sys.argv[1]), 'w'); n = 0\n"
        "while True:\n"
        "    journal.append(Record(item=str(n), benchmark='x', example='x/0', checkpoint='c', status='scored',\n"
        "                          message='m' * 5000))\n"
        "    n += 1\n"
        "    if n == 200: print('ready', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    records = read_journal(tmp_path)
    assert len(records) >= 200
    assert [record.item for record in records] == [str(n) for n in range(len(records))]


def journal_at(folder: Path, content: bytes) -> Path:
    """A journal with this content."""
    shard = folder / "items" / "items-main.jsonl"
    shard.parent.mkdir(exist_ok=True)
    shard.write_bytes(content)
    return shard


def plain(item: str) -> Record:
    return Record(
        item=item, benchmark="b", example="b/0", checkpoint="c", status="scored", scores={"acc": 1.0}
    )


def test_a_journal_that_grows_is_read_from_where_the_last_reading_ended(tmp_path: Path) -> None:
    one, two, three = (plain(f"t.py::t[b/{number}]") for number in range(3))
    following = JournalFollower(tmp_path)
    assert following.new() == []
    with Journal(tmp_path, "main") as journal:
        journal.append(one)
        assert following.new() == [one]
        with journal.path.open("a") as shard:
            shard.write('{"schema": 1, "kind')
        assert following.new() == []
        with journal.path.open("r+") as shard:
            shard.truncate(journal.path.stat().st_size - len('{"schema": 1, "kind'))
        journal.append(two)
    with Journal(tmp_path, "gw0") as journal:
        journal.append(three)
    assert following.new() == [three, two]
    assert following.new() == []
    assert read_journal(tmp_path, exchanges=False) == [three, one, two]


def test_a_broken_line_of_a_growing_journal_is_named_by_its_number(tmp_path: Path) -> None:
    following = JournalFollower(tmp_path)
    with Journal(tmp_path, "main") as journal:
        journal.append(plain("t.py::t[b/0]"))
        following.new()
    with (tmp_path / "items" / "items-main.jsonl").open("a") as shard:
        shard.write("{}\n")
    with pytest.raises(JournalError, match=r"items-main\.jsonl, line 2: "):
        following.new()


def test_records_that_are_followed_share_what_they_have_in_common(tmp_path: Path) -> None:
    following = JournalFollower(tmp_path)
    with Journal(tmp_path, "main") as journal:
        for number in range(2):
            journal.append(plain(f"t.py::t[b/{number}]"))
    one, two = following.new()
    assert one.exchanges == []
    for name in ("benchmark", "scores", "programs", "weak_tests", "exchanges"):
        assert getattr(one, name) is getattr(two, name), name


def test_a_line_in_which_any_bit_has_flipped_is_no_record(tmp_path: Path) -> None:
    line = encode_record(plain("a"))
    assert has_checksum(line)
    for bit in range(8 * (len(line) - 1)):
        flipped = bytearray(line)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not has_checksum(bytes(flipped))
        shard = journal_at(tmp_path, bytes(flipped) + line)
        if flipped.count(b"\n") == 1 and not bit % 97:
            for read in (read_scores, read_journal, partial(read_journal, exchanges=False)):
                with pytest.raises(JournalError, match=f"{shard.name}, line 1: damaged"):
                    read(tmp_path)


def test_a_line_without_its_checksum_is_no_record(tmp_path: Path) -> None:
    journal_at(tmp_path, encode_record(plain("a")).partition(b',"crc32"')[0] + b"}\n")
    for read in (read_scores, read_journal, lambda folder: JournalFollower(folder).new()):
        with pytest.raises(JournalError, match="line 1: damaged"):
            read(tmp_path)


def test_what_is_no_file_of_lines_is_an_error_at_once(tmp_path: Path) -> None:
    path = tmp_path / "items" / "items-main.jsonl"
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(JournalError, match="no regular file"):
        read_journal(tmp_path)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(JournalError, match="cannot read"):
        read_scores(tmp_path)
    path.unlink()
    path.write_bytes(with_checksum(b'{"schema":1,"kind":"item","item":' + b"[" * 100_000))
    with pytest.raises(JournalError, match="nests deeper"):
        read_journal(tmp_path)
