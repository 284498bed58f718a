"""The key to a server: taken from the environment alone, and kept out of everything that is said.

There is no option for a key: the command line of a run is in its manifest, and in the list of processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.keys import masked

NAMES: Final = ("TOUCHSTONE_API_KEY", "OPENAI_API_KEY")
"""The variables that may hold a key; the first that is set counts."""

SHORTEST: Final = 6
"""The characters of a key that is looked for: a shorter one stands for none (``EMPTY``, ``x``) and is in many texts."""

_LIKE_A_KEY: Final = re.compile(
    r"\b(?:sk|pk|hf|gsk|xai|nvapi)[-_][\w*.-]{8,}|(?<=\bBearer )[^\s\[]\S*|(?<=://)[^/@\s]+(?=@)"
)
"""Texts that look like a key; servers quote parts of the one that they refuse."""

_BETWEEN: Final = re.compile(r"\s+")


class Key:
    """A key, or none. Its value is in no text of this object, and can only be had as a header."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str = "", value: str = "") -> None:
        """Raises ``CheckpointError`` for a value that no header can hold, without showing it."""
        value = value.strip()
        if not (value.isascii() and value.isprintable()) or " " in value:
            raise CheckpointError(
                f"{name} holds a character that no key has (a space, a line break, or a letter outside ASCII): "
                "set it again"
            )
        self.name, self._value = name, value

    def __bool__(self) -> bool:
        """Return whether there is a key."""
        return bool(self._value)

    def __repr__(self) -> str:
        """Return the name of the variable."""
        return f"Key({self.name or 'none'})"

    def __reduce__(self) -> str:
        """Raise ``TypeError``: a key does not travel to another process, which has the environment too."""
        raise TypeError("a key is not pickled")

    def headers(self) -> dict[str, str]:
        """Return the headers that show the key to its server."""
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def removed(self, text: str) -> str:
        """Return a text, on one line that a terminal can show, with the variable's name where the key was, and nothing
        that looks like one."""
        if len(self._value) >= SHORTEST:
            for form in {self._value, quote(self._value, safe=""), quote(self._value)}:
                text = text.replace(form, f"[{self.name}]")
        shown = masked(_LIKE_A_KEY.sub("[a key]", text))
        return _BETWEEN.sub(" ", "".join(sign if sign.isprintable() else " " for sign in shown)).strip()


def key_of(environ: Mapping[str, str]) -> Key:
    """Return the key of an environment. Raises ``CheckpointError`` for one that cannot be sent."""
    for name in NAMES:
        if environ.get(name, "").strip():
            return Key(name, environ[name])
    return Key()
