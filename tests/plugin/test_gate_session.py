"""What follows a bare --gate is its value only where it is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.plugin.gate import AS_CONFIGURED, apart

BARE = f"--gate={AS_CONFIGURED}"


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (["--gate", "evals/"], [BARE, "evals/"]),
        (["evals/", "--gate"], ["evals/", "--gate"]),
        (["--gate", "strict", "evals/"], ["--gate", "strict", "evals/"]),
        (["--gate", "plain"], ["--gate", "plain"]),
        (["--gate=hard", "evals/"], ["--gate=hard", "evals/"]),
        (["--gate", "-k", "x"], ["--gate", "-k", "x"]),
        (["--gate", "a::b[c]", "--gate", "d"], [BARE, "a::b[c]", BARE, "d"]),
        (["--", "--gate", "evals/"], ["--", "--gate", "evals/"]),
        (["--gate", "--", "evals/"], ["--gate", "--", "evals/"]),
    ],
)
def test_a_path_after_gate_stays_a_path(given_: list[str], expected: list[str]) -> None:
    assert apart(given_) == expected


@given(st.lists(st.sampled_from(["--gate", "--gate=strict", "strict", "plain", "evals/", "-k", "--"])))
def test_nothing_is_lost_and_twice_is_as_once(words: list[str]) -> None:
    once = apart(words)
    assert [word.replace(BARE, "--gate") for word in once] == words
    assert apart(once) == once
