"""Messages over stream sockets and pipes: the length in four bytes, then JSON."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from contextlib import suppress
from typing import Any, Final

LONGEST: Final = 16 * 2**20
"""The size limit, in bytes, of a message from a program."""

_HEAD: Final = struct.Struct(">I")


class Closed(BaseException):
    """The other side is gone, or did not send a message.

    It is no ``Exception``: a test that catches all exceptions of a program must not mistake the program's end for
    one.
    """


class Late(BaseException):
    """No message came in time."""


def send(descriptor: int, message: Any, *, deadline: float | None = None) -> None:
    """Write a whole message.

    Raises ``Closed`` when nobody reads any more, ``Late`` when ``time.monotonic()`` passes ``deadline``.
    """
    body = json.dumps(message, separators=(",", ":")).encode()
    view = memoryview(_HEAD.pack(len(body)) + body)
    try:
        if deadline is not None:
            os.set_blocking(descriptor, False)
        while view:
            if deadline is not None:
                _wait(descriptor, deadline, select.POLLOUT)
            with suppress(BlockingIOError):
                view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise Closed(str(error)) from None
    finally:
        if deadline is not None:
            os.set_blocking(descriptor, True)


def receive(descriptor: int, *, longest: int = LONGEST, deadline: float | None = None) -> Any:
    """Return the next message.

    Raises ``Closed`` at the end of the stream, for a message that is too long and for invalid JSON; ``Late`` when
    ``time.monotonic()`` passes ``deadline``.
    """
    (length,) = _HEAD.unpack(_read(descriptor, _HEAD.size, deadline))
    if length > longest:
        raise Closed(f"a message of {length} bytes; {longest} at most")
    body = _read(descriptor, length, deadline)
    try:
        return json.loads(body)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Closed(f"no message: {error}") from None


def _read(descriptor: int, count: int, deadline: float | None) -> bytes:
    parts = []
    while count:
        if deadline is not None:
            _wait(descriptor, deadline, select.POLLIN)
        try:
            part = os.read(descriptor, min(count, 2**20))
        except OSError as error:
            raise Closed(str(error)) from None
        if not part:
            raise Closed("the other side closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _wait(descriptor: int, deadline: float, event: int) -> None:
    left = deadline - time.monotonic()
    poll = select.poll()
    poll.register(descriptor, event)
    if left <= 0 or not poll.poll(left * 1000):
        raise Late
