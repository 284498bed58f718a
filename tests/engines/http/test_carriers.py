"""What carries requests, against a server that answers byte by byte as it is told."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_touchstone.engines.http import plain_carrier
from pytest_touchstone.engines.http.aiohttp_carrier import AiohttpCarrier
from pytest_touchstone.engines.http.exchange import Broken, Carrier, Raw, words
from pytest_touchstone.engines.http.plain_carrier import PlainCarrier
from tests.support.scripted_server import Scripted, scripted

Opener = Callable[[str], Carrier]

LARGEST = 1000

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
CUT = b"Content-Length: 100\r\n\r\nonly this"


def plain_of(base: str) -> Carrier:
    return PlainCarrier(base, {"X-Told": "yes"}, LARGEST)


def library_of(base: str) -> Carrier:
    return AiohttpCarrier(base, {"X-Told": "yes"}, LARGEST, None)


both = pytest.mark.parametrize("opened", [plain_of, library_of], ids=["plain", "library"])


def asked(opened: Opener, server: Scripted, times: int = 1) -> list[Raw | str]:
    """The replies to requests one after the other, or why there was none."""

    async def main() -> list[Raw | str]:
        carrier = opened(server.base + "/pre fix")
        found: list[Raw | str] = []
        for number in range(times):
            try:
                found.append(await carrier.ask("/v1/it", None if number % 2 else b"[1]"))
            except Broken as error:
                found.append(str(error))
            await asyncio.sleep(0.02)
        await carrier.close()
        return found

    return asyncio.run(main())


def bodies(found: list[Raw | str]) -> list[object]:
    return [one.body if isinstance(one, Raw) else one for one in found]


@both
def test_data_are_posted_and_without_any_it_is_a_get_on_the_same_connection(opened: Opener) -> None:
    with scripted(GOOD, GOOD, GOOD) as server:
        assert bodies(asked(opened, server, 3)) == [b"good"] * 3
    post, get, _ = (one.lower() for one in server.asked)
    assert post.startswith(b"post /pre%20fix/v1/it http/1.1\r\nhost: 127.0.0.1:")
    assert post.endswith(b"[1]")
    assert get.startswith(b"get /pre%20fix/v1/it http/1.1\r\n")
    assert all(b"x-told: yes\r\n" in one for one in (post, get))
    assert server.connections == 1


@both
@pytest.mark.parametrize(
    ("reply", "connections"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ngo\r\n2\r\nod\r\n0\r\n\r\n", 1),
        (b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + GOOD, 1),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood", 2),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ngood", 2),
    ],
    ids=["chunks", "interim", "closing", "old"],
)
def test_a_whole_reply_of_any_form_is_read_and_its_connection_is_used_on_where_it_may_be(
    opened: Opener, reply: bytes, connections: int
) -> None:
    with scripted(reply, GOOD) as server:
        first, second = asked(opened, server, 2)
    assert bodies([first, second]) == [b"good", b"good"]
    assert isinstance(first, Raw)
    assert first.status == 200
    assert server.connections == connections


@both
def test_a_reply_without_a_length_ends_with_its_connection(opened: Opener) -> None:
    with scripted(b"HTTP/1.1 200 OK\r\n\r\ngood", b"", GOOD) as server:
        assert bodies(asked(opened, server, 2)) == [b"good", b"good"]


@both
@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "the connection broke before the reply"),
        (b"HTTP/1.1 200 OK\r\n" + CUT, "the connection broke within the reply"),
    ],
)
def test_a_reply_that_breaks_off_is_none_and_the_next_request_has_another_connection(
    opened: Opener, sent: bytes, why: str
) -> None:
    with scripted(sent, b"", GOOD) as server:
        assert bodies(asked(opened, server, 2)) == [why, b"good"]


@both
def test_a_refusal_that_breaks_off_keeps_its_status_and_how_long_to_wait(opened: Opener) -> None:
    with scripted(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n" + CUT, b"") as server:
        (found,) = asked(opened, server)
    assert isinstance(found, Raw)
    assert (found.status, found.headers.get("retry-after"), found.body) == (429, "7", b"")


@both
@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n" + 5000 * b"x" + b"\r\n0\r\n\r\n",
    ],
    ids=["said", "seen"],
)
def test_a_reply_beyond_the_limit_has_no_content(opened: Opener, reply: bytes) -> None:
    with scripted(reply, b"", GOOD) as server:
        assert bodies(asked(opened, server, 2)) == [None, b"good"]


@both
def test_what_is_no_http_is_no_reply(opened: Opener) -> None:
    with scripted(b"+OK POP3 server ready\r\n\r\n", b"", GOOD) as server:
        first, second = bodies(asked(opened, server, 2))
    assert isinstance(first, str)
    assert "\n" not in first
    assert second == b"good"


@pytest.mark.parametrize("more", [GOOD, b"HTTP/1.1 2", b"\x00"])
def test_bytes_that_nobody_asked_for_are_no_reply_to_the_next_request(more: bytes) -> None:
    with scripted(GOOD + more, GOOD.replace(b"good", b"next")) as server:
        assert bodies(asked(plain_of, server, 2)) == [b"good", b"next"]
    assert server.connections == 2


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_carrier, "IDLE_SECONDS", 0.001)
    with scripted(GOOD, GOOD) as server:
        asked(plain_of, server, 2)
    assert server.connections == 2


@both
def test_a_request_that_is_given_up_at_any_turn_leaves_no_connection_open(opened: Opener) -> None:
    """A connection that is just being made, too, however far it is."""

    async def main() -> None:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            for turns in range(30):
                carrier = opened(f"http://127.0.0.1:{port}")
                asking = asyncio.create_task(carrier.ask("/", b"[1]"))
                for _ in range(turns):
                    await asyncio.sleep(0.0002 if turns % 2 else 0)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                await carrier.close()
                await asyncio.sleep(0.001)
                left = [
                    one for one in (int(path.name) for path in Path("/dev/fd").iterdir()) if led_to(one, port)
                ]
                assert not left, f"given up after {turns} turns"

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read(-1)
        writer.close()

    def led_to(number: int, port: int) -> bool:
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                return False
            with socket.socket(fileno=os.dup(number)) as one:
                return bool(one.getpeername()[1:2] == (port,))
        except OSError:  # closed meanwhile, or not connected
            return False

    asyncio.run(main())


def test_the_reason_that_all_addresses_of_a_host_share_is_told_once() -> None:
    both_addresses = OSError(
        "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] Connect call failed "
        "('127.0.0.1', 1)"
    )
    assert words(both_addresses) == "connection refused: nothing listens there"
