"""HTTP through aiohttp: over TLS, and through a proxy. Everything that needs aiohttp is here.

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

from collections.abc import Mapping

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
    TCPConnector,
)

from pytest_touchstone.engines.http.exchange import (
    BROKE_BEFORE,
    BROKE_WITHIN,
    BY_NUMBER,
    CONNECT_SECONDS,
    IDLE_SECONDS,
    NO_CONNECTION,
    UNKNOWN_HOST,
    Broken,
    Hopeless,
    Raw,
)


class AiohttpCarrier:
    """The connections to one server, in one event loop."""

    def __init__(self, base: str, headers: Mapping[str, str], largest: int, proxy: str | None) -> None:
        """``base`` is the server's address, and ``headers`` go with every request."""
        self._base, self._largest, self._proxy = base, largest, proxy
        # The queue bounds the connections.
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            headers=headers,
            auto_decompress=False,
        )

    async def ask(self, path: str, data: bytes | None) -> Raw:
        """Return the reply to a request: a POST of data, and a GET where that is None."""
        try:
            return await self._reply(path, data)
        except TimeoutError:
            raise Broken(NO_CONNECTION) from None
        except (ClientConnectorCertificateError, InvalidURL, UnicodeError) as error:
            raise Hopeless(f"{type(error).__name__}: {error}") from None
        except (ClientError, OSError) as error:
            raise Broken(_why(error)) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _reply(self, path: str, data: bytes | None) -> Raw:
        method = "GET" if data is None else "POST"
        async with self._session.request(
            method, self._base + path, data=data, allow_redirects=False, proxy=self._proxy
        ) as response:
            try:
                body = await self._body(response)
            except (ClientError, OSError):
                if response.status == 200:
                    raise
                body = b""  # the status says enough
            if body is None:
                response.close()
            return Raw(response.status, response.headers, body)

    async def _body(self, response: ClientResponse) -> bytes | None:
        """Return the content of a reply, None where it is too large."""
        if (response.content_length or 0) > self._largest:
            return None
        parts: list[bytes] = []
        size = 0
        while part := await response.content.readany():
            parts.append(part)
            size += len(part)
            if size > self._largest:
                return None
        return b"".join(parts)


def _why(error: Exception) -> str:
    """Return in a few words why there was no reply, without the library's words for it where they say less."""
    if isinstance(error, ClientConnectorDNSError):
        return UNKNOWN_HOST
    if isinstance(error, ClientPayloadError):
        return BROKE_WITHIN
    if isinstance(error, ServerDisconnectedError):
        return BROKE_BEFORE
    number = getattr(getattr(error, "os_error", error), "errno", None)
    return BY_NUMBER.get(number or 0) or f"{type(error).__name__}: {error}"
