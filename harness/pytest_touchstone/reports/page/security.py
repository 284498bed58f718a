"""The harmlessness of a page: its content policy, and the search for what looks like a key.

Texts of models and data are never markup, and no key may leave with a page that is sent to somebody. In texts a key is
replaced by a mark. In settings and commands, which the page's owner wrote, it is refused: a key that stands there also
stands in the other files of the run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.keys import has_key, keys_in, map_texts, redact, redact_key_forms
from pytest_touchstone.core.text import count, join_names, redact_home


class KeyFoundError(HarnessError):
    """A setting or the command of a run holds what looks like a key: its page is not written."""


SHOWN: Final = 6
"""The characters of a key that a message shows."""


class Redaction:
    """Takes keys out of what a page shows, and remembers where they were."""

    def __init__(self) -> None:
        self.places: dict[str, None] = {}

    def text(self, text: str, location: str) -> str:
        """Return the text without keys."""
        if not has_key(text):
            return text
        self.places[location] = None
        return redact_key_forms(text)

    def value(self, value: Any, location: str) -> Any:
        """Return plain data without keys in any text of it, names included."""
        return map_texts(value, lambda text: self.text(text, location))

    def notes(self) -> list[str]:
        """Return a line about what was taken out; none where nothing was."""
        if not self.places:
            return []
        locations = join_names(list(self.places))
        return [f"What looks like a key was left out in {count(len(self.places), 'place')}: {locations}."]


def redact_own_text(text: str) -> str:
    """Return a text that is no data, such as a message or a path, without places in somebody's home and what its words
    say is a key. What looks like one is left to ``Redaction``, which counts it."""
    return redact_home(text if has_key(text) else redact(text))


def refuse_keys(manifest: Mapping[str, Any], where: str) -> None:
    """Raise ``KeyFoundError`` where the command or a setting of a run holds what looks like a key."""
    given = {name: manifest.get(name) for name in ("command", "arguments")}
    given |= {f"settings.{name}": value for name, value in manifest.get("settings", {}).items()}
    for path, value in given.items():
        text = json.dumps(value, ensure_ascii=False, default=str)
        if (key_found := next(keys_in(text), None)) is not None:
            kind, key = key_found
            raise KeyFoundError(
                f"no page of {where}: {path} holds what looks like {kind} ({key[:SHOWN]}...); give keys by "
                "the environment, take this one out of the run's files, then type "
                f"`touchstone report {where} --format html`"
            )


def policy(scripts: Sequence[str], style: str) -> str:
    """Return the content policy of a page with these scripts and this style, and nothing else.

    Nothing is fetched, sent, framed or run but what the page was made with. Elements have no style of their own. Its
    scripts search in workers that they make of themselves, which are under the same policy.
    """
    workers = "worker-src blob:; " if scripts else ""
    allowed = " ".join(map(_source, scripts)) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_source(style)}; {workers}"
        "base-uri 'none'; form-action 'none'"
    )


def _source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
