"""A run's folder belongs to one run: to whoever claims it first, and to all that know its token."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import HarnessError, JournalError
from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.plugin import new_run_id, new_token
from pytest_touchstone.results import run_directory
from pytest_touchstone.results.run_directory import (
    ProcessProgress,
    RunDirectory,
    candidate_paths,
    find_run,
    is_running,
    read_progress,
    remove_progress,
    write_progress,
)

STARTS = 20


def claimed(folder: Path, token: str) -> bool:
    """Whether the run with this token has got the folder."""
    try:
        RunDirectory(folder, token).make()
    except JournalError:
        return False
    return True


def claim_at_once(folder: Path, token: str, barrier: Any, results: Any) -> None:
    barrier.wait()
    results.put((token, claimed(folder, token)))


def of_processes(folder: Path, tokens: list[str]) -> dict[str, list[bool]]:
    """What a process for each token has got, all at once."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(len(tokens)), context.Queue()
    processes = [
        context.Process(target=claim_at_once, args=(folder, token, barrier, results)) for token in tokens
    ]
    for process in processes:
        process.start()
    found: dict[str, list[bool]] = {}
    for _ in tokens:
        token, won = results.get(timeout=60)
        found.setdefault(token, []).append(won)
    for process in processes:
        process.join()
    return found


@pytest.mark.slow
def test_of_twenty_processes_that_start_at_once_one_run_gets_the_folder(tmp_path: Path) -> None:
    for attempt in range(10):
        folder = tmp_path / "results" / f"same-{attempt}"
        found = of_processes(folder, [new_token() for _ in range(STARTS)])
        assert sorted(won for runs in found.values() for won in runs) == [False] * (STARTS - 1) + [True]
        (winner,) = (token for token, (won,) in found.items() if won)
        assert RunDirectory(folder, winner).is_claimed()


def test_all_processes_of_a_run_get_its_folder_or_none_of_them(tmp_path: Path) -> None:
    for attempt in range(10):
        found = of_processes(tmp_path / f"same-{attempt}", ["a" * 32, "b" * 32] * (STARTS // 2))
        assert sorted(map(set, found.values()), key=str) == [{False}, {True}]


def test_of_many_threads_one_gets_the_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(STARTS) as pool:
        won = pool.map(lambda _: claimed(tmp_path / "same", new_token()), range(10 * STARTS))
        assert sum(won) == 1


def test_runs_with_the_same_process_id_in_the_same_second_have_ids_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in two containers, each of which counts its processes from 1."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    ids = {new_run_id(1_790_000_000.25) for _ in range(STARTS)}
    assert len(ids) == STARTS
    assert {one[:15] for one in ids} == {time.strftime("%Y%m%d_%H%M%S", time.localtime(1_790_000_000.25))}


def test_ids_sort_by_when_their_runs_began() -> None:
    moments = [1_790_000_000 + n * 0.125 for n in range(20)]
    ids = [new_run_id(moment) for moment in moments]
    assert ids == sorted(ids)


def test_a_claim_that_another_process_of_the_run_is_writing_is_waited_for(tmp_path: Path) -> None:
    token = new_token()
    (tmp_path / "run" / "details").mkdir(parents=True)
    claim = tmp_path / "run" / "details" / "claim"
    claim.write_text(token[:5])
    writer = threading.Timer(0.2, claim.write_text, [token])
    writer.start()
    assert claimed(tmp_path / "run", token)
    writer.join()


def test_a_claim_that_was_never_finished_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "WRITING_SECONDS", 0.1)
    (tmp_path / "run" / "details").mkdir(parents=True)
    (tmp_path / "run" / "details" / "claim").touch()
    assert not claimed(tmp_path / "run", new_token())


def test_an_empty_folder_may_be_there_before(tmp_path: Path) -> None:
    assert claimed(tmp_path, new_token())


def test_a_run_discards_its_own_preparations_and_nothing_of_another(tmp_path: Path) -> None:
    first, second = RunDirectory(tmp_path / "run", new_token()), RunDirectory(tmp_path / "run", new_token())
    first.make()
    first.write_collected([], {}, [])
    second.discard()
    assert first.collected.is_file()
    first.discard()
    assert not first.path.exists()
    second.make()
    assert second.is_claimed()


def test_a_run_does_not_write_its_results_into_a_folder_that_was_made_anew(tmp_path: Path) -> None:
    first, second = RunDirectory(tmp_path / "run", new_token()), RunDirectory(tmp_path / "run", new_token())
    first.make()
    first.write_manifest({})
    first.check_kept()
    (tmp_path / "run").rename(tmp_path / "removed")
    second.make()
    second.write_manifest({})
    second.check_kept()
    with pytest.raises(HarnessError, match=r"\brun was removed\b"):
        first.check_kept()


def test_where_a_claim_cannot_be_written_no_folder_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(JournalError, match="No space left"):
        RunDirectory(tmp_path / "run", new_token()).make()
    assert not (tmp_path / "run").exists()


def write_at_once(path: Path, text: str, barrier: Any) -> None:
    os.getpid = lambda: 7  # as in a container
    barrier.wait()
    for _ in range(50):
        write_atomic(path, text, lasting=False)
        assert len(set(path.read_text())) == 1


def test_a_file_that_two_containers_write_at_once_is_that_of_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    processes = [
        context.Process(target=write_at_once, args=(tmp_path / "file", letter * 100_000, barrier))
        for letter in "abcd"
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# What is read, changed and written


def add_line(path: Path, line: int, barrier: Any) -> None:
    barrier.wait()
    with disk.locked(path):
        before = path.read_text() if path.exists() else ""
        time.sleep(0.01)
        write_atomic(path, f"{before}{line}\n", lasting=False)


def test_of_twenty_that_change_a_file_at_once_none_loses_anothers_change(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, path = context.Barrier(STARTS), tmp_path / "made" / "file"
    processes = [context.Process(target=add_line, args=(path, line, barrier)) for line in range(STARTS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert sorted(map(int, path.read_text().split())) == list(range(STARTS))
    assert [one.name for one in path.parent.iterdir()] == ["file"]


def test_a_file_that_somebody_was_killed_with_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "LOCK_SECONDS", 0.1)
    (tmp_path / ".file.lock").touch()
    with pytest.raises(OSError, match=r"remove \.file\.lock beside it"), disk.locked(tmp_path / "file"):
        pass
    (tmp_path / ".file.lock").unlink()
    with disk.locked(tmp_path / "file"):
        pass


# Names


def test_a_name_is_a_runs_id_before_it_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("results", "tiny")
    for folder in (run, Path("tiny")):
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text("{}")
    assert find_run("tiny", Path("results"), "summary.json") == run
    assert find_run("./tiny", Path("results"), "summary.json") == Path("tiny")
    assert find_run(Path("tiny"), Path("results"), "summary.json") == Path("tiny")
    (run / "summary.json").unlink()
    assert candidate_paths("tiny", Path("results")) == (Path("tiny"), run), "it is no run any more"


def test_last_is_the_newest_run_whatever_has_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path("results", "first"), Path("last")):
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text("{}")
    assert find_run("last", Path("results"), "summary.json") == Path("results", "first")


# While a run goes on


def test_the_progress_of_a_process_is_read_again(tmp_path: Path) -> None:
    state = ProcessProgress(who="gw1", doing="gsm8k", tokens=9, ended=1, work=7.5, done=2.5)
    write_progress(tmp_path, state)
    assert read_progress(tmp_path) == [state]
    details = tmp_path / "details"
    (details / ".progress-gw1.json.77.tmp").touch()  # of a process that was killed
    remove_progress(tmp_path)
    assert not list(details.iterdir())


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": 9}', '{"schema": 1}', '{"schema": 1, "parts": {"x": {}}}'],
)
def test_a_broken_file_of_progress_is_taken_for_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "details").mkdir()
    (tmp_path / "details" / "progress-main.json").write_text(text)
    assert read_progress(tmp_path) == []


def test_progress_in_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    write_progress(tmp_path / "gone", ProcessProgress(who="main"))
    assert read_progress(tmp_path / "gone") == []
    remove_progress(tmp_path / "gone")


def test_a_run_goes_on_while_it_writes(tmp_path: Path) -> None:
    write_progress(tmp_path, ProcessProgress(who="main"))
    now = time.time()
    assert is_running(tmp_path, now)
    assert not is_running(tmp_path, now + 99)
