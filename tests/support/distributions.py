"""What is installed, asked once in a process of tests."""

from __future__ import annotations

from importlib.metadata import Distribution
from typing import Any

import pytest

INSTALLED = "site-packages"
"""The folder of those that were installed by pip."""


def remember_distributions(patch: pytest.MonkeyPatch) -> None:
    """Let each distribution below ``INSTALLED`` be asked only once what it is."""
    known: dict[tuple[str, str], Any] = {}

    def once(name: str) -> property:
        read = vars(Distribution)[name].fget

        def value(distribution: Distribution) -> Any:
            place = str(getattr(distribution, "_path", ""))
            if INSTALLED not in place:
                return read(distribution)
            if (place, name) not in known:
                known[place, name] = read(distribution)
            return known[place, name]

        return property(value)

    for name in ("entry_points", "files", "metadata"):
        patch.setattr(Distribution, name, once(name))
