"""Values between a program and its tests, as JSON: the exact builtin types and a few plain ones of the standard
library. Anything else is sent as a handle: a number that means something only to the side that owns the object.

The exceptions of either side become the outcome and the detail of a verdict.

The result of ``decode`` holds no object of a foreign class, whatever the message: a forged ``__eq__`` does not get
through.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import json
import operator
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

MAX_DEPTH: Final = 150
"""The deepest level of nesting that can be sent."""

UNORDERED: Final = "?"
"""``own`` is given a list of it for a set whose members come in another order on the other side."""

MAX_ITEMS: Final = 2**21
"""The items of a list, and of those in it, beyond which only a digest of it is sent."""

_SAFE: Final = 2**53


class UnsendableError(Exception):
    """A value that cannot be sent, or a message that has no value."""


ObjectHook = Callable[[Any], Any]
"""Converts an object that is not a plain value to its message, or such a message to its object."""


def encode(value: Any, encode_object: ObjectHook, depth: int = 0) -> Any:
    """Return the message of a value; ``encode_object`` gives the messages of objects that are not plain data.

    Instances of subclasses of builtin types are sent as the builtin type. Raises ``UnsendableError`` for a value
    that is nested too deep, such as one that contains itself.
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str or kind is float:
        return value if kind is str or value - value == 0 else ["f", str(value)]
    if kind is int:
        return value if -_SAFE < value < _SAFE else ["i", hex(value)]
    if depth > MAX_DEPTH:
        raise UnsendableError(f"a value nested deeper than {MAX_DEPTH} levels")
    for base, tag, split, reduce in _KINDS:
        if isinstance(value, base):
            if reduce is not None:
                return [tag, *reduce(value)]
            members = list(split(value))
            if tag in _SETS:
                _set(_SETS[tag], members, encode_object)
            return [tag, [encode(member, encode_object, depth + 1) for member in members]]
    return encode_object(value)


def text(value: Any, encode_object: ObjectHook) -> str:
    """Return the message of a value as JSON.

    The message of a list or tuple of more than ``MAX_ITEMS`` items is a digest: it shows only whether two are equal.
    """
    if type(value) in (list, tuple) and len(value) + sum(map(_items, value)) > MAX_ITEMS:
        digest = hashlib.sha256(type(value).__name__.encode())
        for element in value:
            digest.update(f"{element!r},".encode())
        message: Any = ["#", digest.hexdigest()]
    else:
        message = encode(value, encode_object)
    return json.dumps(message, separators=(",", ":"))


def _items(value: Any) -> int:
    return len(value) if type(value) in (list, tuple) else 0


def decode(message: Any, decode_object: ObjectHook, depth: int = 0) -> Any:
    """Return the value of a message, in exact builtin types; ``decode_object`` gives the values of handles.

    Raises ``UnsendableError`` for a message without a value.
    """
    if not isinstance(message, list):
        if isinstance(message, dict):
            raise UnsendableError("a dict is no message")
        return message
    if depth > MAX_DEPTH or not message or not isinstance(message[0], str):
        raise UnsendableError("no message of a value")
    try:
        if (make := _MADE_OF_PARTS.get(message[0])) is not None:
            return make([decode(member, decode_object, depth + 1) for member in message[1]])
        if (read := _READERS.get(message[0])) is not None:
            return read(*message[1:])
        if message[0] in _SETS:
            return _set(
                _SETS[message[0]],
                [decode(member, decode_object, depth + 1) for member in message[1]],
                decode_object,
            )
        if message[0] == "#":
            raise UnsendableError(
                f"of values with more than {MAX_ITEMS} parts is known only whether they are the same"
            )
        return decode_object(message)
    except (ValueError, TypeError, IndexError, ArithmeticError, KeyError, AttributeError) as error:
        raise UnsendableError(f"no message of a value: {error}") from None


def _set(kind: type[Any], members: list[Any], report_order: ObjectHook) -> Any:
    """Return the set of these members, in their order if one of a set's two usual tables has it.

    A set made of a mapping has room for all members from the beginning, as copies and literals have.
    """
    for members_like in (members, dict.fromkeys(members)):
        candidate = kind(members_like)
        if len(candidate) == len(members) and all(map(operator.is_, candidate, members)):
            return candidate
    report_order([UNORDERED])
    return candidate


def _bounds(value: range | slice) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step


def _flatten_items(value: dict[Any, Any]) -> list[Any]:
    return [half for pair in dict.items(value) for half in pair]


def _number(value: float) -> list[Any]:
    """Return a number of a subclass as text; JSON has no infinity."""
    return [hex(int.__int__(value))] if isinstance(value, int) else [str(float.__float__(value))]


def _memoryview_of(text: str, code: str, shape: list[int], readonly: bool) -> memoryview:
    buffer = bytes.fromhex(text) if readonly else bytearray.fromhex(text)
    view = memoryview(buffer)
    if (code, len(shape)) == ("B", 1):
        return view
    return view.cast(code, shape) if shape else view.cast(code, [])  # type: ignore[call-overload, no-any-return]


_KINDS: Final[tuple[tuple[type, str, Any, Any], ...]] = (
    (list, "l", list.__iter__, None),
    (tuple, "t", tuple.__iter__, None),
    (dict, "d", _flatten_items, None),
    (set, "s", set.__iter__, None),
    (frozenset, "z", frozenset.__iter__, None),
    (type({}.keys()), "dk", iter, None),
    (type({}.values()), "dv", iter, None),
    (type({}.items()), "di", lambda value: [half for pair in value for half in pair], None),
    (deque, "q", lambda value: [value.maxlen, *value], None),
    (range, "r", _bounds, None),
    (slice, "x", _bounds, None),
    (str, "u", None, lambda value: [str.__str__(value)]),
    (int, "i", None, _number),
    (float, "f", None, _number),
    (complex, "c", None, lambda value: [str(complex(value).real), str(complex(value).imag)]),
    (bytes, "b", None, lambda value: [bytes(value).hex()]),
    (bytearray, "a", None, lambda value: [bytes(value).hex()]),
    (
        memoryview,
        "m",
        None,
        lambda value: [value.tobytes().hex(), value.format, list(value.shape), value.readonly],
    ),
    (type(...), "...", None, lambda _: []),
    (type(NotImplemented), "n", None, lambda _: []),
    (Decimal, "D", None, lambda value: [str(value)]),
    (Fraction, "F", None, lambda value: [hex(value.numerator), hex(value.denominator)]),
    (datetime.timedelta, "p", None, lambda value: [value.days, value.seconds, value.microseconds]),
    (datetime.datetime, "wd", None, lambda value: [datetime.datetime.isoformat(value)]),
    (datetime.date, "wa", None, lambda value: [datetime.date.isoformat(value)]),
    (datetime.time, "wt", None, lambda value: [datetime.time.isoformat(value)]),
)
"""Each type with its tag, and either the parts to be encoded in turn or the plain data that stands for it.

A datetime is a date too, so it comes first.
"""

_MADE_OF_PARTS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "l": list,
    "t": tuple,
    "d": lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "dk": lambda parts: dict.fromkeys(parts).keys(),
    "dv": lambda parts: dict(enumerate(parts)).values(),
    "di": lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)).items(),
    "q": lambda parts: deque(parts[1:], parts[0]),
    "r": lambda parts: range(*parts),
    "x": lambda parts: slice(*parts),
}

_SETS: Final[dict[str, type[Any]]] = {"s": set, "z": frozenset}

_READERS: Final[dict[str, Callable[..., Any]]] = {
    "u": str,
    "i": lambda text: int(text, 16),
    "f": float,
    "c": lambda real, imaginary: complex(float(real), float(imaginary)),
    "b": bytes.fromhex,
    "a": bytearray.fromhex,
    "m": _memoryview_of,
    "...": lambda: ...,
    "n": lambda: NotImplemented,
    "D": Decimal,
    "F": lambda above, below: Fraction(int(above, 16), int(below, 16)),
    "p": datetime.timedelta,
    "wd": datetime.datetime.fromisoformat,
    "wa": datetime.date.fromisoformat,
    "wt": datetime.time.fromisoformat,
}


# Exceptions in words: the outcome and the detail of a verdict


LONGEST: Final = 1500
"""Characters of a detail that are kept."""

_FORBIDDEN: Final = (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS)
"""The errors that forbidden system calls raise."""


def describe_exception(program: dict[str, Any]) -> dict[str, Any]:
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
    return {"outcome": outcome, "detail": shorten(f"{detail}: {text}") if text else detail}


def shorten(text: str) -> str:
    """Return a text of limited length, with three full stops where it is cut."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def types_of(program: dict[str, Any]) -> list[str]:
    """Return the names of an exception's types; the program may send anything."""
    names = program.get("types")
    return [str(name)[:100] for name in names[:50]] if isinstance(names, list) and names else ["?"]


def exception_summary(error: BaseException) -> str:
    """Return the type and the text of an exception."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """Return the text of an exception; empty if the text cannot be had."""
    try:
        return shorten(str(error))
    except BaseException:  # an object of the program's in it, whose text cannot be had
        return ""
