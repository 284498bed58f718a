"""Tests that take long are left out unless asked for: ``-m long`` runs them alone, ``-m "long or not long"`` all."""

from __future__ import annotations

import pytest

LONG = "long: takes more than a few seconds; left out unless -m or a node id asks for it"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", LONG)
    named = any("::" in argument for argument in config.args)
    if not config.option.markexpr and not named:
        config.option.markexpr = "not long"
