"""Groups of benchmarks by name, for ``--eval-tasks``.

They are lines of ``groups.toml`` beside the shipped benchmarks, or of the project's pyproject.toml, which goes before
it.

    [tool.touchstone.groups]
    nightly = "arc_challenge 25-shot, hellaswag 10-shot, gsm8k"

A line is what ``--eval-tasks`` takes, and may name other groups.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.reading import read_toml
from pytest_touchstone.core.resources import shipped_evals
from pytest_touchstone.core.tasks import Tasks

FILE: Final = "groups.toml"

TABLE: Final = "[tool.touchstone.groups]"


def task_groups(pyproject: Path) -> dict[str, str]:
    """Return the known groups; raises ``OptionError`` naming the line of the project that is wrong. A file that is not
    TOML is left to pytest to report."""
    found = shipped_groups()
    try:
        table = read_toml(pyproject)["tool"]["touchstone"]["groups"]
    except (OSError, ValueError, KeyError, TypeError):
        return found
    if not isinstance(table, Mapping):
        raise OptionError(f"{pyproject.name}: {TABLE} is {table!r}; expected a table")
    for name, line in table.items():
        if not isinstance(line, str):
            raise OptionError(
                f'{pyproject.name}: {TABLE} {name} is {line!r}; expected a text such as "arc_easy 5-shot, gsm8k"'
            )
    found |= table
    for name in table:
        try:
            Tasks.of([name], found)
        except ValueError as error:
            raise OptionError(
                f"{pyproject.name}: invalid {TABLE} {name} {table[name]!r}: expected {error}"
            ) from None
    return found


def shipped_groups() -> dict[str, str]:
    """Return the groups that ship with the program."""
    path = shipped_evals() / FILE
    return dict(tomllib.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
