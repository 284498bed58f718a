"""The agreement between the wire and what carries its requests: ``plain_carrier`` and ``aiohttp_carrier``."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from socket import gaierror
from typing import Final, Protocol

IDLE_SECONDS: Final = 3.0
CONNECT_SECONDS: Final = 15.0
"""The seconds that an idle connection is kept, and that a new one may take. Servers close idle ones too, uvicorn and so
vLLM after five seconds, and a request that is just then sent fails."""

NO_CONNECTION: Final = f"no connection within {CONNECT_SECONDS:.0f} s"
UNKNOWN_HOST: Final = "the host's name is not known"
BROKE_BEFORE: Final = "the connection broke before the reply"
BROKE_WITHIN: Final = "the connection broke within the reply"

BY_NUMBER: Final[Mapping[int, str]] = {
    errno.ECONNREFUSED: "connection refused: nothing listens there",
    errno.ECONNRESET: BROKE_BEFORE,
    errno.EPIPE: BROKE_BEFORE,
    errno.EHOSTUNREACH: "the host cannot be reached",
    errno.ENETUNREACH: "the network cannot be reached",
}
"""The errors of connections, in words."""

_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")


class Broken(Exception):  # noqa: N818
    """There was no whole reply; the text says why, in a few words."""


class Hopeless(Exception):  # noqa: N818
    """A request cannot be sent, now or later; the text says why, in a few words."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A reply as it came: its status, its headers by their names in small letters, and its content, None where that is
    too large."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None


class Carrier(Protocol):
    """The connections to one server, in one event loop."""

    async def ask(self, path: str, data: bytes | None) -> Raw:
        """Return the reply to a POST of data below the server's base, or to a GET where that is None.

        Raises ``Broken`` or ``Hopeless`` where there is none.
        """

    async def close(self) -> None:
        """Close all connections."""


def words(error: OSError) -> str:
    """Return an error of a connection in a few words, without the system's where they say less."""
    if isinstance(error, gaierror):
        return UNKNOWN_HOST
    # asyncio puts the errors of a host's several addresses into one text.
    told = _NUMBER.search(str(error))
    number = error.errno or (int(told[1]) if told else 0)
    return BY_NUMBER.get(number) or f"{type(error).__name__}: {error}"
