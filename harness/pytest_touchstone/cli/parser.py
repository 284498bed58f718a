"""``Parser``: argparse, with mistakes as one line that says what there is, and help where nothing is given."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.text import alike, either

FORMS: Final = (
    (r"the following arguments are required: (?P<what>[^,]+).*", "{what} is missing"),
    (r"argument (?P<what>\S+): expected .*argument", "{what} needs a value"),
    (r"argument (?P<what>\S+): ignored explicit argument (?P<value>.*)", "{what} takes no value: {value}"),
    (r"argument (?P<what>\S+): (?P<rest>.*)", "{what}: {rest}"),
)
"""The sentences of argparse, and what is said in their place."""


class Parser(argparse.ArgumentParser):
    """The parser of a command, or of a group with ``commands``; with ``takes_rest`` unknown arguments are kept, as
    ``rest``."""

    commands: Sequence[str] = ()
    takes_rest: bool = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but refuse what is unknown here, where the known options are; without any argument
        a group shows its help."""
        if self.commands and not args:
            self.print_help()
            self.exit()
        found, unknown = super().parse_known_args(args, namespace)
        if self.takes_rest:
            found.rest, unknown = unknown, []
        if unknown:
            self.error(self._unknown(unknown[0]))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Raise ``OptionError`` with one line."""
        raise OptionError(f"{self._sentence(message)} ({self.prog} --help)")

    def _sentence(self, message: str) -> str:
        if self.commands and (wrong := re.search(r"invalid choice: '([^']*)'", message)):
            return self._no_command(wrong[1])
        for form, said in FORMS:
            if match := re.fullmatch(form, message):
                return said.format(**match.groupdict())
        return message

    def _no_command(self, name: str) -> str:
        near = alike(name, self.commands)
        rest = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.commands)}"
        return f"{name!r} is no command: {rest}"

    def _unknown(self, given: str) -> str:
        name = given.partition("=")[0]
        if not name.startswith("-"):
            return f"{given!r} is one argument too many"
        near = alike(name, dict.fromkeys(re.findall(r"--[a-z][a-z-]*", self.format_help())), most=2)
        return f"unknown option {name}" + (f": did you mean {either(near)}?" if near else "")
