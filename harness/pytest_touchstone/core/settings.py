"""The table of settings: ``settings.toml`` as rows with parsers, and the sources of values.

The plugin registers the options from the same file without this module: a session that has no benchmark imports nothing
but the plugin.

The sources of values, in order: ``[tool.touchstone]`` of pyproject.toml, the file of ``--eval-config``, the
environment, options. A later one goes before an earlier one, and each before the default.

Settings are conditions of results, by which results compare and the cache takes answers: the table says what each of
them affects, and the manifest, the cache, saved results, ``touchstone compare`` and gates all follow it. An earlier
release that lacked a setting did as its default says, so results of such runs still compare.

    [tool.touchstone]
    checkpoint = ["runs/a", "runs/b"]      # --checkpoint runs/a --checkpoint runs/b
    device = "cuda:0"                      # --eval-device cuda:0, TOUCHSTONE_DEVICE=cuda:0
    no-cache = true                        # --eval-no-cache, TOUCHSTONE_NO_CACHE=1
    top_p = 0.9                            # --eval-set top_p=0.9, TOUCHSTONE_TOP_P=0.9
"""

from __future__ import annotations

import functools
import json
import math
import os
import pkgutil
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.files import read_regular, read_toml
from pytest_touchstone.core.text import did_you_mean, join_choices, similar_names

Affects: TypeAlias = Literal["answers", "rounding", "items", "checkpoints", "speed", "output"]

T = TypeVar("T")

SET: Final = "--eval-set"
"""The option that gives any key its value."""

FILE: Final = Path(__file__).with_name("settings.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A row of the table; ``settings.toml`` says what each field means."""

    name: str
    section: str
    help: str
    affects: Affects
    option: bool = True
    key: bool = False
    typed: str | None = None
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
    elsewhere: tuple[str, ...] = ()

    @property
    def long_flag(self) -> str:
        """The option, which always exists; of a key what stands before its value."""
        return f"{SET}={self.name}" if self.key else f"--eval-{self.name.replace('_', '-')}"

    @property
    def flag(self) -> str:
        """The option that users know: the short one where there is one."""
        return self.short or (f"{SET} {self.name}" if self.key else self.long_flag)

    @property
    def usage(self) -> str:
        """The option with a placeholder for its value, as typed."""
        return f"{self.flag}{'=' if self.key else ' '}{self.metavar}" if self.metavar else self.flag

    def read(self, text: str, flag: str | None = None) -> Any:
        """Parse the text of a value; raise ``OptionError`` naming ``flag``.

        An empty text, as a shell makes of a variable that is not set, is never the default.
        """
        flag = flag or self.flag
        if not text.strip():
            raise OptionError(f"{flag}: the value is empty; give one, or leave the option out")
        parse = PARSERS.get(self.parse) or pkgutil.resolve_name(self.parse)
        limits = {
            name: value
            for name in ("choices", "pattern", "least", "most")
            if (value := getattr(self, name)) is not None
        }
        return parse_option(flag, text, parse, expected=self.expected, **limits)

    def value(self, given: Any, where: str | None = None) -> Any:
        """Parse a text, a list of texts, or plain data; raise ``OptionError`` naming ``where``."""
        where = where or self.flag
        if self.action == "switch":
            if not isinstance(given, bool):
                raise OptionError(f"invalid {where} {given!r}: expected true or false")
            return given
        several = given if isinstance(given, list) and self.action == "append" else [given]
        for value in several:
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                kind = "a text or a list of texts" if self.action == "append" else "a text or a number"
                raise OptionError(f"invalid {where} {value!r}: expected {kind}")
        values = tuple(self.read(str(value), where) for value in several)
        return values if self.action == "append" else values[0]


def parse_option(
    flag: str, text: str, parse: Callable[..., T], *, expected: str | None = None, **limits: Any
) -> T:
    """Parse an option's text; turn a ``ValueError`` of ``parse`` into an ``OptionError``.

    The text of the ``ValueError`` says what was expected.
    """
    try:
        return parse(text, **limits)
    except ValueError as error:
        raise OptionError(f"invalid {flag} {text!r}: expected {expected or error}") from None


@functools.cache
def settings_table() -> Mapping[str, Setting]:
    """Return the rows by name, in the order of the file."""
    rows = {}
    for section, table in tomllib.loads(FILE.read_text(encoding="utf-8")).items():
        for name, row in table.items():
            for key, value in row.items():
                if isinstance(value, str):
                    row[key] = " ".join(value.split())
                elif isinstance(value, list):
                    row[key] = tuple(value)
            row.setdefault("default", {"append": (), "switch": False}.get(row.get("action")))
            rows[name] = Setting(name=name, section=section, **row)
    return MappingProxyType(rows)


def parse_integer(text: str, least: int = 0) -> int:
    """Return a whole number from ``least`` up; raise ``ValueError`` with what was expected."""
    if not re.fullmatch(r"[0-9]+", text) or int(text) < least:
        raise ValueError(f"a whole number from {least} up")
    return int(text)


LONGEST_PROMPT: Final = 1 << 16
"""The bytes of a file with a system prompt at most."""


def load_system_prompt(text: str) -> str:
    """Return a text, or the content of the file that it names, stripped.

    Raises ``ValueError`` for a file that is not text or too long, and for an empty prompt.
    """
    is_file = os.path.lexists(text) and not os.path.isdir(text)  # noqa: PTH112 -- of texts that are no paths too
    try:
        prompt = (read_regular(Path(text), LONGEST_PROMPT).decode("utf-8-sig") if is_file else text).strip()
    except (OSError, UnicodeDecodeError):
        prompt = ""
    if not prompt:
        raise ValueError(
            f"a text, or the path of a UTF-8 text file of {LONGEST_PROMPT >> 10} KiB at most, which is not empty"
        )
    return prompt


def parse_number(text: str, least: float = 0.0, most: float = math.inf) -> float:
    """Return a decimal number from ``least`` to ``most``; raise ``ValueError`` with what was expected."""
    if not re.fullmatch(r"[0-9]*\.?[0-9]+|[0-9]+\.", text) or not least <= float(text) <= most:
        raise ValueError(f"a number from {least:g} {'up' if most == math.inf else f'to {most:g}'}")
    return float(text)


def choice_or_pattern(text: str, choices: Sequence[str] = (), pattern: str = ".*") -> str:
    """Return a text that is one of the choices, or matches the pattern; raise ``ValueError`` with the choices."""
    if (choices and text not in choices) or not re.fullmatch(pattern, text, re.DOTALL):
        raise ValueError(join_choices(choices))
    return text


ALL: Final = "all"
"""The limit that is none."""


def _limit(text: str) -> int | float | str:
    """Parse an item count, a fraction of each benchmark (between 0 and 1), or ``all``."""
    if text == ALL:
        return text
    if re.fullmatch(r"0?\.[0-9]+", text) and 0.0 < float(text) < 1.0:
        return float(text)
    return parse_integer(text, 1)


def _probability(text: str) -> float:
    if not (probability := parse_number(text, most=1.0)):
        raise ValueError(text)
    return probability


def _batch(text: str) -> int | None:
    return None if text == "auto" else parse_integer(text, 1)


def _shard(text: str) -> str:
    """Return ``NUMBER/COUNT`` unchanged; raise ``ValueError`` for any other text."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError("NUMBER/COUNT, such as 2/5, with a number from 1 to the count")
    return text


def _folder(text: str) -> str:
    if not Path(text).is_dir():
        raise ValueError(text)
    return text


def _data_folder(text: str) -> str:
    return text if text == "hub" else _folder(text)


PARSERS: Final[Mapping[str, Callable[..., Any]]] = {
    "text": choice_or_pattern,
    "integer": parse_integer,
    "number": parse_number,
    "limit": _limit,
    "probability": _probability,
    "batch": _batch,
    "folder": _folder,
    "data_folder": _data_folder,
    "shard": _shard,
    "system_prompt": load_system_prompt,
}
"""The functions that ``parse`` names."""


# Where the values of settings come from


DEFAULT: Final = "default"
PROJECT: Final = "pyproject.toml"
CONFIG_FILE: Final = "file"
OPTION: Final = "option"

ORDER: Final = (PROJECT, CONFIG_FILE, "environment", "options")
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

SourceValues: TypeAlias = tuple[dict[str, Any], dict[str, str]]
"""Values by row, and where each is from in words."""


@dataclass(slots=True)
class SettingSources:
    """The values that each source gives, with their origins."""

    given: dict[str, SourceValues] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """Return the strongest value of each row that is given."""
        tables = [self.given[source][0] for source in ORDER if source in self.given]
        return {name: value for table in tables for name, value in table.items()}

    def origin(self, name: str) -> str:
        """Return where a row's value is from."""
        origins = [self.given[source][1] for source in ORDER if source in self.given]
        return next((table[name] for table in reversed(origins) if name in table), DEFAULT)

    def above(self, source: str) -> frozenset[str]:
        """Return the rows that a stronger source gives."""
        stronger = ORDER[ORDER.index(source) + 1 :]
        return frozenset(
            name
            for stronger_source in stronger
            if stronger_source in self.given
            for name in self.given[stronger_source][0]
        )


def load_project_settings(path: Path) -> SourceValues:
    """Read the settings of ``[tool.touchstone]``; none without such a file or table.

    Its own tables (gate, composites, series) are no settings. Raises ``OptionError``.
    """
    try:
        table = read_toml(path)["tool"]["touchstone"]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return {}, {}  # pytest itself says what is wrong with the file
    if not isinstance(table, Mapping):
        raise OptionError(f"{path.name}: {TABLE} is {table!r}; expected a table")
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    return parse_settings_table(plain, f"{path.name}: [{TABLE}]", path.name)


def parse_settings_table(table: Mapping[str, Any], where: str, origin: str) -> SourceValues:
    """Parse a table of settings by name; raise ``OptionError`` beginning with ``where``."""
    rows = {name: row for name, row in settings_table().items() if row.option}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = str(key).replace("-", "_")
        if name not in rows or (name == "config" and origin != PROJECT):
            near = similar_names(name, rows)
            raise OptionError(
                f"{where}: unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        values[name] = rows[name].value(value, f"{where} {key}")
        _check_typed(rows[name], values[name], f"{where} {key}")
    return values, dict.fromkeys(values, origin)


def _check_typed(row: Setting, value: Any, where: str) -> None:
    """Raise ``OptionError`` for a value that is allowed on the command line alone."""
    if value and row.typed in ("any", value):
        raise OptionError(
            f"{where} {value!r}: can only be said on the command line, by {row.usage}; leave it out here"
        )


def parse_set_options(words: Sequence[str]) -> dict[str, Any]:
    """Parse the values of ``--eval-set``, such as ``top_p=0.9``; raise ``OptionError``.

    A switch needs no value. Of several values the last one counts, or all where several may be given.
    """
    values: dict[str, Any] = {}
    rows = {name: row for name, row in settings_table().items() if row.option}
    for key, sign, text in (word.partition("=") for word in words):
        name = key.replace("-", "_")
        if name not in rows:
            raise OptionError(f"{SET} {key}: unknown key; {did_you_mean(name, rows)}docs/options.md has all")
        row = rows[name]
        value: Any = True if row.action == "switch" and not sign else _parse_text(row, text, f"{SET} {name}")
        values[name] = (*values.get(name, ()), *value) if row.action == "append" else value
    return values


def load_environment_settings(environ: Mapping[str, str]) -> SourceValues:
    """Read variables such as ``TOUCHSTONE_DEVICE``; several values are split as a shell does.

    An empty variable says nothing. Raises ``OptionError``.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, row in settings_table().items():
        variable = f"{PREFIX}{name.upper()}"
        if not row.option or not (text := environ.get(variable, "").strip()):
            continue
        values[name], origins[name] = _parse_text(row, text, variable), variable
        _check_typed(row, values[name], variable)
    return values, origins


def _parse_text(row: Setting, text: str, variable: str) -> Any:
    if row.action == "switch":
        if text.lower() not in WORDS:
            raise OptionError(f"invalid {variable} {text!r}: expected 1 or 0")
        return WORDS[text.lower()]
    try:
        parts = shlex.split(text) if row.action == "append" else text
    except ValueError as error:
        raise OptionError(f"invalid {variable} {text!r}: {error}") from None
    return row.value(parts, variable)


# Settings as conditions of results


OF_RESULTS: Final = ("version", "data", "shots", "few_shot", "template")
"""The conditions that are known from a benchmark and its results; the others are settings of the run."""


OF_ENGINES: Final = ("dtype", "server_args", "texts_by", "trust_remote_code")
"""Conditions that say how an engine computes, not what it is asked."""


@functools.lru_cache(maxsize=1024)
def affects(name: str) -> Affects:
    """Return the area that a setting affects; an unknown one, of a later release, may affect answers."""
    row = settings_table().get(name)
    return row.affects if row is not None else "answers"


def is_condition(name: str) -> bool:
    """Return whether results with different values of it were asked differently, or asked other items."""
    return name in OF_RESULTS or affects(name) in ("answers", "items")


def condition_names() -> list[str]:
    """List every condition that a saved result may have."""
    return [
        *OF_RESULTS,
        *(name for name in settings_table() if name not in OF_RESULTS and _is_manifest_condition(name)),
    ]


def manifest_conditions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a manifest that are conditions, completed by defaults.

    Those whose outcome the results tell are left out.
    """
    return {name: value for name, value in _with_defaults(settings).items() if _is_manifest_condition(name)}


def known_conditions(conditions: Mapping[str, Any], *, published: bool = False) -> dict[str, Any]:
    """Return the conditions of a saved result by today's rules, as JSON gives them back.

    Settings that it does not name have their defaults. Of a ``published`` result only the stated conditions are known.
    """
    written = conditions if published else {**manifest_conditions({}), **conditions}
    plain: dict[str, Any] = json.loads(
        json.dumps({name: value for name, value in written.items() if is_condition(name)})
    )
    return plain


def differences(
    mine: Mapping[str, Any], other: Mapping[str, Any], allowed: Iterable[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ, by name, mine first; ``allowed`` names are skipped."""
    skipped = set(allowed)
    return {
        name: (mine.get(name), other.get(name))
        for name in dict.fromkeys((*mine, *other))
        if name not in skipped and mine.get(name) != other.get(name)
    }


def differing_conditions(
    mine: Mapping[str, Any], other: Mapping[str, Any], allowed: Iterable[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Return the conditions that differ, by name, where the items are known.

    A setting that only chooses items does not count then.
    """
    return differences(prompt_conditions(mine), prompt_conditions(other), allowed)


def prompt_conditions(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions without those that only choose items."""
    return {name: value for name, value in conditions.items() if affects(name) != "items"}


def same_answers(mine: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two runs with these manifest settings give equal answers.

    The cache may then take answers of one for the other.
    """
    apart = differences(_with_defaults(mine), _with_defaults(other))
    return not any(affects(name) in ("answers", "rounding") for name in apart)


def conflicting_settings(
    mine: Mapping[str, Any], other: Mapping[str, Any], *, but: Iterable[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Return the settings that must agree within one run, and differ between two manifests."""
    apart = differences(_with_defaults(mine), _with_defaults(other), but)
    return {name: two for name, two in apart.items() if affects(name) in ("answers", "rounding", "items")}


def _with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the settings of a manifest by defaults."""
    return {name: row.default for name, row in settings_table().items()} | dict(settings)


def _is_manifest_condition(name: str) -> bool:
    """Return whether a setting is a condition whose outcome no result tells."""
    return name not in ("shots", "fewshot", "chat", *OF_RESULTS) and is_condition(name)
