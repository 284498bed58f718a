"""Ctrl-C while a run ends leaves no traceback of pytest's, and loses no record."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from pytest_touchstone.plugin.session import Interrupts

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


def press() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def interrupts() -> Any:
    before = signal.getsignal(signal.SIGINT)
    found = Interrupts()
    found.arm()
    yield found
    found.close()
    assert signal.getsignal(signal.SIGINT) is before


def test_one_press_ends_the_work_and_another_is_ctrl_c_again(interrupts: Interrupts) -> None:
    done: list[int] = []
    assert interrupts.finished(lambda: done.append(1))
    assert not interrupts.finished(press)
    assert not interrupts.finished(lambda: done.append(2))
    assert done == [1]
    with pytest.raises(KeyboardInterrupt):
        press()


def test_a_press_while_pytest_goes_on_by_itself_does_nothing_at_once(interrupts: Interrupts) -> None:
    press()
    assert not interrupts.finished(lambda: pytest.fail("it is not begun"))


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
    last = " ".join(out.strip().splitlines()[-2:])
    assert "stopped by Ctrl-C before all results were written; results/r keeps every score" in " ".join(
        last.split()
    )
    assert "scored" in {record.status for record in project.records.values()}
