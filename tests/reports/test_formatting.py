"""Commands in reports can be pasted into a shell."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from harness.reports.formatting import command_lines

WORDS = st.lists(
    st.sampled_from(["-n", "2", "--checkpoint", "'a -b'", "runs/one-two", "evals/", "--x=y"]), min_size=1
)


@given(WORDS, st.integers(20, 120))
def test_a_shell_takes_the_lines_of_a_command_as_the_command(words: list[str], width: int) -> None:
    command = " ".join(["pytest", *words])
    lines = command_lines(command, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)
    assert all(len(line) <= width or " --" not in line.strip() for line in lines)
