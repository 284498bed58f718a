"""The names of the shipped benchmarks, read without importing them."""

from __future__ import annotations

import functools

from harness.compare.gate.validate import declared_in
from harness.core.resources import shipped_evals


@functools.cache
def shipped_names() -> frozenset[str]:
    """Return the names of the benchmarks that come with the package."""
    return frozenset(
        name for path in sorted(shipped_evals().glob("test_*.py")) for name, _ in declared_in(path)
    )
