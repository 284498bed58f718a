"""Values that may be undefined, where a test knows that they are not."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """The value, which must not be None."""
    assert value is not None
    return value
