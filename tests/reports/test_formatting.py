"""Commands in reports can be pasted into a shell."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.reports.formatting import busy_text, command_lines

WORDS = st.lists(
    st.sampled_from(["-n", "2", "--checkpoint", "'a -b'", "runs/one-two", "evals/", "--x=y"]), min_size=1
)


@given(WORDS, st.integers(20, 120))
def test_a_shell_takes_the_lines_of_a_command_as_the_command(words: list[str], width: int) -> None:
    command = " ".join(["pytest", *words])
    lines = command_lines(command, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)
    assert all(len(line) <= width or " --" not in line.strip() for line in lines)


def test_a_run_says_that_the_machine_is_busy_where_more_than_its_cores_are_wanted() -> None:
    assert busy_text(6.12, 2) == "load 6.1 on 2 cores: other programs compute here, so times will be longer"
    assert busy_text(2.9, 2) == busy_text(0.0, 1) == ""
