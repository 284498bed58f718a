"""One attempt: replies that are no answer, those that are one all the same, replies byte by byte, keys and proxies."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.core.errors import CheckpointError, ServerError
from pytest_touchstone.engines.http import calls, http_client
from pytest_touchstone.engines.http.calls import Call, CallLimits, CallReply, FailedAttempt
from pytest_touchstone.engines.http.engine import HttpFactory
from pytest_touchstone.engines.http.http_client import HttpClient, Outcome
from pytest_touchstone.engines.http.server import ApiKey, key_from_environment
from pytest_touchstone.engines.http.transport import HttpTransport
from tests.support.asking import generated
from tests.support.fault_server import LONG_WAIT, MODEL, FaultServer, Scripted, scripted, text_of
from tests.support.lines import naming

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
CUT = b"Content-Length: 100\r\n\r\nonly this"

SECRET = "tk-very-secret-0123456789"

QUESTION: Call[Any] = generated(0, "why", chat=False)[0]


def sent(base: str, *calls: Call[Any], environment: Mapping[str, str] | None = None) -> list[Outcome[Any]]:
    """The outcomes of calls that are sent once, one after the other."""

    async def main() -> list[Outcome[Any]]:
        attempts = HttpClient(base, key_from_environment(environment or {}))
        outcomes = []
        for call in calls:
            outcomes.append(await attempts.send(call, 10))
            await asyncio.sleep(0.02)
        await attempts.close()
        return outcomes

    return asyncio.run(main())


def trouble(base: str, call: Call[Any] = QUESTION, **options: Any) -> FailedAttempt:
    (outcome,) = sent(base, call, **options)
    assert isinstance(outcome, FailedAttempt)
    return outcome


def test_a_reply_brings_its_usage_and_its_fingerprint() -> None:
    with FaultServer() as server:
        (reply,) = sent(server.base, QUESTION)
    usage = {"prompt_tokens": 8, "completion_tokens": 4}
    assert reply == CallReply(text_of("why"), usage, f"fp_{MODEL}")


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("400", FailedAttempt("status", "HTTP 400 (bad request)", 400, "too long for this model")),
        ("500", FailedAttempt("status", "HTTP 500 (internal server error)", 500, "Internal Server Error")),
        ("529", FailedAttempt("status", "HTTP 529", 529, "overloaded")),
        ("429 seconds", FailedAttempt("status", "HTTP 429 (too many requests)", 429, "slow down", 0.02)),
        ("429 date", FailedAttempt("status", "HTTP 429 (too many requests)", 429, "slow down", 1.0)),
        ("429 long", FailedAttempt("status", "HTTP 429 (too many requests)", 429, "tomorrow", LONG_WAIT)),
        ("reset", FailedAttempt("connection", "the connection broke before the reply")),
        ("reset within", FailedAttempt("connection", "the connection broke within the reply")),
        ("no choices", FailedAttempt("malformed", "the reply has no choices")),
        ("null content", FailedAttempt("malformed", "the reply has no text")),
        ("other model", FailedAttempt("malformed", "the reply is not of the model that was asked")),
        ("no json", FailedAttempt("malformed", "the reply is a web page and no JSON")),
        ("truncated", FailedAttempt("malformed", "the reply is no JSON (")),
        (
            "of us",
            FailedAttempt(
                "final", "HTTP 429 (too many requests): the account's quota is used up", 429, "no money"
            ),
        ),
        ("created", FailedAttempt("malformed", "HTTP 201 (created) where 200 was expected", 201, "{}")),
    ],
)
def test_each_fault_is_named(fault: str, outcome: FailedAttempt) -> None:
    used_up = {"error": {"message": "no money", "code": "insufficient_quota"}}
    with FaultServer(always=fault, replies={"of us": (429, used_up), "created": (201, {})}) as server:
        found = trouble(server.base)
    text = found.text[: len(outcome.text)]
    assert FailedAttempt(found.kind, text, found.status, found.server_message, found.wait) == outcome


def test_what_a_reader_does_not_expect_is_malformed_and_no_answer() -> None:
    with FaultServer() as server:
        found = trouble(
            server.base, Call("/v1/completions", {"prompt": "x"}, lambda reply: reply["choices"][3])
        )
    assert found.kind == "malformed"
    assert "IndexError" in found.text


@pytest.mark.parametrize(
    ("error", "what", "text"),
    [
        (
            {"message": f"up\n {SECRET} \x1b[31m", "code": 429},
            *("malformed", "HTTP 200 with an error (code 429) in place of an answer"),
        ),
        (
            {"message": f"{'long ' * 999}", "code": 404},
            *("final", "HTTP 200 with an error (code 404) in place of an answer"),
        ),
        ("no money", "malformed", "HTTP 200 with an error in place of an answer"),
    ],
)
def test_an_error_with_status_200_is_no_answer_and_its_words_are_passed_on(
    error: Any, what: str, text: str
) -> None:
    reply = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "error": error}
    with FaultServer(always="400", replies={"400": (200, reply)}) as server:
        found = trouble(server.base, environment={"OPENAI_API_KEY": SECRET})
    assert (found.kind, found.text) == (what, text)
    assert 0 < len(found.server_message) < 400
    assert found.server_message.isprintable()
    assert SECRET not in found.server_message


def test_a_redirect_is_not_followed_and_the_key_stays_with_its_host() -> None:
    with FaultServer() as other, FaultServer(redirect=f"{other.base}/v1/completions") as server:
        found = trouble(server.base, environment={"OPENAI_API_KEY": SECRET})
        assert found == FailedAttempt("final", found.text)
        assert naming("HTTP 307", f"{other.base}/v1/completions").search(found.text)
        assert not other.headers
        assert server.headers[0]["authorization"] == f"Bearer {SECRET}"


def test_a_compressed_reply_is_not_unpacked() -> None:
    with FaultServer(extra={"content-encoding": "gzip"}) as server:
        found = trouble(server.base)
        assert server.headers[0]["accept-encoding"] == "identity"
    assert found.kind == "final"
    assert naming("gzip").search(found.text)


@pytest.mark.parametrize("rest", [b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", CUT])
def test_a_refusal_that_cannot_be_read_keeps_its_status_and_how_long_to_wait(rest: bytes) -> None:
    with scripted(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n" + rest, b"") as server:
        found = trouble(server.base)
    assert found == FailedAttempt("status", "HTTP 429 (too many requests)", 429, wait=7.0)


def test_half_a_surrogate_pair_reaches_the_server_as_it_is() -> None:
    with FaultServer() as server:
        sent(server.base, Call("/v1/completions", {"model": MODEL, "prompt": "\ud83d"}, bool))
    assert [prompt for prompt in server.asked if "\\ud83d" in prompt]


def test_a_byte_order_mark_before_json_is_passed_over() -> None:
    good = b'HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n\xef\xbb\xbf{"choices": [5]}'
    with scripted(good) as server:
        assert sent(server.base, Call("/", {}, lambda reply: reply["choices"])) == [CallReply([5])]


def test_an_address_that_is_none_is_a_failure_in_one_line() -> None:
    for base in ("http://a..b", "nothing://h"):
        assert "\n" not in trouble(base).text


# Keys and proxies


def test_a_key_is_in_no_failure_error_log_or_repr(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "FIRST_PAUSE", 0.01)
    caplog.set_level(logging.DEBUG)
    key = key_from_environment({"OPENAI_API_KEY": SECRET})
    texts: list[object] = []
    with FaultServer(key="another") as server:
        asking = HttpTransport(server.base, CallLimits(gone_seconds=0.2), key)
        texts += [asking.ask([QUESTION]), repr(asking), repr(key), asking.troubles]
        server.vanish()
        with pytest.raises(ServerError) as raised:
            asking.run([QUESTION] * 50, lambda *end: texts.append(end))
        asking.close()
        texts += [raised.value, caplog.text]
    assert "Bearer [OPENAI_API_KEY]" in str(texts[0])
    assert SECRET not in "\n".join(f"{text} {text!r}" for text in texts)
    traceback = raised.getrepr(showlocals=True, style="long", chain=True)
    assert SECRET not in str(traceback)


def test_nothing_that_listens_is_said() -> None:
    with FaultServer() as server:
        base = server.base
    assert trouble(base) == FailedAttempt(
        "connection", "connection refused: nothing listens there", unsent=True
    )


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with FaultServer() as server:
        assert isinstance(sent(server.base, QUESTION)[0], CallReply)


def test_other_servers_are_asked_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = "http://models.example:8000"
    with FaultServer() as server:
        monkeypatch.setenv("http_proxy", server.base)
        assert isinstance(sent(base, QUESTION)[0], CallReply)
        assert server.headers[0]["path"] == f"{base}/v1/completions"
        monkeypatch.setenv("no_proxy", "example")
        found = trouble(base)
        assert found == FailedAttempt("connection", found.text, unsent=True)
        assert "name" in found.text


def test_a_proxy_that_does_not_speak_http_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
    with pytest.raises(CheckpointError, match=naming("socks5", "http")):
        HttpClient("http://models.example", ApiKey())


def test_a_library_that_is_missing_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(CheckpointError, match=r"needs aiohttp.*pip install 'pytest-touchstone\[http\]'"):
        HttpFactory().inspect(Path(), CheckpointRequest("http://h:1"))


# Replies byte by byte


def asked(
    server: Scripted, times: int = 1, environment: Mapping[str, str] | None = None
) -> list[str | FailedAttempt]:
    """The texts of replies to requests one after the other, or why there was none."""
    calls = [Call("/v1/it", None if number % 2 else {"n": 1}, str, text=True) for number in range(times)]
    outcomes = sent(server.base + "/pre fix", *calls, environment=environment)
    return [outcome if isinstance(outcome, FailedAttempt) else outcome.value for outcome in outcomes]


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
    ("part", "why"),
    [
        (b"", "the connection broke before the reply"),
        (b"HTTP/1.1 200 OK\r\n" + CUT, "the connection broke within the reply"),
    ],
)
def test_a_reply_that_breaks_off_is_none_and_the_next_request_has_another_connection(
    part: bytes, why: str
) -> None:
    with scripted(part, b"", GOOD) as server:
        assert asked(server, 2) == [FailedAttempt("connection", why), "good"]


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n" + 5000 * b"x" + b"\r\n0\r\n\r\n",
    ],
    ids=["said", "seen"],
)
def test_a_reply_beyond_the_limit_is_not_read(reply: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_REPLY_BYTES", 1000)
    with scripted(reply, b"", GOOD) as server:
        large, good = asked(server, 2)
    assert isinstance(large, FailedAttempt)
    assert (large.kind, large.text[:24], good) == ("final", "the reply has more than ", "good")


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
    assert isinstance(first, FailedAttempt)
    assert (first.kind, first.text[:21], second) == ("connection", "the reply is no HTTP ", "good")
    assert first.text.isprintable()
    assert len(first.text) <= http_client.MAX_SHOWN + 1


@pytest.mark.parametrize("more", [GOOD, b"HTTP/1.1 2", b"\x00"])
def test_bytes_that_nobody_asked_for_are_no_reply_to_the_next_request(more: bytes) -> None:
    with scripted(GOOD + more, GOOD.replace(b"good", b"next")) as server:
        first, second = asked(server, 2)
    assert first == "good" or isinstance(first, FailedAttempt)  # then it is asked again
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
            own = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", ApiKey())
            found = [await own.send(Call("/", None, str, text=True), 10)]
            more.set()
            await asyncio.sleep(0.05)
            found.append(await own.send(Call("/", None, str, text=True), 10))
            await own.close()
            await asyncio.sleep(0.02)  # for the server to see that
        return [one.value if isinstance(one, CallReply) else one for one in found]

    assert asyncio.run(main()) == ["good", "next"]


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "IDLE_SECONDS", 0.001)
    with scripted(GOOD, GOOD) as server:
        asked(server, 2)
    assert server.connections == 2


def test_a_request_that_is_given_up_at_any_turn_leaves_no_connection_open() -> None:
    """A connection that is just being made, too, however far it is."""

    async def main() -> None:
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            for turns in range(30):
                own = HttpClient(f"http://127.0.0.1:{port}", ApiKey())
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
