"""One attempt: replies that are no answer, those that are one all the same, and replies byte by byte."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.engines.http import wire
from pytest_touchstone.engines.http.calls import Call, CallLimits, CallReply, Failure
from pytest_touchstone.engines.http.pacing import Trouble
from pytest_touchstone.engines.http.server import Key, key_of
from pytest_touchstone.engines.http.wire import Clock, Wire
from tests.engines.http.test_transport import SECRET, question, transport
from tests.support.fault_server import FaultServer, Scripted, scripted

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
CUT = b"Content-Length: 100\r\n\r\nonly this"


@pytest.mark.parametrize(
    ("error", "requests", "reason"),
    [
        (
            {"message": f"up\n {SECRET} \x1b[31m", "code": 429},
            2,
            "(code 429) in place of an answer, after 2 attempts",
        ),
        (
            {"message": f"{'long ' * 999}", "code": 404},
            1,
            "(code 404) in place of an answer; not asked again",
        ),
        ("no money", 2, "HTTP 200 with an error in place of an answer, after 2 attempts"),
    ],
)
def test_an_error_with_status_200_is_no_answer_and_its_words_are_passed_on(
    error: Any, requests: int, reason: str
) -> None:
    choice = {"index": 0, "text": "", "finish_reason": "stop"}
    told = {"choices": [choice], "error": error}
    with (
        FaultServer(always=lambda *_: "400", replies={"400": (200, told)}) as server,
        transport(server, CallLimits(attempts=2), key_of({"OPENAI_API_KEY": SECRET})) as asking,
    ):
        end = asking.ask(question())
        assert asking.stats.requests == requests
    assert isinstance(end, Failure)
    assert reason in end.reason
    assert "; the server says: " in end.reason
    assert len(end.reason) < 500
    assert end.reason.isprintable()
    assert SECRET not in end.reason


def test_a_byte_order_mark_before_json_is_passed_over() -> None:
    good = b'HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n\xef\xbb\xbf{"choices": [5]}'
    with scripted(good) as server, transport(server.base) as asking:
        end = asking.ask(Call("/v1/completions", {}, lambda found: found["choices"][0]))
    assert isinstance(end, CallReply)
    assert end.value == 5


# Replies byte by byte


def asked(
    server: Scripted, times: int = 1, environment: Mapping[str, str] | None = None
) -> list[str | Trouble]:
    """The texts of replies to requests one after the other, or why there was none."""

    async def main() -> list[str | Trouble]:
        own = Wire(server.base + "/pre fix", key_of(environment or {}), Clock())
        found: list[str | Trouble] = []
        for number in range(times):
            body = None if number % 2 else {"n": 1}
            outcome = await own.send(Call("/v1/it", body, str, text=True), 10)
            found.append(outcome if isinstance(outcome, Trouble) else outcome.value)
            await asyncio.sleep(0.02)
        await own.close()
        return found

    return asyncio.run(main())


def test_data_are_posted_and_without_any_it_is_a_get_on_the_same_connection() -> None:
    with scripted(GOOD, GOOD, GOOD) as server:
        assert asked(server, 3, {"TOUCHSTONE_API_KEY": SECRET}) == ["good"] * 3
    post, get, _ = (one.lower() for one in server.asked)
    assert post.startswith(b"post /pre%20fix/v1/it http/1.1\r\nhost: 127.0.0.1:")
    assert post.endswith(b'{"n":1}')
    assert get.startswith(b"get /pre%20fix/v1/it http/1.1\r\n")
    assert all(f"authorization: bearer {SECRET}".encode() in one for one in (post, get))
    assert server.connections == 1


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
    reply: bytes, connections: int
) -> None:
    with scripted(reply, GOOD) as server:
        assert asked(server, 2) == ["good", "good"]
    assert server.connections == connections


def test_a_reply_without_a_length_ends_with_its_connection() -> None:
    with scripted(b"HTTP/1.1 200 OK\r\n\r\ngood", b"", GOOD) as server:
        assert asked(server, 2) == ["good", "good"]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "the connection broke before the reply"),
        (b"HTTP/1.1 200 OK\r\n" + CUT, "the connection broke within the reply"),
    ],
)
def test_a_reply_that_breaks_off_is_none_and_the_next_request_has_another_connection(
    sent: bytes, why: str
) -> None:
    with scripted(sent, b"", GOOD) as server:
        assert asked(server, 2) == [Trouble("connection", why), "good"]


def test_a_refusal_that_breaks_off_keeps_its_status_and_how_long_to_wait() -> None:
    with scripted(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n" + CUT, b"") as server:
        (found,) = asked(server)
    assert found == Trouble("status", "HTTP 429 (too many requests)", 429, wait=7.0)


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n" + 5000 * b"x" + b"\r\n0\r\n\r\n",
    ],
    ids=["said", "seen"],
)
def test_a_reply_beyond_the_limit_is_not_read(reply: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LARGEST_REPLY", 1000)
    with scripted(reply, b"", GOOD) as server:
        large, good = asked(server, 2)
    assert isinstance(large, Trouble)
    assert (large.what, large.text[:24], good) == ("final", "the reply has more than ", "good")


@pytest.mark.parametrize(
    "reply",
    [
        b"+OK POP3 server ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + 3000 * b"X-Again: yes\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + 100_000 * b"x",
    ],
    ids=["other", "many headers", "long header"],
)
def test_what_is_no_http_or_has_a_head_without_end_is_no_reply(reply: bytes) -> None:
    with scripted(reply, b"", GOOD) as server:
        first, second = asked(server, 2)
    assert isinstance(first, Trouble)
    assert (first.what, first.text[:21], second) == ("connection", "the reply is no HTTP ", "good")
    assert first.text.isprintable()
    assert len(first.text) <= wire.LONGEST_SAID + 1


@pytest.mark.parametrize("more", [GOOD, b"HTTP/1.1 2", b"\x00"])
def test_bytes_that_nobody_asked_for_are_no_reply_to_the_next_request(more: bytes) -> None:
    with scripted(GOOD + more, GOOD.replace(b"good", b"next")) as server:
        first, second = asked(server, 2)
    assert first == "good" or isinstance(first, Trouble)  # then it is asked again
    assert second == "next"


def test_a_reply_that_comes_while_the_connection_is_idle_is_none_to_the_next_request() -> None:
    async def main() -> list[object]:
        more = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(GOOD.replace(b"good", b"next") if more.is_set() else GOOD)
                await more.wait()
                writer.write(GOOD.replace(b"good", b"evil"))
                await reader.read(-1)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            own = Wire(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", Key(), Clock())
            found = [await own.send(Call("/", None, str, text=True), 10)]
            more.set()
            await asyncio.sleep(0.05)
            found.append(await own.send(Call("/", None, str, text=True), 10))
            await own.close()
            await asyncio.sleep(0.02)  # for the server to see that
        return [one.value if isinstance(one, CallReply) else one for one in found]

    assert asyncio.run(main()) == ["good", "next"]


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "IDLE_SECONDS", 0.001)
    with scripted(GOOD, GOOD) as server:
        asked(server, 2)
    assert server.connections == 2


def test_a_request_that_is_given_up_at_any_turn_leaves_no_connection_open() -> None:
    """A connection that is just being made, too, however far it is."""

    async def main() -> None:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            for turns in range(30):
                own = Wire(f"http://127.0.0.1:{port}", Key(), Clock())
                asking = asyncio.create_task(own.send(Call("/", {}, str, text=True), 10))
                for _ in range(turns):
                    await asyncio.sleep(0.0002 if turns % 2 else 0)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                await own.close()
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
