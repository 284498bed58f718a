"""The additions of installed packages, by entry points."""

from __future__ import annotations

import functools
from importlib.metadata import entry_points
from typing import Any

from pytest_touchstone.core.errors import HarnessError


@functools.cache
def plugins(group: str, error: type[HarnessError] = HarnessError) -> tuple[Any, ...]:
    """The objects that installed packages register in an entry-point group, by name; a class is called.

    Raises ``error`` (one line) for one that cannot be loaded: going on without it would change the results.
    """
    found = []
    for entry in sorted(entry_points(group=group), key=lambda one: one.name):
        try:
            loaded = entry.load()
            found.append(loaded() if isinstance(loaded, type) else loaded)
        except Exception as reason:
            raise error(
                f"plug-in {entry.name} ({entry.value}, group {group}): cannot be loaded "
                f"({type(reason).__name__}: {reason}); fix or uninstall it"
            ) from reason
    return tuple(found)
