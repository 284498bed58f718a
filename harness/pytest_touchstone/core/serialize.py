"""The form of values that travel between processes and into the journal: plain builtins, nothing else.

execnet, which carries xdist's reports, takes exact builtin types only. Anything else ends the worker and, silently,
the item with it. So every value that a benchmark passes on goes through ``to_plain`` first, and every report of a
worker through ``scrub`` as the last step before it is sent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any, Final

from pytest_touchstone.core.errors import WireError

LEAST_INTEGER: Final = -(2**31)
"""execnet cannot pack an integer below this (struct.error)."""

DEEPEST: Final = 50

_AS_IT_IS: Final = frozenset({type(None), bool, float, bytes, complex})

_NEVER: Final = object()
"""Stands for no value."""


def to_plain(value: object, where: str = "value", depth: int = 0) -> Any:  # noqa: PLR0911 -- one per type
    """The same value in exact builtin types: None, bool, int, float, str, list, dict with string keys.

    NaN and the infinities become text. Numbers of NumPy and torch become Python numbers, tuples become lists, and
    subclasses of str and int the plain type. A dataclass's fields marked ``LATER`` are left out where they have their
    default. Lone surrogates in text become Python's escape, such as ``\\ud83d``.

    Raises ``WireError`` naming the place and the type of anything else.
    """
    if depth > DEEPEST:
        raise WireError(f"{where}: nested deeper than {DEEPEST} levels; return flat, plain data")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int):
        if value < LEAST_INTEGER:
            raise WireError(
                f"{where} is {_shown(value)}, below {LEAST_INTEGER}, which cannot travel between processes"
            )
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))  # JSON has no NaN and no infinity
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: to_plain(part, f"{where}.{name}", depth + 1)
            for name, later in _fields_of(type(value))
            if (part := getattr(value, name)) is not later and (later is _NEVER or part != later)
        }
    if isinstance(value, Mapping):
        return _plain_mapping(value, where, depth)
    if isinstance(value, (list, tuple)):
        return [to_plain(part, f"{where}[{index}]", depth + 1) for index, part in enumerate(value)]
    number = plain_number(value)
    if number is not None:
        return number
    raise WireError(
        f"{where} is {_shown(value)} of type {_type_name(value)}, which cannot travel between processes; "
        "use numbers, text, lists and dicts"
    )


@functools.cache
def _fields_of(kind: type[Any]) -> tuple[tuple[str, object], ...]:
    """Return the names of a dataclass's fields, each with the value with which it is left out."""
    return tuple((one.name, one.default if one.metadata.get("later") else _NEVER) for one in fields(kind))


def plain_text(text: str) -> str:
    """The text as an exact ``str`` that UTF-8 can encode: a lone surrogate becomes its escape, such as ``\\ud83d``."""
    if type(text) is str and text.isascii():
        return text
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


def plain_number(value: object) -> bool | int | float | None:
    """A zero-dimensional number of NumPy or torch as a Python number; None for anything else."""
    if getattr(value, "shape", None) != ():
        return None
    item = getattr(value, "item", None)
    if not callable(item):
        return None
    number = item()
    return number if type(number) in (bool, int, float) else None


def plain_scores(value: object, who: str) -> dict[str, float]:
    """The scores that a benchmark returned, as floats by name.

    Raises ``WireError`` when it is no dict, a name is no text, or a value is not a finite number.
    """
    if not isinstance(value, Mapping):
        raise WireError(
            f"{who} returned {_shown(value)} of type {_type_name(value)}; return a dict of scores, "
            "such as {'acc': 1.0}"
        )
    if not value:
        raise WireError(f"{who} returned no score; return a dict such as {{'acc': 1.0}}")
    scores: dict[str, float] = {}
    for name, score in value.items():
        if not isinstance(name, str) or not name:
            raise WireError(f"{who} returned a score named {_shown(name)}; names are text")
        number = float(score) if isinstance(score, (bool, int, float)) else plain_number(score)
        if number is None:
            raise WireError(
                f"{who} returned score {name!r} = {_shown(score)} of type {_type_name(score)}, "
                "which is no number and cannot travel between processes; return an int, a float or a bool"
            )
        if not math.isfinite(number):
            raise WireError(f"{who} returned score {name!r} = {number}; scores are finite numbers")
        scores[plain_text(name)] = float(number)
    return scores


def scrub(data: object, where: str = "report", *, replace: bool = False) -> Any:
    """Report data that execnet can carry: text is made encodable, paths become text.

    Unlike ``to_plain`` it keeps tuples, sets and bytes, which execnet knows. What cannot be sent raises
    ``WireError``, or, with ``replace``, becomes a short description of itself.
    """
    kind = type(data)
    if _sendable(data):
        return data
    if isinstance(data, (str, PurePath)):
        return plain_text(str(data))
    if kind is dict:
        pairs = data.items()  # type: ignore[attr-defined]
        return {
            key if _sendable(key) else scrub(key, where, replace=replace): (
                part if _sendable(part) else scrub(part, f"{where}[{key!r}]", replace=replace)
            )
            for key, part in pairs
        }
    if kind in (list, tuple, set, frozenset):
        parts = (
            part if _sendable(part) else scrub(part, f"{where}[]", replace=replace)
            for part in data  # type: ignore[attr-defined]
        )
        return kind(parts)
    if replace:
        return _shown(data)
    raise WireError(
        f"{where} is {_shown(data)} of type {_type_name(data)}, which cannot travel between processes"
    )


def _sendable(value: object) -> bool:
    """Return whether execnet can carry a value as it is; nearly all values of a report are such ones."""
    kind = type(value)
    if kind is str:
        return value.isascii()  # type: ignore[attr-defined, no-any-return]
    return kind in _AS_IT_IS or (kind is int and value >= LEAST_INTEGER)  # type: ignore[operator]


def _plain_mapping(value: Mapping[Any, Any], where: str, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, part in value.items():
        if not isinstance(key, str):
            raise WireError(f"{where} has the key {_shown(key)} of type {_type_name(key)}; keys are text")
        plain[plain_text(key)] = to_plain(part, f"{where}[{key!r}]", depth + 1)
    return plain


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _shown(value: object) -> str:
    """A short repr that cannot fail: the value may be of any class."""
    try:
        text = plain_text(repr(value))
    except Exception as error:  # whatever a foreign __repr__ does, the message must still come out
        text = f"<no repr: {type(error).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
