"""The shipped benchmarks that a file names."""

from __future__ import annotations

from collections.abc import Collection

from pytest_touchstone.core.benchmark import Benchmark, declared
from pytest_touchstone.core.files import load_module, shipped_evals
from pytest_touchstone.core.tasks import declared_in


def shipped_specs(names: Collection[str]) -> list[Benchmark]:
    """Return the shipped benchmarks of these names, read from their files although those are not collected."""
    files = [
        path
        for path in sorted(shipped_evals().glob("test_*.py"))
        if any(name in names for name, _ in declared_in(path))
    ]
    modules = [load_module(path, f"touchstone_shipped_{path.stem}") for path in files]
    found = (declared(value) for module in modules for value in vars(module).values())
    return [spec for spec in found if spec is not None and spec.name in names]
