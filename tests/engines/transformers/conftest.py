"""A checkpoint for the tests of engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.families import causal_of


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint of the family that most models belong to; tests leave it as it is."""
    return causal_of(tmp_path_factory.mktemp("llama"), "llama")
