"""The form of a user's mistake at the terminal."""

from __future__ import annotations

import pytest


def refused(result: pytest.RunResult, *words: str) -> None:
    """The run ended with exit code 4 and exactly one error line, which holds the words."""
    assert result.ret == 4
    lines = [*result.outlines, *result.errlines]
    assert not [line for line in lines if "Traceback" in line or "INTERNALERROR" in line]
    errors = [line for line in lines if "error:" in line.lower() and "usage:" not in line]
    assert len(errors) == 1, errors
    for word in words:
        assert word in errors[0]
