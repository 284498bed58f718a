"""The plugin of ``touchstone run``: where no file or folder is given, the shipped benchmarks are run.

PYTEST_DONT_REWRITE: there is no assert in here to rewrite.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from pytest_touchstone.core.files import shipped_evals


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let pytest name the command that was typed."""
    parser.prog = "touchstone run"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Add the shipped benchmarks to the arguments, before pytest takes the project's own ``testpaths``."""
    known = early_config.known_args_namespace
    if known.file_or_dir:
        return
    packaged = (
        find_spec("pytest_touchstone.evals") is not None
    )  # in a checkout the folder lies beside the package
    known.pyargs = known.pyargs or packaged
    known.file_or_dir = ["pytest_touchstone.evals" if packaged else str(shipped_evals())]
    args[:0] = [*(["--pyargs"] if packaged else []), *known.file_or_dir]
