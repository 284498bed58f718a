"""Settings of options, without a run."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_touchstone.core.settings import settings_table
from pytest_touchstone.plugin.options import Settings, settings_of


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class Given:
    """A configuration in which these options are given, and no other."""

    def __init__(self, **values: Any) -> None:
        self.rootpath = Path(values.pop("rootpath", "no-project"))
        rows = settings_table()
        self.values: dict[str, Any] = {"eval_set": []}
        for name, value in values.items():
            row = rows.get(name.removeprefix("eval_"))
            if row is not None and row.key:
                self.values["eval_set"] += [f"{row.name}={one}" for one in _each(value)]
            else:
                self.values[name] = value
        self.option = Namespace(rootdir=str(self.rootpath), inifilename=None)
        self.args: list[str] = []
        self.invocation_params = pytest.Config.InvocationParams(args=(), plugins=None, dir=Path())

    def getoption(self, name: str, default: Any = None) -> Any:
        """The value, by its flag."""
        return self.values.get(name.lstrip("-").replace("-", "_"), default)


def settings_given(**values: Any) -> Settings:
    """The settings of a run with these options: ``eval_limit="5"`` is ``--eval-limit 5``."""
    return settings_of(cast("pytest.Config", Given(**values)))
