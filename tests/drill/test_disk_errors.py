"""A disk that refuses, that takes a part, that is shared, and that forgets a bit: nothing is lost, and nothing that is
damaged is believed."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_touchstone.checkpoints.fingerprint import FingerprintCache
from pytest_touchstone.compare.baseline_source import read_named_baseline
from pytest_touchstone.core.errors import HarnessError, JournalError
from pytest_touchstone.engines.sandbox.cache import TextFiles
from pytest_touchstone.results.journal import Journal, read_journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.reuse import SETTINGS
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.summary import load_summary
from tests.drill.conftest import Drill
from tests.drill.disk import OPERATIONS, SimulatedDisk, kept, lost
from tests.drill.kept import STAMPS, Attempt, Question, attempt, others
from tests.drill.test_crash_points import SMALL, cut_merges, go_on, on_a_disk, undisturbed

ERRORS: Final = (errno.ENOSPC, errno.EIO, errno.EINTR)


def refuse(disk: SimulatedDisk, question: Question, calls: Iterable[int], errors: Iterable[int]) -> int:
    """Have each of these calls refused with each error, and the disk full from each on; then cut the power, and go on.

    Whoever is refused says so by an error of the harness or of the system. Return the number of runs.
    """
    expected = undisturbed(disk, question)
    tried = 0
    for call in calls:
        for error in (*errors, None):
            disk.restore({})
            if error is None:
                disk.full = call
            else:
                disk.errors = {call: error}
            made = Attempt()
            try:
                attempt(disk.root / "results", question, disk, made, number=0)
            except (HarnessError, OSError):
                assert made.report is None
            else:
                assert made.report == expected
            disk.errors, disk.full = {}, None
            moment = disk.moment()
            for content in (kept, lost):
                disk.restore(moment.state(moment.pending, content), moment.promised)
                go_on(disk, question, expected, number=1)
            tried += 1
    return tried


def calls_of(disk: SimulatedDisk, question: Question) -> int:
    attempt(disk.root / "results", question, disk, number=0)
    calls = disk.calls
    disk.restore({})
    return calls


def test_a_call_that_is_refused_costs_what_was_not_synced(drill: Drill) -> None:
    with on_a_disk() as disk:
        calls = range(1, calls_of(disk, SMALL) + 1)
        chosen = calls if drill.whole else random.Random(0).sample(calls, 12)
        drill.figure(
            "runs with a refused call, or a disk full from there on", refuse(disk, SMALL, chosen, ERRORS)
        )


def take_parts(disk: SimulatedDisk, question: Question) -> int:
    """Have each write take half of what it is given, alone and all together; return the number of runs."""
    expected = undisturbed(disk, question)
    calls = calls_of(disk, question)
    for call in range(calls + 1):
        disk.restore({})
        disk.short = call
        made = attempt(disk.root / "results", question, disk, number=0, whole=call == 0)
        assert made.report == expected
        assert not made.damaged
        disk.short = None
        go_on(disk, question, expected, number=1)
    return calls + 1


def test_a_write_that_takes_a_part_goes_on(drill: Drill) -> None:
    with on_a_disk() as disk:
        drill.figure("runs with a short write", take_parts(disk, SMALL))


def record(number: int) -> Record:
    return Record(item=f"i{number}", benchmark="b", example=f"b/{number}", checkpoint="c", status="scored")


def write_at_once(disk: SimulatedDisk) -> None:
    """Two processes that have the same file, one of which opens it again."""
    both = [Journal(disk.root, "main"), Journal(disk.root, "main")]
    for number in range(9):
        both[number % 2].append(record(number))
        if number == 4:
            both[0].close()
    for one in both:
        one.close()
    assert [one.item for one in read_journal(disk.root)] == [f"i{number}" for number in range(9)]


def test_two_that_write_a_journal_at_once_lose_nothing() -> None:
    with on_a_disk() as disk:
        write_at_once(disk)


def claim_at_once(disk: SimulatedDisk) -> None:
    """Two runs that have chosen the same folder, which neither has made yet."""
    first, second = (RunDirectory(disk.root / "results" / "same", token) for token in ("token 1", "token 2"))
    first.make()
    with pytest.raises(JournalError, match="belongs to another run"):
        second.make()
    assert first.is_claimed()


def test_a_folder_that_a_run_has_claimed_is_refused_to_another() -> None:
    with on_a_disk() as disk:
        claim_at_once(disk)


def append_after_refusal(disk: SimulatedDisk) -> None:
    """A disk that was full for a moment leaves a torn line, after which there is nothing."""
    journal = Journal(disk.root, "main")
    journal.append(record(0))
    disk.short, disk.errors = disk.calls + 1, {disk.calls + 2: errno.ENOSPC}
    for number in (1, 2):
        with pytest.raises(HarnessError, match="No space left"):
            journal.append(record(number))
    journal.close()
    assert [one.item for one in read_journal(disk.root)] == ["i0"]


def sync_after_refusal(disk: SimulatedDisk) -> None:
    """What could not be synced once is not believed to be on the disk by a later sync."""
    journal = Journal(disk.root, "main")
    journal.append(record(0))
    disk.errors = {disk.calls + 1: errno.EIO}
    for _ in range(2):
        with pytest.raises(HarnessError, match="Input/output error"):
            journal.sync()
    journal.close()


def test_nothing_follows_a_line_that_was_refused() -> None:
    with on_a_disk() as disk:
        append_after_refusal(disk)


def test_no_sync_follows_one_that_was_refused() -> None:
    with on_a_disk() as disk:
        sync_after_refusal(disk)


def ask_otherwise(disk: SimulatedDisk) -> None:
    """A run with another seed takes nothing of the first."""
    other = replace(SMALL, seed=2)
    expected = undisturbed(disk, other)
    attempt(disk.root / "results", SMALL, disk, number=0)
    assert attempt(disk.root / "results", other, disk, number=1).report == expected


def test_scores_of_another_question_are_not_taken() -> None:
    with on_a_disk() as disk:
        ask_otherwise(disk)


# Bits

LENGTH: Final = len(',"crc32":"01234567"}\n')
"""The bytes of a checksum; where they are flipped themselves, the rest is as it was written."""


def flip(disk: SimulatedDisk, draw: random.Random, every: int, only: str = "") -> int:
    """Flip a bit of each ``every``-th byte of all that a run and others have left, or of those that have ``only`` in
    their path, and go on; return the number."""
    expected = undisturbed(disk, SMALL)
    output = disk.root / "results"
    attempt(output, SMALL, disk, number=0, whole=True)
    others(output)
    whole = disk.state()
    disk.restore(whole)
    right = facts_of(output)
    attempt(output, Question(3, seed=2), disk, number=9)  # whose scores are never those of the first
    whole = {**disk.state(), **whole}
    tried = 0
    for path, data in whole.items():
        if data is None or only not in path or path.endswith((".log", ".html")):
            continue
        for at in range(draw.randrange(min(every, len(data) or 1)), len(data), every):
            flipped = bytearray(data)
            flipped[at] ^= 1 << draw.randrange(8)
            disk.restore({**whole, path: bytes(flipped)})
            made = attempt(output, SMALL, disk, number=10)
            assert made.report == expected, f"{path}, byte {at}"
            if path.endswith("run-000/items/items-main.jsonl"):
                assert made.damaged or at == len(data) - 1, f"{path}, byte {at}: not named"
                assert made.asked, f"{path}, byte {at}: believed"
            if path.endswith("run-000/run.json") and at < len(data) - LENGTH:
                assert made.damaged, f"{path}, byte {at}: not named"
            _check_facts(right, facts_of(output), f"{path}, byte {at}")
            tried += 1
    return tried


def facts_of(output: Path) -> dict[str, Any]:
    """What is read of the kept files by the product's readers; a file that is refused by name is None."""
    run = RunDirectory(output / "run-000")
    store = ResultStore(output)
    entries = [one for one in store.find() if one.run_id == "run-000"]
    readers = {
        "manifest": lambda: run.read_manifest()[SETTINGS],
        "collected": run.read_collected,
        "summary": lambda: load_summary(run.path).results,
        "entry": lambda: entries or None,
        "items": lambda: [store.items(one) for one in entries] or None,
        "baseline": lambda: read_named_baseline(output, "pinned"),
        "fingerprint": lambda: FingerprintCache(output / "fingerprints").find("model", STAMPS),
        "texts": lambda: TextFiles(output / "texts", 1).find("k2"),
    }
    found = {}
    for name, read in readers.items():
        try:
            found[name] = read()
        except HarnessError:
            found[name] = None
    return found


def _check_facts(right: dict[str, Any], found: dict[str, Any], where: str) -> None:
    for name, value in right.items():
        assert value is not None, name
        assert found[name] in (None, value), f"{where}: believed as {name}"


def test_a_flipped_bit_is_named_and_asked_again_and_never_believed(drill: Drill) -> None:
    with on_a_disk() as disk:
        drill.figure("flipped bits", flip(disk, random.Random(1), 3 if drill.whole else 151))


# The generator itself

KEPT: Final = (
    *("run.json", "collected.json", "reuse.json", "shard.json", "effort-main.json", "schedules.json"),
    *(
        "progress-main.json",
        "in-flight-main.json",
        "quarantine.txt",
        "run.log",
        "errors.log",
    ),
    *("items-main.jsonl", "items-merged.jsonl", "summary.json", "results.csv", "report.html"),
    *("accepted.json", "pinned.json", "key.json"),
)
"""Every kind of file of a run (``results``), and of all else that is kept and has a fixed name here."""

FOLDERS: Final = ("saved", "fingerprints", "texts", "baselines", "ways", "items", "details")


def test_the_drill_does_all_that_the_product_does_on_a_disk() -> None:
    with on_a_disk() as disk:
        output = disk.root / "results"
        attempt(output, SMALL, disk, number=0, whole=True)
        attempt(output, SMALL, disk, number=1)
        others(output)
        cut_merges(disk)
        assert set(OPERATIONS) <= disk.counts.keys()
        assert set(KEPT) <= disk.seen
        assert set(FOLDERS) <= disk.seen
