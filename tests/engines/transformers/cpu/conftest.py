"""Numbers of threads for the tests of the kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """The number of threads that torch uses in a test, one after the other."""
    before, count = torch.get_num_threads(), int(request.param)
    torch.set_num_threads(count)
    yield count
    torch.set_num_threads(before)
