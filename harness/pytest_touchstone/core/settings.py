"""The table of settings: ``settings.toml`` as rows, each with the function that reads its value.

``python -m pytest_touchstone.core.settings`` prints ``docs/options.md``. The plugin registers the options from the same
file without this module: a session that has no benchmark imports nothing but the plugin.
"""

from __future__ import annotations

import functools
import math
import pkgutil
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.exit_codes import ExitCode
from pytest_touchstone.core.text import either

Affects: TypeAlias = Literal["answers", "rounding", "items", "checkpoints", "speed", "output"]

T = TypeVar("T")

FILE: Final = Path(__file__).with_name("settings.toml")

TITLES: Final[Mapping[str, str]] = {
    "checkpoints": "What is scored",
    "items": "On which items",
    "answers": "How it is asked",
    "programs": "Benchmarks of programs",
    "machine": "On which machine",
    "served": "Served models",
    "results": "What becomes of the results",
    "gate": "Against a baseline",
}
"""The headings of the sections that have options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A row of the table; ``settings.toml`` says what each field means."""

    name: str
    section: str
    help: str
    affects: Affects
    option: bool = True
    action: Literal["value", "append", "switch"] = "value"
    metavar: str | None = None
    default: Any = None
    short: str | None = None
    parse: str = "text"
    choices: tuple[str, ...] | None = None
    pattern: str | None = None
    least: float | None = None
    most: float | None = None
    expected: str | None = None

    @property
    def long_flag(self) -> str:
        """The option, which always exists."""
        return f"--eval-{self.name.replace('_', '-')}"

    @property
    def flag(self) -> str:
        """The option that users know: the short one where there is one."""
        return self.short or self.long_flag

    def read(self, text: str, flag: str | None = None) -> Any:
        """Return the value that a text means; raise ``OptionError`` in a line that names ``flag``.

        An empty text, as a shell makes of a variable that is not set, is never the default.
        """
        flag = flag or self.flag
        if not text.strip():
            raise OptionError(f"{flag}: the value is empty; give one, or leave the option out")
        parse = PARSERS.get(self.parse) or pkgutil.resolve_name(self.parse)
        limits = {name: value for name in LIMITS if (value := getattr(self, name)) is not None}
        return read_as(flag, text, parse, expected=self.expected, **limits)


def read_as(
    flag: str, text: str, parse: Callable[..., T], *, expected: str | None = None, **limits: Any
) -> T:
    """Return the value that ``parse`` makes of an option's text; raise ``OptionError`` where it raises
    ``ValueError``, whose text says what was expected."""
    try:
        return parse(text, **limits)
    except ValueError as error:
        raise OptionError(f"invalid {flag} {text!r}: expected {expected or error}") from None


@functools.cache
def settings_table() -> Mapping[str, Setting]:
    """Return the rows by name, in the order of the file."""
    sections = tomllib.loads(FILE.read_text(encoding="utf-8"))
    rows = {}
    for section, named in sections.items():
        for name, row in named.items():
            fields: dict[str, Any] = {key: _from_toml(value) for key, value in row.items()}
            fields.setdefault("default", UNSET.get(fields.get("action")))
            rows[name] = Setting(name=name, section=section, **fields)
    return MappingProxyType(rows)


def _from_toml(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.split())
    return tuple(value) if isinstance(value, list) else value


def integer(text: str, least: int = 0) -> int:
    """Return a whole number from ``least`` up; raise ``ValueError`` with what was expected."""
    if not re.fullmatch(r"[0-9]+", text) or int(text) < least:
        raise ValueError(f"a whole number from {least} up")
    return int(text)


def number(text: str, least: float = 0.0, most: float = math.inf) -> float:
    """Return a decimal number from ``least`` to ``most``; raise ``ValueError`` with what was expected."""
    if not re.fullmatch(r"[0-9]*\.?[0-9]+|[0-9]+\.", text) or not least <= float(text) <= most:
        raise ValueError(f"a number from {least:g} {'up' if most == math.inf else f'to {most:g}'}")
    return float(text)


def word(text: str, choices: Sequence[str] = (), pattern: str = ".*") -> str:
    """Return a text that is one of the choices, or matches the pattern; raise ``ValueError`` with the choices."""
    if (choices and text not in choices) or not re.fullmatch(pattern, text, re.DOTALL):
        raise ValueError(either(choices))
    return text


ALL: Final = "all"
"""The limit that is none."""


def _limit(text: str) -> int | float | str:
    """An item count, a fraction of each benchmark (above 0 and below 1), or all."""
    if text == ALL:
        return text
    if re.fullmatch(r"0?\.[0-9]+", text) and 0.0 < float(text) < 1.0:
        return float(text)
    return integer(text, 1)


def _probability(text: str) -> float:
    if not (found := number(text, most=1.0)):
        raise ValueError(text)
    return found


def _batch(text: str) -> int | None:
    return None if text == "auto" else integer(text, 1)


def _data_folder(text: str) -> str:
    if text != "hub" and not Path(text).is_dir():
        raise ValueError(text)
    return text


UNSET: Final[Mapping[Any, Any]] = {"append": (), "switch": False}
"""The defaults of options without a single value."""

LIMITS: Final = ("choices", "pattern", "least", "most")
"""The fields of a row that are passed to its function of ``parse``."""

PARSERS: Final[Mapping[str, Callable[..., Any]]] = {
    "text": word,
    "integer": integer,
    "number": number,
    "limit": _limit,
    "probability": _probability,
    "batch": _batch,
    "data_folder": _data_folder,
}
"""The functions that ``parse`` names."""


def options_page() -> str:
    """Return ``docs/options.md``."""
    lines = [
        "# Options and exit codes",
        "",
        "Each option can be given in [several places](choosing.md#where-settings-come-from), and `run.json` records",
        "all. Short names have a long form: `--gate` is also `--eval-gate`. The last column says what depends on an",
        "option: results are compared, and cached answers taken, only where *answers* agree, and *items* too unless",
        "they are known. Fingerprints tell *checkpoints* apart. No score depends on *speed* or *output*.",
        "",
        "This page is printed by `python -m pytest_touchstone.core.settings`.",
    ]
    for section, title in TITLES.items():
        lines += ["", f"## {title}", "", "| option | | affects |", "| --- | --- | --- |"]
        for row in (row for row in settings_table().values() if row.option and row.section == section):
            usage = f"`{row.flag}{f' {row.metavar}' if row.metavar else ''}`"
            text = row.help[0].upper() + row.help[1:]
            lines.append(f"| {usage} | {text.replace('|', chr(92) + '|')}. | {row.affects} |")
    lines += ["", "## Exit codes", "", "| code | |", "| --- | --- |"]
    lines += [f"| {int(code)} | {code.sentence} |" for code in ExitCode]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(options_page(), end="")
