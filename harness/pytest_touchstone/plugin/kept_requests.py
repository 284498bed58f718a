"""Requests as the journal keeps them: of long texts only the end, and a hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

LONGEST_KEPT: Final = 1000
"""The characters of a request's text that the journal keeps.

Of longer texts it keeps the end, and the hash of the whole.
"""

KEPT_WHOLE: Final = ("program",)
"""Fields of a request that the journal keeps whole, however long they are."""


def journalled(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as the journal keeps it: the end of a long text, the last part of a long list, and the hash of
    the whole.

    Its parts are kept likewise. A program is kept whole, since it is the checkpoint's own text, already cut.
    """
    found: dict[str, Any] = {}
    for name, value in request.items():
        if isinstance(value, dict):
            found[name] = journalled(value)
            continue
        whole = value if isinstance(value, str) else json.dumps(value) if isinstance(value, list) else ""
        if len(whole) > LONGEST_KEPT and name not in KEPT_WHOLE:
            found[name] = "…" + value[-LONGEST_KEPT:] if isinstance(value, str) else _last(value)
            found[f"{name}_sha256"] = hashlib.sha256(whole.encode()).hexdigest()
        else:
            found[name] = value
    return found


def _last(parts: list[Any]) -> list[Any]:
    """Return the last part of a long list, unless that is itself long, as a pair of input and output may be."""
    if isinstance(parts[-1], list) and len(json.dumps(parts[-1])) > LONGEST_KEPT:
        return []
    return parts[-1:]
