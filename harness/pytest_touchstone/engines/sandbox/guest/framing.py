"""Messages over stream sockets and pipes: the length in four bytes, then JSON."""

from __future__ import annotations

import json
import os
import select
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Final

LONGEST: Final = 16 * 2**20
"""The size limit, in bytes, of a message from a program."""

_MOST_DIGITS: Final = 640
"""The least limit that Python has."""

_HEAD: Final = struct.Struct(">I")


class ConnectionClosed(BaseException):
    """The other side is gone, or did not send a message.

    Not an ``Exception``: a test that catches all exceptions of a program must not take the program's end for one.
    """


class DeadlinePassed(BaseException):
    """No message came in time."""


Wait = Callable[[int, int], None]
"""Waits for an event (of ``select.poll``) at a descriptor, or raises ``DeadlinePassed``."""


def until(deadline: float) -> Wait:
    """Return a wait that ends when ``time.monotonic()`` passes ``deadline``."""

    def wait(descriptor: int, event: int) -> None:
        left = deadline - time.monotonic()
        poll = select.poll()
        poll.register(descriptor, event)
        if left <= 0 or not poll.poll(left * 1000):
            raise DeadlinePassed

    return wait


def send(descriptor: int, message: Any, *, wait: Wait | None = None) -> None:
    """Write a whole message.

    Raises ``ConnectionClosed`` if nobody reads any more, and what ``wait`` raises before somebody does.
    """
    body = json.dumps(message, separators=(",", ":")).encode()
    view = memoryview(_HEAD.pack(len(body)) + body)
    try:
        if wait is not None:
            os.set_blocking(descriptor, False)
        while view:
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                if wait is not None:
                    wait(descriptor, select.POLLOUT)
    except OSError as error:
        raise ConnectionClosed(str(error)) from None
    finally:
        if wait is not None:
            os.set_blocking(descriptor, True)


def receive(descriptor: int, *, longest: int = LONGEST, wait: Wait | None = None) -> Any:
    """Return the next message.

    Raises ``ConnectionClosed`` at the end of the stream, for a message that is too long and for invalid JSON, and
    what ``wait`` raises before the message arrives.
    """
    (length,) = _HEAD.unpack(_read(descriptor, _HEAD.size, wait))
    if length > longest:
        raise ConnectionClosed(f"a message of {length} bytes; {longest} at most")
    return parse_frame(_read(descriptor, length, wait))


def parse_frame(body: bytes | str) -> Any:
    """Return the message of a JSON text. Raises ``ConnectionClosed`` for a text that holds none.

    Long numbers are sent as hexadecimal texts (``values``). Reading decimal ones takes hours, so there are none.
    """
    most = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(_MOST_DIGITS)
    try:
        return json.loads(body)
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConnectionClosed(f"no message: {error}") from None
    finally:
        sys.set_int_max_str_digits(most)


def _read(descriptor: int, count: int, wait: Wait | None) -> bytes:
    parts = []
    while count:
        if wait is not None:
            wait(descriptor, select.POLLIN)
        try:
            chunk = os.read(descriptor, min(count, 2**20))
        except OSError as error:
            raise ConnectionClosed(str(error)) from None
        if not chunk:
            raise ConnectionClosed("the other side closed the connection")
        parts.append(chunk)
        count -= len(chunk)
    return b"".join(parts)
