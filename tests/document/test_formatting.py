"""Commands in reports can be pasted into a shell."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.document.formatting import (
    busy_text,
    checkpoint,
    command_lines,
    folded,
    in_percent,
    number,
    p_exact,
    p_short,
)

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


@pytest.mark.parametrize(
    ("value", "plain", "share"),
    [
        (1.0, "1.0000", "100.00"),
        (0.99996, "0.9999", "99.99"),
        (0.9999999, "0.9999", "99.99"),
        (0.0, "0.0000", "0.00"),
        (-0.0, "0.0000", "0.00"),
        (-1e-17, "0.0000", "0.00"),
        (0.00003, "3e-05", "0.003"),
        (0.98765, "0.9877", "98.77"),
    ],
)
def test_what_is_not_quite_all_or_nothing_is_not_written_so(value: float, plain: str, share: str) -> None:
    assert (number(value), in_percent(value)) == (plain, share)


@pytest.mark.parametrize("level", [0.001, 0.01, 0.05, 0.1])
def test_a_p_just_above_a_level_is_not_written_as_the_level(level: float) -> None:
    assert (p_short(level * 1.000001), p_exact(level * 1.000001)) == (f"> {level}", f">{level}")
    assert float(p_short(level)) == float(p_exact(level)) == level
    assert not p_short(level * 0.999999).startswith(">")


@pytest.mark.parametrize(
    ("served", "length"),
    [
        (None, ", 2048 tokens"),
        ({"limit": None, "cut": False}, ""),  # the server does not say it, and nobody has given one
        ({"limit": 2048, "cut": False}, ", 2048 tokens"),
        ({"limit": None, "cut": True}, ", 2048 tokens"),
    ],
)
def test_a_length_that_no_server_has_told_is_not_shown(served: dict[str, object] | None, length: str) -> None:
    info = {"kind": "causal", "model_type": "served by vllm", "seq_len": 2048, "served": served}
    assert checkpoint(info) == f"causal LM, served by vllm{length}"


def test_a_name_folds_between_its_parts_and_the_id_of_a_run_does_not() -> None:
    run_id = "20261129_215742_218fcbc85"
    assert folded(f"results/{run_id}", 10) == ["results/", run_id]
    assert folded("real_coref_strict", 11) == ["real_coref_", "strict"]
