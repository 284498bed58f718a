"""What commands leave in the process of the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def evals_let_go() -> Iterator[None]:
    """A command that collects the shipped benchmarks leaves their modules; a later run within a test warns of them."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "evals"]:
        del sys.modules[name]
