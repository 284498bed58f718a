"""A sandbox for the tests that only have programs run in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from tests.support.sandbox_here import opened_here


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One sandbox; what its programs do is over with each of them."""
    with opened_here(workers=2) as opened:
        yield opened
