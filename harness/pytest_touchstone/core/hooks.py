"""The hooks of a run for a conftest or pytest plug-in: trackers, other files, report sections.

    # conftest.py in the folder where pytest starts, or a plug-in
    def pytest_touchstone_item_finished(record):
        ...

They are called in the process that the user started, once each, with and without xdist. The files of a run are
written by implementations too (``plugin.reporters``). An implementation that raises does not end the run: a
line says so, and the exit code is 1 where all else is well.

Formats, engines and commands of installed packages are found by entry points (``load_plugins``).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.errors import HarnessError


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that begins.

    ``manifest`` is the content of ``run.json``: the settings, the checkpoints with their fingerprints, the benchmarks,
    versions of programs.
    """

    run_id: str
    directory: Path
    items: int
    manifest: Mapping[str, Any]


@pytest.hookspec
def pytest_touchstone_run_started(run: StartedRun) -> None:
    """Follow the start of a run, when everything is collected and no item has been asked."""


@pytest.hookspec
def pytest_touchstone_item_finished(record: Any) -> None:
    """Follow an item with its ``results.records.Record``: scores, or the reason why there are none.

    Called once per item, those of earlier runs and lost ones included; records come without requests and answers.
    """


@pytest.hookspec
def pytest_touchstone_checkpoint_finished(summary: Any) -> None:
    """Follow a checkpoint's last item, with a ``results.summary.Summary`` of this checkpoint alone."""


@pytest.hookspec
def pytest_touchstone_run_finished(summary: Any) -> str | None:
    """Follow the end of a run with its ``results.summary.Summary``; a returned text is shown below it."""


@pytest.hookspec
def pytest_touchstone_terminal_sections(summary: Any) -> tuple[str, str] | None:
    """Return a title and the text below it, a section of the report in all its forms, and of ``summary.json``."""


def add_specifications(manager: pytest.PytestPluginManager) -> None:
    """Register the hooks, unless that was done already."""
    first: Any = getattr(manager.hook, "pytest_touchstone_run_started", None)
    if first is None or not first.has_spec():
        manager.add_hookspecs(sys.modules[__name__])


# What installed packages add, by entry points


@functools.cache
def load_plugins(group: str, error: type[HarnessError] = HarnessError) -> tuple[Any, ...]:
    """Load the plug-ins of an entry-point group in the order of their names; classes are called.

    Raises ``error`` (one line) for one that cannot be loaded: going on without it would change the results.
    """
    loaded_plugins = []
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
            loaded_plugins.append(loaded() if isinstance(loaded, type) else loaded)
        except Exception as reason:
            raise error(
                f"plug-in {entry.name} ({entry.value}, group {group}): cannot be loaded "
                f"({type(reason).__name__}: {reason}); fix or uninstall it"
            ) from reason
    return tuple(loaded_plugins)
