"""Plain HTTP/1.1 to one server, without a proxy: what a server of one's own speaks.

A library for HTTP takes more of a processor per request than all else that a request needs here, and hundreds at once
fill one. Here a request is one write, and its reply is parsed by httptools, which is llhttp, the parser of Node.js.
What goes over TLS or through a proxy goes through aiohttp (``aiohttp_carrier``), which knows how.

A connection carries one request at a time. It is kept for the next one where the reply was whole and both sides agree.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

from aiohappyeyeballs import start_connection
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from pytest_touchstone.engines.http.exchange import (
    BROKE_BEFORE,
    BROKE_WITHIN,
    CONNECT_SECONDS,
    IDLE_SECONDS,
    NO_CONNECTION,
    Broken,
    Hopeless,
    Raw,
    words,
)

_EYEBALLS: Final = 0.25
"""The seconds after which the next address of a host is tried too (RFC 8305)."""

_SAFE: Final = "/%:@!$&'()*+,;=~"
"""The characters that stay as they are in a path."""


class PlainCarrier:
    """The connections to one server, in one event loop."""

    def __init__(self, base: str, headers: Mapping[str, str], largest: int) -> None:
        """``base`` is the server's address, and ``headers`` go with every request."""
        place = urlsplit(base)
        self._host, self._port, self._largest = place.hostname or "", place.port or 80, largest
        self._prefix = place.path
        told = {"Host": _ascii(place.netloc), **headers}
        self._told = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self._heads: dict[tuple[str, bool], bytes] = {}
        self._all: set[_Line] = set()
        self._idle: deque[_Line] = deque()

    async def ask(self, path: str, data: bytes | None) -> Raw:
        """Return the reply to a request: a POST of data, and a GET where that is None."""
        line = self._kept() or await self._connected()
        try:
            # No frame keeps the request, which has the key.
            reply = await line.sent(self._request(path, data))
        except BaseException:  # being cancelled, too: the reply would come to the next request
            line.close()
            raise
        if line.usable:
            line.since = asyncio.get_running_loop().time()
            self._idle.append(line)
        return reply

    async def close(self) -> None:
        """Close all connections."""
        for line in list(self._all):
            line.close()
        self._idle.clear()
        await asyncio.sleep(0)  # closing takes a turn of the loop

    def _request(self, path: str, data: bytes | None) -> bytes:
        head = self._heads.get((path, data is None))
        if head is None:
            method, length = ("GET", "") if data is None else ("POST", "Content-Length: ")
            line = f"{method} {quote(self._prefix + path, safe=_SAFE)} HTTP/1.1\r\n"
            head = self._heads[path, data is None] = f"{line}{self._told}{length}".encode(
                "latin-1", "replace"
            )
        return head + b"\r\n" if data is None else b"%b%d\r\n\r\n%b" % (head, len(data), data)

    def _kept(self) -> _Line | None:
        """Return an idle connection, the one that was used last; those that are idle for too long are closed."""
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle and self._idle[0].since < oldest:
            self._idle.popleft().close()
        while self._idle:
            line = self._idle.pop()
            if line.usable:
                return line
        return None

    async def _connected(self) -> _Line:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                places = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                # asyncio's own race leaves a socket open where it is cancelled just after one has won.
                connected = await start_connection(places, happy_eyeballs_delay=_EYEBALLS)
                _, line = await loop.create_connection(
                    lambda: _Line(self._all, self._largest), sock=connected
                )
        except TimeoutError:
            raise Broken(NO_CONNECTION) from None
        except UnicodeError as error:  # of the host's name
            raise Hopeless(f"{type(error).__name__}: {error}") from None
        except OSError as error:
            raise Broken(words(error)) from None
        return line


def _ascii(place: str) -> str:
    """Return a host and port as a header has them; one that is no name stays, and connecting says what is wrong."""
    try:
        return place.encode("idna").decode("ascii")
    except UnicodeError:
        return place


class _Line(asyncio.Protocol):
    """One connection. ``usable``: it can carry a request; ``since`` when it has been idle."""

    def __init__(self, connected: set[_Line], largest: int) -> None:
        """``connected`` are the connections that there are, this one among them while it is."""
        self.usable = False
        self.since = 0.0
        self._connected, self._largest = connected, largest
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[Raw] | None = None
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._head = self._size = 0
        self._headed = False

    def sent(self, request: bytes) -> asyncio.Future[Raw]:
        """Send a request, and return its reply to come."""
        assert self._transport is not None
        self._begin()
        self.usable = False
        self._head = self._size = 0
        reply = self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return reply

    def close(self) -> None:
        """Close the connection, with no regard to what is under way."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that there is a connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.usable = transport, True
        self._connected.add(self)

    def data_received(self, data: bytes) -> None:
        """Take the next bytes of a reply."""
        if self._waiting is None:  # nobody has asked for them
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(Broken(f"the reply is no HTTP ({error})"))
        self._head += 0 if self._headed else len(data)
        if self._head > self._largest:
            self._fail(Broken("the reply is no HTTP (its head has no end)"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that there is no connection any more, which ends a reply that does not say its length."""
        self.usable = False
        self._connected.discard(self)
        if self._waiting is None:
            return
        unbounded = not {"content-length", "transfer-encoding"} & self._headers.keys()
        if self._headed and unbounded and exc is None:
            self._end(b"".join(self._parts))
        elif self._headed and self._parser.get_status_code() != 200:
            self._end(b"")  # the status says enough
        else:
            self._fail(Broken(BROKE_WITHIN if self._headed else BROKE_BEFORE))

    # The parser

    def on_message_begin(self) -> None:
        """Begin a reply; one that nobody waits for ends the connection."""
        self._begin()
        if self._waiting is None:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Look whether the reply will be too long."""
        self._headed = True
        length = self._headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._largest:
            self._end(None)

    def on_body(self, body: bytes) -> None:
        """Take a part of the content."""
        self._parts.append(body)
        self._size += len(body)
        if self._size > self._largest:
            self._end(None)

    def on_message_complete(self) -> None:
        """End a reply, unless another follows it to the same request (1xx)."""
        if self._parser.get_status_code() < 200:
            self._begin()
            return
        keep = self._parser.should_keep_alive()
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._end(body, keep=keep)

    # The reply

    @property
    def _waiting(self) -> asyncio.Future[Raw] | None:
        """The reply that is waited for."""
        return None if self._reply is None or self._reply.done() else self._reply

    def _begin(self) -> None:
        self._headers, self._parts, self._headed = {}, [], False

    def _end(self, body: bytes | None, *, keep: bool = False) -> None:
        """End the reply; without a body it is too long."""
        reply = self._waiting
        if reply is not None:
            reply.set_result(Raw(self._parser.get_status_code(), self._headers, body))
        self.usable = keep
        if not keep:
            self.close()

    def _fail(self, error: Exception) -> None:
        reply = self._waiting
        if reply is not None:
            reply.set_exception(error)
        self.close()
