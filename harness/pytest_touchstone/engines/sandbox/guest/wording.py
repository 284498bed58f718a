"""Exceptions in words: the outcome and the detail of a verdict."""

from __future__ import annotations

import errno
from typing import Any, Final

LONGEST: Final = 1500
"""Characters of a detail that are kept."""

_FORBIDDEN: Final = (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS)
"""The errors that forbidden system calls raise."""


def described(program: dict[str, Any]) -> dict[str, Any]:
    """Return the outcome and detail of an exception that the program's side reported."""
    types_, text = types_of(program), program.get("text")
    line = program.get("line")
    outcome = "error"
    if "MemoryError" in types_ or program.get("number") == errno.ENOMEM:
        outcome = "memory"
    elif "SystemExit" in types_:
        outcome = "crashed"
    elif program.get("number") in _FORBIDDEN:
        outcome = "refused"
    detail = types_[0]
    if isinstance(line, int):
        detail += f" (line {line})"
    return {"outcome": outcome, "detail": shortened(f"{detail}: {text}") if text else detail}


def shortened(text: str) -> str:
    """Return the beginning of a long text, with three full stops where it is cut."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def types_of(program: dict[str, Any]) -> list[str]:
    """Return the names of an exception's types; the program may send anything."""
    found = program.get("types")
    return [str(name)[:100] for name in found[:50]] if isinstance(found, list) and found else ["?"]


def sentence(error: BaseException) -> str:
    """Return the type and the text of an exception."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """Return the text of an exception, empty where it cannot be written."""
    try:
        return shortened(str(error))
    except BaseException:  # an object of the program's in it, whose text cannot be had
        return ""
