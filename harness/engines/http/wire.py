"""One attempt: a call over HTTP, and a value or a trouble for it. Everything that needs aiohttp is here.

Facts about aiohttp (3.14) by which this is as it is:

- ``ClientSession(trust_env=True)`` reads ``~/.netrc`` and the proxies again for each request, each in another thread.
  It also fails where netrc has a password for a host and a key is sent. So the proxy is looked up once, and netrc is
  not read.
- Its time-outs are rounded up to whole seconds beyond five; ours are kept by the event loop.
- It follows redirects, and takes the key off where they lead to another origin. None is followed here: the key goes to
  the host that was named, and the message says where the server wants one to go.
- A connection that was idle is closed by uvicorn, and so by vLLM, after five seconds; a request that is just then sent
  on it fails. So idle connections are given up before that.
- It would unpack compressed replies of any size. None is asked for, and none is taken.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlsplit

from harness.core.errors import CheckpointError
from harness.engines.http.calls import TOKENS, Call, Malformed, Server
from harness.engines.http.clock import Clock
from harness.engines.http.keys import Key
from harness.engines.http.retry import Trouble, What, retry_after, status_text

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

T = TypeVar("T")

LARGEST_REPLY: Final = 64 << 20
"""The bytes that a reply may have: log-probabilities of a prompt of 100,000 tokens are about 10 MB."""

LONGEST_SAID: Final = 300
"""The characters of a server's explanation that are kept."""

IDLE_SECONDS: Final = 3.0
CONNECT_SECONDS: Final = 15.0
"""The seconds that an idle connection is kept, and that a new one may take."""

BY_NUMBER: Final[Mapping[int, str]] = {
    errno.ECONNREFUSED: "connection refused: nothing listens there",
    errno.ECONNRESET: "the connection broke before the reply",
    errno.EPIPE: "the connection broke before the reply",
    errno.EHOSTUNREACH: "the host cannot be reached",
    errno.ENETUNREACH: "the network cannot be reached",
}
"""The errors of connections, in words."""

USED_UP: Final = "insufficient_quota"
"""The code by which a 429 says that the account has no money left: waiting does not help."""


@dataclass(frozen=True, slots=True)
class Got(Generic[T]):
    """The reply to an attempt: the value read from it, and what the server says about it."""

    value: T
    usage: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str | None = None
    model: str | None = None


Outcome: TypeAlias = Got[T] | Trouble


class Wire:
    """The connections to one server, in one event loop."""

    def __init__(self, server: Server, key: Key, clock: Clock) -> None:
        """Raises ``CheckpointError`` where aiohttp is missing or the environment names a proxy that cannot be used."""
        require()
        from aiohttp import ClientConnectorCertificateError, ClientError, InvalidURL

        # UnicodeError: of a host's name.
        self._final: tuple[type[Exception], ...] = (ClientConnectorCertificateError, InvalidURL, UnicodeError)
        self._broken: tuple[type[Exception], ...] = (ClientError, OSError)
        self._server, self._key, self._clock = server, key, clock
        self._proxy = _proxy(server.base)
        self._session: ClientSession | None = None
        self._parse, self._pack = _json()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, call: Call[T], seconds: float) -> Outcome[T]:
        """Return what came of sending a call once; ``seconds`` are by this wire's clock. Raises nothing."""
        url = self._server.base + call.path
        try:
            async with asyncio.timeout(self._clock.real(seconds)):
                return await self._exchange(call, url)
        except TimeoutError as error:  # aiohttp's own, of connecting, has a text
            if str(error):
                return self._trouble("connection", f"no connection within {CONNECT_SECONDS:.0f} s")
            return Trouble("time", f"no reply within {seconds:.3g} s")
        except self._final as error:
            return self._trouble("final", f"{type(error).__name__}: {error}")
        except self._broken as error:
            return self._trouble("connection", _why(error))

    async def _exchange(self, call: Call[T], url: str) -> Outcome[T]:
        session = self._session or self._open()
        data = None if call.body is None else self._pack(call.body)
        method = "GET" if data is None else "POST"
        async with session.request(
            method, url, data=data, allow_redirects=False, proxy=self._proxy
        ) as response:
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                response.close()
                return self._trouble("final", "the reply is compressed, although that was not asked for")
            body = await _body(response)
            if body is None:
                response.close()
                return self._trouble("final", f"the reply has more than {LARGEST_REPLY >> 20} MiB")
            if response.status != 200:
                return self._refused(response, body)
        return self._read(call, body)

    def _open(self) -> ClientSession:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        # The queue bounds the connections. Compressed replies would cost more time than they save on most networks.
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            headers=headers
            | {"Accept-Encoding": "identity"}
            | dict(self._server.headers)
            | self._key.headers(),
            auto_decompress=False,
        )
        return self._session

    def _read(self, call: Call[T], body: bytes) -> Outcome[T]:
        try:
            found = body.decode() if call.text else self._parse(body)
        except ValueError as error:
            return self._trouble("malformed", f"the reply is no JSON ({error})")
        try:
            value = call.read(found)
        except Malformed as error:
            return self._trouble("malformed", str(error))
        except Exception as error:  # whatever a reader does not expect is not what was asked for
            return self._trouble(
                "malformed", f"the reply is not as expected ({type(error).__name__}: {error})"
            )
        return Got(value, *_about(found))

    def _refused(self, response: ClientResponse, body: bytes) -> Trouble:
        headers, status = response.headers, response.status
        said, code = _explanation(self._parse, body)
        said = self._shown(said)
        if 300 <= status < 400 or status < 200:
            where = self._shown(headers.get("Location", "nowhere"))
            return Trouble(
                "final", f"{status_text(status)}: the server redirects to {where}; give that address"
            )
        if status == 429 and code == USED_UP:
            return Trouble("final", f"{status_text(status)}: the account's quota is used up", status, said)
        if status < 300:
            return Trouble("malformed", f"{status_text(status)} where 200 was expected", status, said)
        wait = retry_after(headers.get("Retry-After"), headers.get("Date"), self._clock.wall())
        return Trouble("status", status_text(status), status, said, wait)

    def _trouble(self, what: What, text: str) -> Trouble:
        return Trouble(what, self._shown(text))

    def _shown(self, text: str) -> str:
        # The key goes first: cut, it would not be found.
        found = self._key.removed(text)
        return found if len(found) <= LONGEST_SAID else found[:LONGEST_SAID] + "…"


def require() -> None:
    """Raise ``CheckpointError`` where aiohttp is missing."""
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        raise CheckpointError(
            "a served model needs aiohttp, which is not installed: pip install 'pytest-touchstone[http]'"
        ) from None


async def _body(response: ClientResponse) -> bytes | None:
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
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _json() -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    """Return the quickest functions at hand that read and write JSON: those of pydantic, which is needed anyway."""
    from pydantic_core import from_json, to_json

    def pack(body: Any) -> bytes:
        try:
            return to_json(body)
        except ValueError:  # half a surrogate pair, which is no UTF-8; escaped it can be sent
            return json.dumps(body).encode()

    return from_json, pack


def _about(found: Any) -> tuple[dict[str, int], str | None, str | None]:
    """Return what a reply says about itself, as far as it is sound: tokens, the system's fingerprint, the model."""
    if not isinstance(found, dict):
        return {}, None, None
    usage = found.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    whole = {name: counts[name] for name in TOKENS if type(counts.get(name)) is int and counts[name] >= 0}
    fingerprint, model = found.get("system_fingerprint"), found.get("model")
    return (
        whole,
        fingerprint if isinstance(fingerprint, str) else None,
        model if isinstance(model, str) else None,
    )


def _explanation(parse: Callable[[bytes], Any], body: bytes) -> tuple[str, str]:
    """Return the explanation and the code in the body of a refusal: OpenAI's form, FastAPI's, or any text."""
    try:
        found = parse(body)
    except ValueError:
        return body[: 4 * LONGEST_SAID].decode("utf-8", "replace"), ""
    code = ""
    if isinstance(found, dict):
        inner = found.get("error", found)
        if isinstance(inner, dict):
            code = str(inner.get("code") or inner.get("type") or "")
            found = inner.get("message", inner.get("detail", inner))
        else:
            found = inner
    return (found if isinstance(found, str) else json.dumps(found)[: 4 * LONGEST_SAID]), code


def _why(error: Exception) -> str:
    """Return in a few words why there was no reply, without the library's words for it where they say less."""
    from aiohttp import ClientConnectorDNSError, ClientPayloadError, ServerDisconnectedError

    if isinstance(error, ClientConnectorDNSError):
        return "the host's name is not known"
    if isinstance(error, ClientPayloadError):
        return "the connection broke within the reply"
    if isinstance(error, ServerDisconnectedError):
        return "the connection broke before the reply"
    number = getattr(getattr(error, "os_error", error), "errno", None)
    return BY_NUMBER.get(number or 0) or f"{type(error).__name__}: {error}"


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
