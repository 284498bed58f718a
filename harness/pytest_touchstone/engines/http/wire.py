"""One attempt: a call over HTTP, and a value or a trouble for it. Everything that needs aiohttp is here.

Facts about aiohttp (3.14) by which this is as it is:

- ``ClientSession(trust_env=True)`` reads ``~/.netrc`` and the proxies again for each request, each in another thread.
  It also fails where netrc has a password for a host and a key is sent. So the proxy is looked up once, and netrc is
  not read.
- Its time-outs are rounded up to whole seconds beyond five; ours are kept by the event loop.
- It follows redirects, and takes the key off where they lead to another origin. None is followed here: the key goes to
  the host that was named, and the message says where the server wants one to go.
- It would unpack compressed replies of any size. None is asked for, and none is taken.
"""

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientError,
    ClientPayloadError,
    ClientRequest,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.http import replies
from pytest_touchstone.engines.http.calls import TOKENS, Call, CallReply, Malformed
from pytest_touchstone.engines.http.pacing import AGAIN, Trouble, What, retry_after, status_text
from pytest_touchstone.engines.http.server import Key


class Clock:
    """The time. ``speed`` above 1 lets tests wait in less than real time."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> float:
        """Return seconds from some moment on."""
        return time.monotonic() * self._speed

    def wall(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def real(self, seconds: float) -> float:
        """Return the true seconds in which this clock moves on by so many."""
        return seconds / self._speed


T = TypeVar("T")

LARGEST_REPLY: Final = 64 << 20
"""The bytes that a reply may have: log-probabilities of a prompt of 100,000 tokens are about 10 MB."""

LONGEST_SAID: Final = 300
"""The characters of a server's explanation that are kept."""

IDLE_SECONDS: Final = 3.0
CONNECT_SECONDS: Final = 15.0
"""The seconds that an idle connection is kept, and that a new one may take. Servers close idle ones too, uvicorn and so
vLLM after five seconds, and a request that is just then sent fails."""

_BROKE_BEFORE: Final = "the connection broke before the reply"

_BY_NUMBER: Final[Mapping[int, str]] = {
    errno.ECONNREFUSED: "connection refused: nothing listens there",
    errno.ECONNRESET: _BROKE_BEFORE,
    errno.EPIPE: _BROKE_BEFORE,
    errno.EHOSTUNREACH: "the host cannot be reached",
    errno.ENETUNREACH: "the network cannot be reached",
}
"""The errors of connections, in words."""

USED_UP: Final = "insufficient_quota"
"""The code by which a 429 says that the account has no money left: waiting does not help."""


Outcome: TypeAlias = CallReply[T] | Trouble


@dataclass(frozen=True, slots=True)
class RawReply:
    """A reply as it came: its status, its headers, and its content, None where that is too large."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None


class _Connector(TCPConnector):
    """Connections that are used again only where nothing came while they were idle.

    aiohttp would take a reply that nobody asked for, such as a late one, as that to the next request.
    """

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        while True:
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()


class Wire:
    """The connections to one server, in one event loop."""

    def __init__(self, base: str, key: Key, clock: Clock) -> None:
        """``base`` is the address below which paths are, without a slash at the end (``http://h:8000``).

        Raises ``CheckpointError`` where the environment's proxy cannot be used.
        """
        self._base, self._key, self._clock = base, key, clock
        self._proxy = _proxy(base)
        self._session: ClientSession | None = None
        self._parse, self._pack = _json()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, call: Call[T], seconds: float) -> Outcome[T]:
        """Return what came of sending a call once; ``seconds`` are by this wire's clock. Raises nothing."""
        try:
            async with asyncio.timeout(self._clock.real(seconds)):
                reply = await self._carried(call)
        except TimeoutError:
            return Trouble("time", f"no reply within {seconds:.3g} s")
        except (ClientConnectorCertificateError, InvalidURL, UnicodeError) as error:
            return self._trouble("final", f"{type(error).__name__}: {error}")
        except (ClientError, OSError) as error:
            return self._trouble("connection", _why(error))
        return reply if isinstance(reply, Trouble) else self._outcome(call, reply)

    def _outcome(self, call: Call[T], reply: RawReply) -> Outcome[T]:
        encoded = reply.headers.get("content-encoding", "identity").lower() != "identity"
        if reply.status != 200:
            return self._refused(reply, b"" if encoded else reply.body or b"")
        if encoded:
            return self._trouble(
                "final",
                f"the reply is compressed ({reply.headers['content-encoding']}), which was not asked for: switch that "
                "off at the server, or at the proxy before it",
            )
        if reply.body is None:
            return self._trouble("final", f"the reply has more than {LARGEST_REPLY >> 20} MiB")
        return self._read(call, reply.body)

    async def _carried(self, call: Call[T]) -> RawReply | Trouble:
        """Return the reply as it came; raise what aiohttp does where there is none."""
        method, data = ("GET", None) if call.body is None else ("POST", self._pack(call.as_sent(call.body)))
        try:
            async with self._opened().request(
                method, self._base + call.path, data=data, allow_redirects=False, proxy=self._proxy
            ) as response:
                try:
                    body = await _content(response)
                except (ClientError, OSError):
                    if response.status == 200:
                        raise
                    body = b""  # the status says enough
                if body is None:
                    response.close()
                return RawReply(response.status, response.headers, body)
        except TimeoutError:  # aiohttp's own: that of ``send`` arrives as a cancellation
            return Trouble("connection", f"no connection within {CONNECT_SECONDS:.0f} s")

    def _opened(self) -> ClientSession:
        if self._session is None:
            self._session = ClientSession(
                # The limiter bounds the connections.
                connector=_Connector(limit=0, keepalive_timeout=IDLE_SECONDS),
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                # Compressed replies would cost more time than they save on most networks.
                headers={
                    "User-Agent": "pytest-touchstone",
                    "Accept": "application/json",
                    "Accept-Encoding": "identity",
                    "Content-Type": "application/json",
                    **self._key.headers(),
                },
                auto_decompress=False,
            )
        return self._session

    def _read(self, call: Call[T], body: bytes) -> Outcome[T]:
        try:
            found = body.decode() if call.text else self._parse(body.removeprefix(replies.BOM))
        except ValueError as error:
            return self._trouble("malformed", replies.not_json(body, error))
        if (told := replies.within(found)) is not None:
            return self._failed(told)
        try:
            value = call.read(found)
        except Malformed as error:
            said = replies.in_place_of(found)
            return self._trouble("final" if error.final else "malformed", str(error), said)
        except Exception as error:  # whatever a reader does not expect is not what was asked for
            return self._trouble(
                "malformed", f"the reply is not as expected ({type(error).__name__}: {error})"
            )
        usage = {name: count for name in TOKENS if (count := replies.usage_count(found, name)) is not None}
        return CallReply(value, usage, replies.text_of(found, "system_fingerprint") or None)

    def _refused(self, reply: RawReply, body: bytes) -> Trouble:
        headers, status = reply.headers, reply.status
        said, code = replies.of_refusal(self._parse, body)
        said = self._shown(said)
        if 300 <= status < 400 or status < 200:
            where = self._shown(headers.get("location", "nowhere"))
            return Trouble(
                "final", f"{status_text(status)}: the server redirects to {where}; give that address"
            )
        if status == 429 and code == USED_UP:
            return Trouble("final", f"{status_text(status)}: the account's quota is used up", status, said)
        if status < 300:
            return Trouble("malformed", f"{status_text(status)} where 200 was expected", status, said)
        wait = retry_after(headers.get("retry-after"), headers.get("date"), self._clock.wall())
        return Trouble("status", status_text(status), status, said, wait)

    def _failed(self, told: replies.Explanation) -> Trouble:
        """Return the trouble of a reply with the status 200 that holds an error: final where its code is."""
        status = int(told.code) if told.code.isdecimal() else 0
        final = told.code == USED_UP or (400 <= status < 500 and status not in AGAIN)
        code = f" (code {told.code})" if told.code else ""
        return self._trouble(
            "final" if final else "malformed",
            f"HTTP 200 with an error{code} in place of an answer",
            told.said,
        )

    def _trouble(self, what: What, text: str, said: str = "") -> Trouble:
        return Trouble(what, self._shown(text), said=self._shown(said))

    def _shown(self, text: str) -> str:
        # The key goes first: cut, it would not be found.
        found = self._key.removed(text)
        return found if len(found) <= LONGEST_SAID else found[:LONGEST_SAID] + "…"


async def _content(response: ClientResponse) -> bytes | None:
    """Return the content of a reply, None where it is too large."""
    if (response.content_length or 0) > LARGEST_REPLY:
        return None
    parts: list[bytes] = []
    size = 0
    while part := await response.content.readany():
        parts.append(part)
        size += len(part)
        if size > LARGEST_REPLY:
            return None
    return b"".join(parts)


def _why(error: Exception) -> str:
    """Return in a few words why there was no reply, without the library's words for it where they say less."""
    if isinstance(error, ClientConnectorDNSError):
        return "the host's name is not known"
    if isinstance(error, ClientPayloadError):
        return "the connection broke within the reply"
    if isinstance(error, ServerDisconnectedError):
        return _BROKE_BEFORE
    if isinstance(error, ClientResponseError):  # of the parser: statuses raise nothing here
        return f"the reply is no HTTP ({error.message})"
    number = getattr(getattr(error, "os_error", error), "errno", None)
    return _BY_NUMBER.get(number or 0) or f"{type(error).__name__}: {error}"


def _json() -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    """Return the quickest functions at hand that read and write JSON: those of pydantic, which is needed anyway."""
    from pydantic_core import from_json, to_json

    def pack(body: Any) -> bytes:
        try:
            return to_json(body)
        except ValueError:  # half a surrogate pair, which is no UTF-8; escaped it can be sent
            return json.dumps(body).encode()

    return from_json, pack


def _proxy(base: str) -> str | None:
    """Return the proxy that the environment names for a server (``https_proxy``, ``all_proxy``, ``no_proxy``).

    A server on this machine is never asked through a proxy, which could not reach it. Raises ``CheckpointError`` for a
    proxy that does not speak HTTP.
    """
    from urllib import request

    place, known = urlsplit(base), request.getproxies_environment()
    proxy = known.get(place.scheme) or known.get("all")
    around: Callable[[str, dict[str, str]], bool] = request.proxy_bypass_environment  # type: ignore[attr-defined]
    if not proxy or _local(place.hostname or "") or around(place.netloc, known):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if (kind := urlsplit(proxy).scheme) not in ("http", "https"):
        raise CheckpointError(
            f"{place.scheme}_proxy names a {kind} proxy, and only http ones can be used: unset it, or set no_proxy"
        )
    return proxy


def _local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
