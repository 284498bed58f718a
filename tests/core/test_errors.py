"""One table of exit codes, in which pytest's own mean what they mean there."""

from __future__ import annotations

import pytest

from pytest_touchstone.core.errors import ExitCode


def test_the_first_six_are_those_of_pytest() -> None:
    pairs = {
        ExitCode.OK: pytest.ExitCode.OK,
        ExitCode.FAILED: pytest.ExitCode.TESTS_FAILED,
        ExitCode.INTERRUPTED: pytest.ExitCode.INTERRUPTED,
        ExitCode.INTERNAL_ERROR: pytest.ExitCode.INTERNAL_ERROR,
        ExitCode.MISTAKE: pytest.ExitCode.USAGE_ERROR,
        ExitCode.NOTHING: pytest.ExitCode.NO_TESTS_COLLECTED,
    }
    assert all(int(ours) == int(theirs) for ours, theirs in pairs.items())


def test_ours_are_no_code_of_pytest() -> None:
    assert {int(code) for code in ExitCode} - {int(code) for code in pytest.ExitCode} == {8, 9}


@pytest.mark.parametrize("code", ExitCode)
def test_each_has_one_sentence_and_is_a_number(code: ExitCode) -> None:
    assert code.sentence
    assert code.sentence == code.sentence.strip().rstrip(".")
    assert f"{code}" == str(int(code)) == str(code)
