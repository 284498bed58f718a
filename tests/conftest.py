"""Tests marked ``slow`` run where ``--run-slow`` or their node id asks for them; other runs deselect them."""

from __future__ import annotations

import pytest

SLOW = "slow: takes more than a few seconds; run with --run-slow, or by its node id"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run the tests marked slow too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", SLOW)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = any("::" in argument for argument in config.args)
    if named or config.getoption("--run-slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
