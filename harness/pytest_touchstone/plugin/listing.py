"""The benchmarks of files and folders, found as pytest finds them; no row is read and nothing is run."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.benchmark import Benchmark, declared
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.metrics.solutions import forms_of


@dataclass(frozen=True, slots=True)
class ListedBenchmark:
    """A benchmark with its function and its file."""

    spec: Benchmark
    function: Callable[..., Any]
    path: Path


@dataclass(slots=True)
class _Finder:
    """A plugin that keeps benchmarks and collects no item; ``fault`` is the first file that could not be collected."""

    found: list[ListedBenchmark] = field(default_factory=list)
    fault: str | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        """Come before every other plugin, which must not begin a run."""
        config.pluginmanager.register(_First(self.found))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the line that tells an error."""
        if report.failed and self.fault is None:
            lines = [line for line in report.longreprtext.splitlines() if line.strip()]
            errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
            self.fault = f"{report.nodeid}: {next(iter((*errors[-1:], *lines)), 'cannot be read')}"


@dataclass(frozen=True, slots=True)
class _First:
    found: list[ListedBenchmark]

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, name: str, obj: object
    ) -> list[pytest.Item] | None:
        """Make no item of a test function."""
        if not collector.istestfunction(obj, name):
            return None
        functions: list[Callable[..., Any]] = [obj, *forms_of(obj)] if callable(obj) else []
        for function in functions:
            if (spec := declared(function)) is not None:
                self.found.append(ListedBenchmark(spec, function, collector.path))
        return []


def find_benchmarks(paths: Sequence[Path]) -> list[ListedBenchmark]:
    """Return the benchmarks that ``pytest PATHS`` would collect; raises ``HarnessError`` where it would not."""
    finder, said = _Finder(), io.StringIO()
    arguments = ["--collect-only", "--capture=no", "--assert=plain", *map(str, paths)]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(arguments, plugins=[finder])
    if finder.fault is not None:
        raise HarnessError(finder.fault)
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        raise HarnessError(lines[-1].removeprefix("ERROR: ") if lines else f"pytest ends with {code}")
    return finder.found
