"""Ctrl-C and SIGTERM end a run with how far it came and the command that goes on, and lose no record."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.plugin.controller import Interrupts

Project = Any

INTERRUPTED = """
import signal


def pytest_touchstone_item_finished(record):
    if record.example == "sums/3" and "{first}":
        raise KeyboardInterrupt


def pytest_touchstone_run_finished(summary):
    signal.raise_signal(signal.SIGINT)
    raise RuntimeError("the reporting goes on")
"""


@pytest.fixture
def interrupts() -> Any:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    found = Interrupts()
    yield found
    found.close()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_may_be_ended(interrupts: Interrupts, number: signal.Signals) -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    interrupts.arm()
    assert interrupts.finished(lambda: done.append(1))
    assert not interrupts.finished(lambda: signal.raise_signal(number))
    assert done == [1]


def test_ctrl_c_does_nothing_while_pytest_ends_the_run(interrupts: Interrupts) -> None:
    interrupts.arm()
    signal.raise_signal(signal.SIGINT)
    assert not interrupts.finished(lambda: signal.raise_signal(signal.SIGINT))
    signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["yes", ""])
def test_ctrl_c_while_results_are_written_ends_in_one_line_and_loses_nothing(
    project: Project, first: str
) -> None:
    source = INTERRUPTED.replace("{first}", first)
    (project.path / "conftest.py").write_text(source)
    result = project.run("--eval-run-id", "r", apart=True)
    assert result.ret == 2
    out = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in out
    assert "the reporting goes on" not in out
    scored = sum(record.status == "scored" for record in project.records.values())
    assert scored
    assert goes_on(result) == (scored, [])


@pytest.mark.parametrize(("options", "shown"), [((), False), (("--full-trace",), True)])
def test_ctrl_c_during_collection_is_one_line_unless_the_place_is_asked_for(
    project: Project, options: tuple[str, ...], shown: bool
) -> None:
    (project.path / "conftest.py").write_text("def pytest_collectstart(): raise KeyboardInterrupt")
    result = project.run(*options, apart=True)
    assert result.ret == 2
    text = result.stdout.str()
    assert ("stopped before anything was asked" in text) is not shown
    assert ("conftest.py:1: KeyboardInterrupt" in text) is shown


STOPPERS = ("-x", "--maxfail", "--eval-no-cache", "--eval-run-id")


def goes_on(result: pytest.RunResult) -> tuple[int, list[str]]:
    """The items that are scored, as the last line says, and the options in its command that do not belong there."""
    found = re.fullmatch(r"stopped: (\d+) of 20 scored and kept; go on: pytest (.*)", last_line(result))
    assert found, last_line(result)
    words = shlex.split(found[2])
    assert {"--checkpoint", "fake:causal", "--eval-data"} <= set(words)
    return int(found[1]), [word for word in words if word in STOPPERS]


def last_line(result: pytest.RunResult) -> str:
    return next(line for line in reversed([*result.outlines, *result.errlines]) if line.strip())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "workers"), [("SIGINT", "0"), ("SIGTERM", "0"), ("SIGTERM", "2")], ids=str)
def test_a_run_that_is_stopped_says_how_far_it_came_and_how_it_goes_on(
    project: Project,
    name: str,
    workers: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whom = "getppid" if workers != "0" else "getpid"
    # The parent of a fork is not who has asked for it.
    monkeypatch.setattr(pytest.Pytester, "_getpytestargs", lambda _: (sys.executable, "-m", "pytest"))
    project.write(f"import os, signal; example['n'] == 11 and os.kill(os.{whom}(), signal.{name})")
    given = ["-n", workers, "--eval-set", "batch_items=4"]
    result = project.run(*given, "--maxfail", "3", "--eval-no-cache", "--eval-run-id", "r", apart=True)
    assert result.ret == 2
    records = list(project.records.values())
    scored = sum(record.status == "scored" for record in records)
    assert goes_on(result) == (scored, [])
    assert scored >= 4
    text = result.stdout.str()
    for word in ("lost", "not valid", "Traceback", "(exit code"):
        assert word not in text
    monkeypatch.chdir(project.path)
    assert main(["report", "r"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == last_line(result)


@pytest.mark.slow
def test_a_run_that_ends_at_the_first_error_goes_on_without_the_option_that_ended_it(
    project: Project,
) -> None:
    project.write("assert example['n'] != 5")
    result = project.run("-x", "--eval-set", "batch_items=4")
    assert result.ret == 9
    assert goes_on(result) == (7, [])
