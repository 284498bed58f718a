"""Tutorials do what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tutorials import matches, play, shortened, steps_of, tutorials

LONG = ("checkpoints", "gate")
"""Pages that take 20 and 40 s. By day their commands are those of tests/plugin/test_series.py and test_gate.py,
tests/cli/test_items.py and test_runs.py, and tests/action/test_pull_request.py."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page.stem in LONG)) for page in tutorials()],
    ids=lambda page: page.stem,
)
def test_a_tutorial_prints_what_it_shows(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Blocks that take long are run where slow tests are."""
    commands = 0
    slow = request.config.getoption("--run-slow")
    for ran in play(page.read_text(encoding="utf-8"), tmp_path, slow=slow):
        wrong = ran.step.differs(ran.code, ran.printed)
        output = "\n".join(ran.printed)
        assert wrong is None, f"$ {ran.step.command}\n{wrong}\n\n{output}\n# exit code {ran.code}"
        commands += 1
    assert commands


def test_a_line_that_is_not_printed_is_found() -> None:
    printed = ["acc 0.531", "saved results/20260101"]
    assert matches(["acc 0.25", "saved results/1"], printed) is None
    assert matches(["...", "saved results/1"], printed) is None
    assert matches(["acc 0.25", "..."], printed) is None
    assert matches(["acc 0.25"], printed) == "(the end)"
    assert matches(["f1 0.25", "..."], printed) == "f1 0.25"
    assert matches(["...", "saved elsewhere"], printed) == "saved elsewhere"


def test_lines_that_a_page_leaves_out_stay_left_out() -> None:
    printed = ["collected 3", "acc 0.531", "legend", "saved results/2"]
    assert shortened(["...", "acc 0.1", "...", "saved results/1"], printed) == [
        *("...", "acc 0.531", "...", "saved results/2")
    ]
    assert shortened(["acc 0.1"], printed) == printed


def test_a_command_may_take_several_lines_and_exit_with_a_code() -> None:
    (step,) = steps_of("$ pytest \\\n    --gate\nworse\n# exit code 8\n")
    assert (step.command, step.shown, step.code) == ("pytest --gate", ["worse"], 8)
    assert step.differs(0, ["worse"]) == "# exit code 8"
    assert step.differs(8, ["worse"]) is None
