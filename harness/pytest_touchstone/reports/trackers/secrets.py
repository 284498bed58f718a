"""Keys and tokens, which are in nothing that is sent: those of the environment, and what looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pytest_touchstone.core.keys import without_keys

SHORTEST: Final = 6
"""The characters of a value that is looked for: a shorter one is in every text by chance."""

_NAMES: Final = re.compile(
    r"(^|_)(API_?KEY|KEY|KEY_ID|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PAT|CREDENTIALS?)(_|$)", re.IGNORECASE
)
_BLOCK: Final = 1 << 22


class Secrets:
    """The secret values of an environment, and texts without them.

    Secret are the values of variables whose names say so, and passwords within addresses.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        found: dict[str, str] = {}
        for name, value in environ.items():
            for one in (value if _NAMES.search(name) else "", _password(value)):
                if len(one.strip()) >= SHORTEST:
                    found.setdefault(one.strip(), name)
        # The longest first: one may be a part of another.
        self._names = dict(sorted(found.items(), key=lambda pair: -len(pair[0])))

    def removed(self, text: str) -> str:
        """Return the text with the variable's name in the place of its value, and no other key."""
        for value, name in self._names.items():
            text = text.replace(value, f"[{name}]")
        return without_keys(text)

    def removed_from(self, data: bytes) -> bytes:
        """Return the content of a text file without keys."""
        text = data.decode("utf-8", "surrogateescape")
        return self.removed(text).encode("utf-8", "surrogateescape")

    def within(self, paths: Iterable[Path]) -> str | None:
        """Return the name of a variable whose value is in one of the files, None where there is none.

        Raises ``OSError`` as the system does.
        """
        values = {value.encode(): name for value, name in self._names.items()}
        longest = max(map(len, values), default=0)
        for path in paths if values else ():
            with path.open("rb") as file:
                kept = b""
                while block := file.read(_BLOCK):
                    kept += block
                    for value, name in values.items():
                        if value in kept:
                            return name
                    kept = kept[-longest:]
        return None


def _password(value: str) -> str:
    try:
        return (urlsplit(value).password or "") if "://" in value else ""
    except ValueError:
        return ""
