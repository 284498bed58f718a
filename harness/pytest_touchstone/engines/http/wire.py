"""One attempt: a call over HTTP, and a value or a trouble for it.

The request is carried by ``plain_carrier`` where its server is asked without TLS and without a proxy, else by
``aiohttp_carrier``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.http import explanations
from pytest_touchstone.engines.http.calls import TOKENS, Call, Malformed, Server
from pytest_touchstone.engines.http.clock import Clock
from pytest_touchstone.engines.http.exchange import Broken, Carrier, Hopeless, Raw
from pytest_touchstone.engines.http.keys import Key
from pytest_touchstone.engines.http.retry import AGAIN, Trouble, What, retry_after, status_text

T = TypeVar("T")

LARGEST_REPLY: Final = 64 << 20
"""The bytes that a reply may have: log-probabilities of a prompt of 100,000 tokens are about 10 MB."""

LONGEST_SAID: Final = 300
"""The characters of a server's explanation that are kept."""

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
        """Raises ``CheckpointError`` where a library is missing, or the environment's proxy cannot be used."""
        self._server, self._key, self._clock = server, key, clock
        self._proxy = _proxy(server.base)
        self._plain = server.base.startswith("http://") and self._proxy is None
        require("httptools" if self._plain else "aiohttp")
        self._carrier: Carrier | None = None
        self._parse, self._pack = _json()

    async def close(self) -> None:
        """Close all connections."""
        if self._carrier is not None:
            await self._carrier.close()
            self._carrier = None

    async def send(self, call: Call[T], seconds: float) -> Outcome[T]:
        """Return what came of sending a call once; ``seconds`` are by this wire's clock. Raises nothing."""
        try:
            async with asyncio.timeout(self._clock.real(seconds)):
                return await self._exchange(call)
        except TimeoutError:
            return Trouble("time", f"no reply within {seconds:.3g} s")
        except Hopeless as error:
            return self._trouble("final", str(error))
        except Broken as error:
            return self._trouble("connection", str(error))

    async def _exchange(self, call: Call[T]) -> Outcome[T]:
        carrier = self._carrier or self._open()
        data = None if call.body is None else self._pack(call.body)
        reply = await carrier.ask(call.path, data)
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

    def _open(self) -> Carrier:
        # Compressed replies would cost more time than they save on most networks.
        headers = (
            {"User-Agent": "pytest-touchstone", "Accept": "application/json", "Accept-Encoding": "identity"}
            | {"Content-Type": "application/json"}
            | dict(self._server.headers)
            | self._key.headers()
        )
        if self._plain:
            from pytest_touchstone.engines.http.plain_carrier import PlainCarrier

            self._carrier = PlainCarrier(self._server.base, headers, LARGEST_REPLY)
        else:
            from pytest_touchstone.engines.http.aiohttp_carrier import AiohttpCarrier

            self._carrier = AiohttpCarrier(self._server.base, headers, LARGEST_REPLY, self._proxy)
        return self._carrier

    def _read(self, call: Call[T], body: bytes) -> Outcome[T]:
        try:
            found = body.decode() if call.text else self._parse(body.removeprefix(explanations.BOM))
        except ValueError as error:
            return self._trouble("malformed", explanations.not_json(body, error))
        if (told := explanations.within(found)) is not None:
            return self._failed(told)
        try:
            value = call.read(found)
        except Malformed as error:
            said = explanations.in_place_of(found)
            return self._trouble("final" if error.final else "malformed", str(error), said)
        except Exception as error:  # whatever a reader does not expect is not what was asked for
            return self._trouble(
                "malformed", f"the reply is not as expected ({type(error).__name__}: {error})"
            )
        return Got(value, *_about(found))

    def _refused(self, reply: Raw, body: bytes) -> Trouble:
        headers, status = reply.headers, reply.status
        said, code = explanations.of_refusal(self._parse, body)
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

    def _failed(self, told: explanations.Explanation) -> Trouble:
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


def require(library: str) -> None:
    """Raise ``CheckpointError`` where a library is missing."""
    if find_spec(library) is None:
        raise CheckpointError(
            f"a served model needs {library}, which is not installed: pip install 'pytest-touchstone[http]'"
        )


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
