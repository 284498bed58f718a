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
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
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
    ServerTimeoutError,
    TCPConnector,
)
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from pydantic_core import from_json, to_json

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.http import replies
from pytest_touchstone.engines.http.calls import (
    AGAIN,
    TOKENS,
    Call,
    CallReply,
    FailedAttempt,
    MalformedReplyError,
    What,
    retry_after,
    status_text,
)
from pytest_touchstone.engines.http.server import Key

T = TypeVar("T")

Outcome: TypeAlias = CallReply[T] | FailedAttempt

LARGEST_REPLY: Final = 64 << 20
"""The bytes that a reply may have: log-probabilities of a prompt of 100,000 tokens are about 10 MB."""

LONGEST_SAID: Final = 300
"""The characters of a server's explanation that are kept."""

IDLE_SECONDS: Final = 3.0
CONNECT_SECONDS: Final = 15.0
"""The seconds that an idle connection is kept, and that a new one may take. Servers close idle ones too, uvicorn and so
vLLM after five seconds, and a request that is just then sent fails."""

_BROKE_BEFORE: Final = "the connection broke before the reply"

_BY_KIND: Final[Mapping[type[Exception], str]] = {
    ClientConnectorDNSError: "the host's name is not known",
    ClientPayloadError: "the connection broke within the reply",
    ServerDisconnectedError: _BROKE_BEFORE,
    ServerTimeoutError: f"no connection within {CONNECT_SECONDS:.0f} s",
}

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

    def __init__(self, base: str, key: Key) -> None:
        """``base`` is the address below which paths are, without a slash at the end (``http://h:8000``).

        Raises ``CheckpointError`` where the environment's proxy cannot be used.
        """
        self._base, self._key = base, key
        self._proxy = _proxy(base)
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, call: Call[T], seconds: float) -> Outcome[T]:
        """Return what came of sending a call once, within so many seconds. Raises nothing."""
        try:
            async with asyncio.timeout(seconds):
                return await self._sent(call)
        except MalformedReplyError as error:
            return self._trouble("final" if error.final else "malformed", str(error))
        except (ClientConnectorCertificateError, InvalidURL, UnicodeError) as error:
            return self._trouble("final", f"{type(error).__name__}: {error}")
        except (ClientError, OSError) as error:
            if type(error) is TimeoutError:  # ours: aiohttp has a class of its own
                return FailedAttempt("time", f"no reply within {seconds:.3g} s")
            return replace(
                self._trouble("connection", _why(error)), unsent=isinstance(error, ClientConnectorError)
            )

    async def _sent(self, call: Call[T]) -> Outcome[T]:
        """Return the outcome of a reply; raise ``MalformedReplyError``, or what aiohttp does where there is none."""
        method, data = ("GET", None) if call.body is None else ("POST", _packed(call.as_sent(call.body)))
        async with self._opened().request(
            method, self._base + call.path, data=data, allow_redirects=False, proxy=self._proxy
        ) as response:
            try:
                body = await _content(response)
            except (ClientError, OSError, MalformedReplyError):
                if response.status == 200:
                    raise
                body = b""  # the status says enough
            if response.status != 200:
                return self._refused(response.status, response.headers, body)
            return self._read(call, body)

    def _opened(self) -> ClientSession:
        if self._session is None:
            self._session = ClientSession(
                connector=_Connector(limit=0, keepalive_timeout=IDLE_SECONDS),  # calls are limited elsewhere
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
            found = body.decode() if call.text else from_json(body.removeprefix(replies.BOM))
        except ValueError as error:
            return self._trouble("malformed", replies.not_json(body, error))
        if (told := replies.within(found)) is not None:
            return self._failed(told)
        try:
            value = call.read(found)
        except MalformedReplyError as error:
            said = replies.in_place_of(found)
            return self._trouble("final" if error.final else "malformed", str(error), said)
        except Exception as error:  # whatever a reader does not expect is not what was asked for
            return self._trouble(
                "malformed", f"the reply is not as expected ({type(error).__name__}: {error})"
            )
        usage = {name: count for name in TOKENS if (count := replies.usage_count(found, name)) is not None}
        return CallReply(value, usage, replies.text_of(found, "system_fingerprint") or None)

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> FailedAttempt:
        said, code = replies.of_refusal(from_json, body)
        said, text = self._shown(said), status_text(status)
        if 300 <= status < 400 or status < 200:
            where = self._shown(headers.get("location", "nowhere"))
            return FailedAttempt("final", f"{text}: the server redirects to {where}; give that address")
        if status == 429 and code == USED_UP:
            return FailedAttempt("final", f"{text}: the account's quota is used up", status, said)
        if status < 300:
            return FailedAttempt("malformed", f"{text} where 200 was expected", status, said)
        wait = retry_after(headers.get("retry-after"), headers.get("date"), time.time())
        return FailedAttempt("status", text, status, said, wait)

    def _failed(self, told: replies.Explanation) -> FailedAttempt:
        """Return the trouble of a reply with the status 200 that holds an error: final where its code is."""
        status = int(told.code) if told.code.isdecimal() else 0
        final = told.code == USED_UP or (400 <= status < 500 and status not in AGAIN)
        code = f" (code {told.code})" if told.code else ""
        return self._trouble(
            "final" if final else "malformed",
            f"HTTP 200 with an error{code} in place of an answer",
            told.said,
        )

    def _trouble(self, what: What, text: str, said: str = "") -> FailedAttempt:
        return FailedAttempt(what, self._shown(text), said=self._shown(said))

    def _shown(self, text: str) -> str:
        # The key goes first: cut, it would not be found.
        found = self._key.removed(text)
        return found if len(found) <= LONGEST_SAID else found[:LONGEST_SAID] + "…"


async def _content(response: ClientResponse) -> bytes:
    """Return the content of a reply. Raises ``MalformedReplyError`` where it is compressed or too large."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        response.close()
        raise MalformedReplyError(
            f"the reply is compressed ({encoding}), which was not asked for: switch that off at the server, or at the "
            "proxy before it",
            final=True,
        )
    body, size = bytearray(), response.content_length or 0
    while size <= LARGEST_REPLY and (part := await response.content.readany()):
        body += part
        size = max(size, len(body))
    if size > LARGEST_REPLY:
        response.close()
        raise MalformedReplyError(f"the reply has more than {LARGEST_REPLY >> 20} MiB", final=True)
    return bytes(body)


def _packed(body: Any) -> bytes:
    try:
        return to_json(body)
    except ValueError:  # half a surrogate pair, which is no UTF-8; escaped it can be sent
        return json.dumps(body).encode()


def _why(error: Exception) -> str:
    """Return in a few words why there was no reply, without the library's words for it where they say less."""
    if isinstance(error, ClientResponseError):  # of the parser: statuses raise nothing here
        return f"the reply is no HTTP ({error.message})"
    number = getattr(getattr(error, "os_error", error), "errno", None)
    words = next((words for kind, words in _BY_KIND.items() if isinstance(error, kind)), None)
    return words or _BY_NUMBER.get(number or 0) or f"{type(error).__name__}: {error}"


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
