"""The files of a run that goes on: whole or not there, and gone when it has ended."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from pytest_touchstone.results.live import (
    ProcessProgress,
    goes_on,
    process_space,
    read_progress,
    remove_live,
    write_progress,
)


def test_what_is_written_is_read_again(tmp_path):
    state = ProcessProgress(who="gw1", doing="gsm8k", tokens=9, items=3, ended=1, work=7.5, done=2.5)
    write_progress(tmp_path, state)
    assert read_progress(tmp_path) == [state]
    details = tmp_path / "details"
    (details / ".progress-gw1.json.77.tmp").touch()  # of a process that was killed
    remove_live(tmp_path)
    assert not list(details.iterdir())


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": 9}', '{"schema": 1}', '{"schema": 1, "parts": {"x": {}}}'],
)
def test_a_broken_file_is_taken_for_none(tmp_path, text):
    (tmp_path / "details").mkdir()
    (tmp_path / "details" / "progress-main.json").write_text(text)
    assert read_progress(tmp_path) == []


def test_a_folder_that_is_gone_is_no_error(tmp_path):
    write_progress(tmp_path / "gone", ProcessProgress(who="main"))
    assert read_progress(tmp_path / "gone") == []
    remove_live(tmp_path / "gone")


def test_a_run_whose_processes_have_died_goes_on_no_longer(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    now = time.time()
    write_progress(tmp_path, ProcessProgress(who="worker", pid=ended.pid, space=process_space() or "here"))
    assert goes_on(tmp_path, now) == (not process_space())
    write_progress(tmp_path, ProcessProgress(who="elsewhere", pid=ended.pid, space="another machine"))
    assert goes_on(tmp_path, now)
    write_progress(tmp_path, ProcessProgress(who="elsewhere"))
    assert goes_on(tmp_path, now)
    assert not goes_on(tmp_path, now + 99)


@pytest.mark.parametrize("pid", ["x", None, 10**30, -1])
def test_a_number_that_is_none_of_a_process_is_no_error(tmp_path, pid):
    write_progress(tmp_path, ProcessProgress(who="main", pid=pid))
    assert goes_on(tmp_path, 0.0)
