"""Settings of options, without a run."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_touchstone.plugin.options import Settings, settings_of


class Given:
    """A configuration in which these options are given, and no other."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self.rootpath = Path(values.pop("rootpath", "no-project"))
        self.option = Namespace(rootdir=str(self.rootpath), inifilename=None)
        self.args: list[str] = []
        self.invocation_params = pytest.Config.InvocationParams(args=(), plugins=None, dir=Path())

    def getoption(self, name: str, default: Any = None) -> Any:
        """The value, by its flag."""
        return self.values.get(name.lstrip("-").replace("-", "_"), default)


def settings_given(**values: Any) -> Settings:
    """The settings of a run with these options: ``eval_limit="5"`` is ``--eval-limit 5``."""
    return settings_of(cast("pytest.Config", Given(**values)))
