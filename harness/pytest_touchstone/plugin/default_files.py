"""The plugin of ``touchstone run``: it runs the shipped benchmarks if no file or folder is given.

They belong to no project. With ``results.run_directory.ISOLATION_ARGUMENTS`` pytest reads no configuration and no
conftest of the repository in which it is started, and loads no plug-ins but those that stand here.

PYTEST_DONT_REWRITE: there is no assert in here to rewrite.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Final

import pytest

from pytest_touchstone.core.files import shipped_evals

PACKAGE: Final = "pytest-touchstone"
NEEDED: Final = (PACKAGE, "pytest-xdist", "pytest-json-report", "pytest-metadata")
"""The distributions whose plug-ins are always loaded, as are those of packages that depend on ours."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Show the command as typed; load our plug-in with those it works with.

    Where pytest loads all installed ones, these are among them, by the same names.
    """
    parser.prog = "touchstone run"
    pluginmanager.import_plugin("pytest_touchstone.plugin")
    for entry in entry_points(group="pytest11"):
        asks = () if entry.dist is None else (entry.dist.name, *(entry.dist.requires or ()))
        if any(requirement in NEEDED or requirement.startswith(PACKAGE) for requirement in asks):
            pluginmanager.load_setuptools_entrypoints("pytest11", entry.name)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Add the shipped benchmarks to the arguments, before pytest takes the project's own ``testpaths``."""
    options = early_config.known_args_namespace
    if options.noconftest:
        early_config._inipath = None  # private: pytest's heading would name it
    if options.file_or_dir:
        return
    packaged = (
        find_spec("pytest_touchstone.evals") is not None
    )  # in a checkout the folder lies beside the package
    options.pyargs = options.pyargs or packaged
    options.file_or_dir = ["pytest_touchstone.evals" if packaged else str(shipped_evals())]
    args[:0] = [*(["--pyargs"] if packaged else []), *options.file_or_dir]
