"""Send one call over HTTP with aiohttp and parse its reply.

These facts about aiohttp (3.14) explain the code:

- ``ClientSession(trust_env=True)`` reads ``~/.netrc`` and the proxies again for each request, each in another thread.
  It also fails if netrc has a password for a host and a key is sent. So the proxy is looked up once, and netrc is not
  read.
- aiohttp rounds time-outs of more than five seconds up to whole seconds; ours are kept by the event loop.
- aiohttp follows redirects, and removes the key if they lead to another origin. Here none is followed: the key goes
  only to the host that the user named, and the message shows the new address.
- aiohttp would unpack compressed replies of any size. None is requested, and none is accepted.
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
    RETRIED_STATUSES,
    TOKENS,
    AttemptFailureKind,
    Call,
    CallReply,
    FailedAttempt,
    MalformedReplyError,
    retry_after,
    status_text,
)
from pytest_touchstone.engines.http.server import ApiKey

T = TypeVar("T")

Outcome: TypeAlias = CallReply[T] | FailedAttempt

MAX_REPLY_BYTES: Final = 64 << 20
"""The maximum bytes of a reply; the log-probabilities of a prompt of 100,000 tokens are about 10 MB."""

MAX_SHOWN: Final = 300
"""The maximum characters of a server's explanation in a message."""

IDLE_SECONDS: Final = 3.0
CONNECT_SECONDS: Final = 15.0
"""The seconds that an idle connection is kept, and that a new one may take. Servers also close idle connections
(uvicorn, and so vLLM, after five seconds); a request that is sent at that moment fails."""

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
"""The messages for errors of connections."""

QUOTA_CODE: Final = "insufficient_quota"
"""The code of a 429 for an account without money; waiting does not help."""


class _Connector(TCPConnector):
    """A connector that reuses a connection only if nothing arrived while it was idle.

    aiohttp would take an unexpected reply, such as a late one, as the reply to the next request.
    """

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        while True:
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()


class HttpClient:
    """A client of one server, in one event loop."""

    def __init__(self, base: str, key: ApiKey) -> None:
        """Look up the proxy of a server.

        ``base`` is the address before all paths, without a slash at the end (``http://h:8000``). Raises
        ``CheckpointError`` if the environment's proxy cannot be used.
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
        """Send a call once and return its reply or failed attempt. Raises nothing."""
        try:
            async with asyncio.timeout(seconds):
                return await self._send_once(call)
        except MalformedReplyError as error:
            return self._failed_attempt("final" if error.final else "malformed", str(error))
        except (ClientConnectorCertificateError, InvalidURL, UnicodeError) as error:
            return self._failed_attempt("final", f"{type(error).__name__}: {error}")
        except (ClientError, OSError) as error:
            if type(error) is TimeoutError:  # ours: aiohttp has a class of its own
                return FailedAttempt("time", f"no reply within {seconds:.3g} s")
            return replace(
                self._failed_attempt("connection", _explain(error)),
                unsent=isinstance(error, ClientConnectorError),
            )

    async def _send_once(self, call: Call[T]) -> Outcome[T]:
        """Return the outcome of a reply. Raises ``MalformedReplyError``, and aiohttp's errors if there is no reply."""
        method, payload = ("GET", None) if call.body is None else ("POST", _encode(call.as_sent(call.body)))
        async with self._open_session.request(
            method, self._base + call.path, data=payload, allow_redirects=False, proxy=self._proxy
        ) as response:
            try:
                body = await _read_body(response)
            except (ClientError, OSError, MalformedReplyError):
                if response.status == 200:
                    raise
                body = b""  # the status says enough
            if response.status != 200:
                return self._status_failure(response.status, response.headers, body)
            return self._parse_reply(call, body)

    @property
    def _open_session(self) -> ClientSession:
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

    def _parse_reply(self, call: Call[T], body: bytes) -> Outcome[T]:
        try:
            reply = body.decode() if call.text else from_json(body.removeprefix(replies.BOM))
        except ValueError as error:
            return self._failed_attempt("malformed", replies.describe_non_json(body, error))
        if (error_reply := replies.find_error(reply)) is not None:
            return self._failure_in_reply(error_reply)
        try:
            value = call.read(reply)
        except MalformedReplyError as error:
            message = replies.explain_missing_choices(reply)
            return self._failed_attempt("final" if error.final else "malformed", str(error), message)
        except Exception as error:  # whatever a reader does not expect is not what was asked for
            return self._failed_attempt(
                "malformed", f"the reply is not as expected ({type(error).__name__}: {error})"
            )
        usage = {name: count for name in TOKENS if (count := replies.usage_count(reply, name)) is not None}
        return CallReply(value, usage, replies.text_of(reply, "system_fingerprint") or None)

    def _status_failure(self, status: int, headers: Mapping[str, str], body: bytes) -> FailedAttempt:
        message, code = replies.explain_refusal(from_json, body)
        message, text = self._redact(message), status_text(status)
        if 300 <= status < 400 or status < 200:
            location = self._redact(headers.get("location", "nowhere"))
            return FailedAttempt("final", f"{text}: the server redirects to {location}; give that address")
        if status == 429 and code == QUOTA_CODE:
            return FailedAttempt("final", f"{text}: the account's quota is used up", status, message)
        if status < 300:
            return FailedAttempt("malformed", f"{text} where 200 was expected", status, message)
        wait = retry_after(headers.get("retry-after"), headers.get("date"), time.time())
        return FailedAttempt("status", text, status, message, wait)

    def _failure_in_reply(self, explanation: replies.Explanation) -> FailedAttempt:
        """Return the failed attempt for an error in a reply with status 200; its code decides whether it is final."""
        status = int(explanation.code) if explanation.code.isdecimal() else 0
        final = explanation.code == QUOTA_CODE or (400 <= status < 500 and status not in RETRIED_STATUSES)
        code = f" (code {explanation.code})" if explanation.code else ""
        return self._failed_attempt(
            "final" if final else "malformed",
            f"HTTP 200 with an error{code} in place of an answer",
            explanation.message,
        )

    def _failed_attempt(self, kind: AttemptFailureKind, text: str, message: str = "") -> FailedAttempt:
        return FailedAttempt(kind, self._redact(text), server_message=self._redact(message))

    def _redact(self, text: str) -> str:
        # The key goes first: cut, it would not be found.
        shown = self._key.removed(text)
        return shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + "…"


async def _read_body(response: ClientResponse) -> bytes:
    """Read the body of a reply. Raises ``MalformedReplyError`` if it is compressed or too large."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        response.close()
        raise MalformedReplyError(
            f"the reply is compressed ({encoding}), which was not asked for: switch that off at the server, or at the "
            "proxy before it",
            final=True,
        )
    body, size = bytearray(), response.content_length or 0
    while size <= MAX_REPLY_BYTES and (chunk := await response.content.readany()):
        body += chunk
        size = max(size, len(body))
    if size > MAX_REPLY_BYTES:
        response.close()
        raise MalformedReplyError(f"the reply has more than {MAX_REPLY_BYTES >> 20} MiB", final=True)
    return bytes(body)


def _encode(body: Any) -> bytes:
    try:
        return to_json(body)
    except ValueError:  # half a surrogate pair, which is no UTF-8; escaped it can be sent
        return json.dumps(body).encode()


def _explain(error: Exception) -> str:
    """Explain briefly why there was no reply, in aiohttp's words only if there are no better ones."""
    if isinstance(error, ClientResponseError):  # of the parser: statuses raise nothing here
        return f"the reply is no HTTP ({error.message})"
    number = getattr(getattr(error, "os_error", error), "errno", None)
    words = next((words for kind, words in _BY_KIND.items() if isinstance(error, kind)), None)
    return words or _BY_NUMBER.get(number or 0) or f"{type(error).__name__}: {error}"


def _proxy(base: str) -> str | None:
    """Return the proxy for a server from the environment (``https_proxy``, ``all_proxy``, ``no_proxy``).

    A server on this machine is always asked directly. Raises ``CheckpointError`` for a proxy that does not speak HTTP.
    """
    from urllib import request

    url, proxies = urlsplit(base), request.getproxies_environment()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    bypasses: Callable[[str, dict[str, str]], bool] = request.proxy_bypass_environment  # type: ignore[attr-defined]
    if not proxy or _is_local(url.hostname or "") or bypasses(url.netloc, proxies):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if (kind := urlsplit(proxy).scheme) not in ("http", "https"):
        raise CheckpointError(
            f"{url.scheme}_proxy names a {kind} proxy, and only http ones can be used: unset it, or set no_proxy"
        )
    return proxy


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
