"""The sources of the values of settings, in order: ``[tool.touchstone]`` of pyproject.toml, the file of
``--eval-config``, the environment, options. A later one goes before an earlier one, and each before the default.

    [tool.touchstone]
    checkpoint = ["runs/a", "runs/b"]      # --checkpoint runs/a --checkpoint runs/b
    device = "cuda:0"                      # --eval-device cuda:0, TOUCHSTONE_DEVICE=cuda:0
    no-cache = true                        # --eval-no-cache, TOUCHSTONE_NO_CACHE=1
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.reading import read_toml
from pytest_touchstone.core.settings import Setting, settings_table
from pytest_touchstone.core.text import alike

DEFAULT: Final = "default"
PROJECT: Final = "pyproject.toml"
FILE: Final = "file"
OPTION: Final = "option"

ORDER: Final = (PROJECT, FILE, "environment", "options")
"""The sources, the strongest last."""

TABLE: Final = "tool.touchstone"

PREFIX: Final = "TOUCHSTONE_"

WORDS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
"""The values of switches in the environment."""

Found: TypeAlias = tuple[dict[str, Any], dict[str, str]]
"""Values by row, and where each is from in words."""


@dataclass(slots=True)
class Sources:
    """The values that each source gives, with their origins."""

    given: dict[str, Found] = field(default_factory=dict)

    def add(self, source: str, values: dict[str, Any], origins: dict[str, str]) -> None:
        """Take what a source gives."""
        self.given[source] = values, origins

    def values(self) -> dict[str, Any]:
        """Return the strongest value of each row that is given."""
        return {name: value for one in ORDER for name, value in self.given.get(one, ({}, {}))[0].items()}

    def origin(self, name: str) -> str:
        """Return where a row's value is from."""
        found = [self.given[one][1][name] for one in ORDER if name in self.given.get(one, ({}, {}))[0]]
        return found[-1] if found else DEFAULT

    def above(self, source: str) -> frozenset[str]:
        """Return the rows that a stronger source gives."""
        stronger = ORDER[ORDER.index(source) + 1 :]
        return frozenset(name for one in stronger for name in self.given.get(one, ({}, {}))[0])


def of_project(path: Path) -> Found:
    """Return what ``[tool.touchstone]`` of a file says; nothing where there is no such file or table.

    Its own tables (gate, composites, series) are no settings. Raises ``OptionError``.
    """
    try:
        table = read_toml(path)["tool"]["touchstone"]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return {}, {}  # pytest itself says what is wrong with the file
    if not isinstance(table, Mapping):
        raise OptionError(f"{path.name}: {TABLE} is {table!r}; expected a table")
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    return of_table(plain, f"{path.name}: [{TABLE}]", path.name)


def of_table(table: Mapping[str, Any], where: str, origin: str) -> Found:
    """Return the values of a table of settings by their names; raises ``OptionError``, beginning with ``where``."""
    rows = {name: row for name, row in settings_table().items() if row.option}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = str(key).replace("-", "_")
        if name not in rows or (name == "config" and origin != PROJECT):
            near = alike(name, rows)
            raise OptionError(
                f"{where}: unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        values[name] = _plain(rows[name], value, f"{where} {key}")
    return values, dict.fromkeys(values, origin)


def _plain(row: Setting, value: Any, where: str) -> Any:
    """Return a row's value from a plain one; raises ``OptionError``."""
    if row.action == "switch":
        if not isinstance(value, bool):
            raise OptionError(f"invalid {where} {value!r}: expected true or false")
        return value
    several = value if isinstance(value, list) and row.action == "append" else [value]
    for one in several:
        if isinstance(one, bool) or not isinstance(one, (str, int, float)):
            kind = "a text or a list of texts" if row.action == "append" else "a text or a number"
            raise OptionError(f"invalid {where} {one!r}: expected {kind}")
    found = tuple(row.read(str(one), where) for one in several)
    return found if row.action == "append" else found[0]


def of_environment(environ: Mapping[str, str]) -> Found:
    """Return what variables such as ``TOUCHSTONE_DEVICE`` say; several values are separated as a shell does it.

    An empty variable says nothing. Raises ``OptionError``.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, row in settings_table().items():
        variable = f"{PREFIX}{name.upper()}"
        if not row.option or not (text := environ.get(variable, "").strip()):
            continue
        values[name], origins[name] = _of_text(row, text, variable), variable
    return values, origins


def _of_text(row: Setting, text: str, variable: str) -> Any:
    if row.action == "switch":
        if text.lower() not in WORDS:
            raise OptionError(f"invalid {variable} {text!r}: expected 1 or 0")
        return WORDS[text.lower()]
    try:
        parts = shlex.split(text) if row.action == "append" else [text]
    except ValueError as error:
        raise OptionError(f"invalid {variable} {text!r}: {error}") from None
    found = tuple(row.read(one, variable) for one in parts)
    return found if row.action == "append" else found[0]
