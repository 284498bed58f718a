"""Rows that a fixture returns. Items are made of rows when they are collected, long before fixtures run, so the
fixture's function is called then; one that needs other fixtures cannot be."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.errors import DataError


def with_rows(spec: Benchmark, metafunc: pytest.Metafunc) -> Benchmark:
    """Return the benchmark with the function of the fixture that its rows come from, if they come from one.

    Raises ``DataError`` where there is no such fixture, or where it needs others or cleans up after itself.
    """
    name = spec.data.rows
    if not isinstance(name, str):
        return spec
    # Private: nothing public finds a fixture by its name while items are collected.
    manager = metafunc.definition.session._fixturemanager
    found = manager.getfixturedefs(name, metafunc.definition)
    if not found:
        raise DataError(
            f"{spec.name}: rows={name!r} is no fixture that this file can use; check its name, or give a list or a "
            "function"
        )
    function, needed = found[-1].func, found[-1].argnames
    why = f"needs {needed[0]!r}" if needed else "yields" if inspect.isgeneratorfunction(function) else ""
    if why:
        raise DataError(
            f"{spec.name}: the fixture {name!r} {why}, but rows are needed before fixtures run; "
            "give rows= a function without arguments that returns them"
        )
    return replace(spec, data=replace(spec.data, rows=function))
