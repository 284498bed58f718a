"""The transport against a server that fails on purpose."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.core.errors import CheckpointError, ServerError
from pytest_touchstone.engines.http import wire
from pytest_touchstone.engines.http.calls import Call, CallLimits, CallReply, Failure, Malformed
from pytest_touchstone.engines.http.engine import HttpFactory
from pytest_touchstone.engines.http.server import Key, key_of
from pytest_touchstone.engines.http.transport import HttpTransport
from pytest_touchstone.engines.http.wire import Clock
from tests.support.asking import ends_of, generated, mixed
from tests.support.fault_server import LONG_WAIT, MODEL, FaultServer, scripted, text_of

SPEED = 50
"""The seconds of the transport's clock in one of ours."""

SECRET = "tk-very-secret-0123456789"

PATIENT = CallLimits(attempt_seconds=30 * SPEED, item_seconds=600 * SPEED)
"""Limits whose time-outs do not depend on how busy this machine is."""

ONCE, TWICE = replace(PATIENT, attempts=1), replace(PATIENT, attempts=2)


@contextmanager
def transport(
    server: FaultServer | str,
    limits: CallLimits = PATIENT,
    key: Key | None = None,
    speed: float = SPEED,
    **options: Any,
) -> Iterator[HttpTransport]:
    """A transport to a server, in whose time waits are short."""
    base = server if isinstance(server, str) else server.base
    found = HttpTransport(base, limits, key or Key(), clock=Clock(speed), chance=Random(1), **options)
    try:
        yield found
    finally:
        found.close()


def question(text: str = "why") -> Call[str]:
    return generated(0, text, chat=False)[0]


def read(path: str) -> Call[Any]:
    return Call(path, None, lambda found: found)


def told(end: CallReply[Any] | Failure) -> object:
    """The value of an end, or the kind of its failure."""
    return end.value if isinstance(end, CallReply) else end.kind


def check_story(count: int, at: tuple[int, ...], speed: float) -> None:
    """Ask many calls while a fifth of the attempts fails, at several concurrencies: all end right or as a named
    failure."""
    calls, right = mixed(count)
    found = {}
    limits = CallLimits(attempt_seconds=0.25 * speed, item_seconds=600 * speed)
    for most in at:
        with (
            FaultServer(rate=0.2, seed=16, slow_seconds=5) as server,
            transport(server, replace(limits, concurrency_most=most), speed=speed) as asking,
        ):
            ends = ends_of(asking, calls)
            stats = asking.stats
            assert stats.requests == sum(server.asked.values()) == count + stats.retries
        wrong = [
            number
            for number, end in enumerate(ends)
            if isinstance(end, CallReply) and end.value != right[number]
        ]
        assert not wrong
        failures = [end for end in ends if isinstance(end, Failure)]
        assert all(end.reason and "\n" not in end.reason for end in failures)
        assert 0 < len(failures) < count / 50
        assert len(server.faults) > 18
        found[most] = [told(end) for end in ends]
    assert len(set(map(str, found.values()))) == 1, "the same at every concurrency"


def test_hundreds_of_calls_end_right_or_named_at_any_concurrency_while_a_fifth_of_attempts_fails() -> None:
    check_story(600, (1, 64), SPEED)


@pytest.mark.slow
def test_ten_thousand_calls_end_right_or_named_while_a_fifth_of_attempts_fails() -> None:
    check_story(10_000, (64,), 4 * SPEED)


def test_a_reply_brings_its_usage_its_model_and_its_fingerprint() -> None:
    with FaultServer() as server, transport(server) as asking:
        end = asking.ask(question())
    assert isinstance(end, CallReply)
    assert end.value == text_of("why")
    assert end.usage == {"prompt_tokens": 8, "completion_tokens": 4}
    assert (end.fingerprint, end.attempts) == (f"fp_{MODEL}", 1)
    assert (asking.stats.prompt_tokens, asking.stats.completion_tokens) == (8, 4)


def test_a_path_is_read_with_get() -> None:
    with FaultServer() as server, transport(server) as asking:
        found = asking.ask(read("/v1/models"))
        missing = asking.ask(read("/version"))
    assert isinstance(found, CallReply)
    assert found.value["data"][0]["id"] == MODEL
    assert missing == Failure(
        "HTTP 404 (not found); not asked again; the server says: Not Found", "refused", 404, "Not Found"
    )


def test_connections_are_kept_for_the_next_calls() -> None:
    with FaultServer() as server, transport(server, CallLimits(concurrency_most=4)) as asking:
        calls, _ = mixed(60)
        ends_of(asking, calls)
        ends_of(asking, calls)
        assert server.connections <= 4


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (
            "400",
            "refused",
            "HTTP 400 (bad request); not asked again; the server says: too long for this model",
        ),
        (
            "500",
            "server",
            "HTTP 500 (internal server error), after 2 attempts; the server says: Internal Server Error",
        ),
        ("529", "server", "HTTP 529, after 2 attempts; the server says: overloaded"),
        ("reset", "gone", "the connection broke before the reply, after 2 attempts"),
        ("reset within", "gone", "the connection broke within the reply, after 2 attempts"),
        ("no choices", "malformed", "the reply has no choices, after 2 attempts"),
        ("null content", "malformed", "the reply has no text, after 2 attempts"),
        ("other model", "malformed", "the reply is not of the model that was asked, after 2 attempts"),
    ],
)
def test_each_fault_that_stays_is_named(fault: str, kind: str, reason: str) -> None:
    with FaultServer(always=fault) as server, transport(server, TWICE) as asking:
        end = asking.ask(question())
    assert isinstance(end, Failure)
    assert (end.kind, end.reason) == (kind, reason)


@pytest.mark.parametrize(
    ("fault", "said"),
    [("truncated", "the reply is no JSON ("), ("no json", "the reply is a web page and no JSON")],
)
def test_a_reply_that_is_no_json_is_named(fault: str, said: str) -> None:
    with FaultServer(always=fault) as server, transport(server, TWICE) as asking:
        end = asking.ask(question())
    assert isinstance(end, Failure)
    assert end.reason.startswith(said)


def test_what_a_reader_does_not_expect_is_malformed_and_no_answer() -> None:
    def read(found: Any) -> Any:
        return found["choices"][3]["text"]

    with FaultServer() as server, transport(server, ONCE) as asking:
        end = asking.ask(Call("/v1/completions", {"prompt": "x"}, read))
    assert isinstance(end, Failure)
    assert end.reason.startswith("the reply is not as expected (IndexError")


def test_a_wait_longer_than_every_deadline_is_said_and_not_waited_for() -> None:
    with FaultServer(always="429 long") as server, transport(server) as asking:
        end = asking.ask(question())
    assert isinstance(end, Failure)
    assert end.kind == "limited"
    assert f"the server asks to wait {LONG_WAIT} s, which is past the item's 30000 s" in end.reason
    assert sum(server.asked.values()) == 1


@pytest.mark.parametrize("fault", ["429 seconds", "429 date", "503 seconds"])
def test_retry_after_is_kept_in_full(fault: str) -> None:
    times: list[float] = []

    def once(body: Any, attempt: int) -> str | None:
        times.append(time.monotonic())
        return fault if attempt == 0 else None

    with FaultServer(always=once) as server, transport(server) as asking:
        end = asking.ask(question())
    assert isinstance(end, CallReply)
    assert end.attempts == 2
    assert (times[1] - times[0]) * SPEED >= 1.0


def test_an_exhausted_quota_is_not_waited_for() -> None:
    told = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    with (
        FaultServer(always=lambda *_: "429", replies={"429": (429, told)}) as server,
        transport(server) as asking,
    ):
        end = asking.ask(question())
    assert isinstance(end, Failure)
    assert end.kind == "refused"
    assert "quota is used up" in end.reason


def test_a_redirect_is_not_followed_and_the_key_stays_with_its_host() -> None:
    key = key_of({"OPENAI_API_KEY": SECRET})
    with FaultServer() as other, FaultServer(redirect=f"{other.base}/v1/completions") as server:
        with transport(server, key=key) as asking:
            end = asking.ask(question())
        assert isinstance(end, Failure)
        assert end.kind == "refused"
        assert end.reason == (
            f"HTTP 307 (temporary redirect): the server redirects to {other.base}/v1/completions; give that address; "
            "not asked again"
        )
        assert not other.headers
        assert server.headers[0]["authorization"] == f"Bearer {SECRET}"


def test_a_reply_beyond_all_sizes_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LARGEST_REPLY", 1 << 20)
    with FaultServer(padding=2 << 20) as server, transport(server) as asking:
        end = asking.ask(question())
    assert isinstance(end, Failure)
    assert end.reason == "the reply has more than 1 MiB; not asked again"


def test_a_compressed_reply_is_not_unpacked() -> None:
    with FaultServer(extra={"content-encoding": "gzip"}) as server, transport(server) as asking:
        end = asking.ask(question())
        assert server.headers[0]["accept-encoding"] == "identity"
    assert isinstance(end, Failure)
    assert end.reason.startswith(
        "the reply is compressed (gzip), which was not asked for: switch that off at the"
    )


def test_a_compressed_refusal_is_waited_for_as_any_other() -> None:
    refusal = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Encoding: gzip\r\n"
    good = b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"choices": [5]}'
    with (
        scripted(refusal + b"Content-Length: 2\r\n\r\n\x1f\x8b", good) as server,
        transport(server.base) as asking,
    ):
        begun = time.monotonic()
        end = asking.ask(Call("/v1/completions", {}, lambda found: found["choices"][0]))
    assert isinstance(end, CallReply)
    assert (end.value, end.attempts) == (5, 2)
    assert (time.monotonic() - begun) * SPEED >= 60


def test_half_a_surrogate_pair_reaches_the_server_as_it_is() -> None:
    with FaultServer() as server, transport(server) as asking:
        end = asking.ask(Call("/v1/completions", {"model": MODEL, "prompt": "\ud83d"}, lambda found: True))
    assert isinstance(end, CallReply)
    assert [prompt for prompt in server.asked if "\\ud83d" in prompt]


# Keys


def test_a_key_is_in_no_failure_error_log_or_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = key_of({"OPENAI_API_KEY": SECRET})
    texts: list[object] = []
    with FaultServer(key="another") as server, transport(server, key=key) as asking:
        texts += [asking.ask(question()), repr(asking), repr(key), asking.stats]
        server.vanish()
        with pytest.raises(ServerError) as raised:
            asking.run([question(f"{number}") for number in range(50)], lambda *end: texts.append(end))
        texts += [raised.value, caplog.text]
    assert "Incorrect API key provided: Bearer [OPENAI_API_KEY]" in str(texts[0])
    assert SECRET not in "\n".join(f"{text} {text!r}" for text in texts)
    traceback = raised.getrepr(showlocals=True, style="long", chain=True)
    assert SECRET not in str(traceback)


def test_an_address_that_is_none_is_a_failure_in_one_line() -> None:
    for base in ("http://a..b", "nothing://h"):
        with transport(base, ONCE) as asking:
            end = asking.ask(read("/v1/models"))
        assert isinstance(end, Failure)
        assert "\n" not in end.reason


def test_nothing_that_listens_is_said_at_once_to_who_asks_once() -> None:
    with FaultServer() as server:
        base = server.base
    with transport(base, ONCE) as asking:
        end = asking.ask(read("/v1/models"))
    assert end == Failure("connection refused: nothing listens there, after 1 attempt", "gone")


# Proxies


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with FaultServer() as server, transport(server) as asking:
        assert isinstance(asking.ask(question()), CallReply)


def test_other_servers_are_asked_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FaultServer() as server:
        monkeypatch.setenv("http_proxy", server.base)
        with transport("http://models.example:8000") as asking:
            assert isinstance(asking.ask(question()), CallReply)
        assert server.headers[0]["path"] == "http://models.example:8000/v1/completions"
        monkeypatch.setenv("no_proxy", "example")
        with transport("http://models.example:8000", ONCE) as asking:
            end = asking.ask(question())
        assert isinstance(end, Failure)
        assert end.reason == "the host's name is not known, after 1 attempt"


def test_a_proxy_that_does_not_speak_http_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
    with pytest.raises(CheckpointError, match="a socks5 proxy, and only http ones can be used"):
        HttpTransport("http://models.example")


def test_a_library_that_is_missing_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(CheckpointError, match=r"needs aiohttp.*pip install 'pytest-touchstone\[http\]'"):
        HttpFactory().inspect(Path(), CheckpointRequest("http://h:1"))


# A server that goes and comes


def test_a_server_that_comes_back_is_asked_on_and_nothing_is_lost() -> None:
    calls, right = mixed(400)
    with FaultServer(delay=0.002) as server, transport(server) as asking:
        ends: dict[int, CallReply[Any] | Failure] = {}

        def done(number: int, end: CallReply[Any] | Failure) -> None:
            ends[number] = end
            if len(ends) == 100:
                server.vanish()
                threading.Timer(0.1, server.listen).start()

        asking.run(calls, done)
    assert [told(ends[number]) for number in range(400)] == right


def test_a_server_that_is_gone_stops_the_run_and_another_run_goes_on() -> None:
    calls, right = mixed(300)
    ends: dict[int, object] = {}
    with FaultServer(delay=0.002) as server:
        with transport(server, CallLimits(gone_seconds=5)) as asking:

            def done(number: int, end: CallReply[Any] | Failure) -> None:
                ends[number] = told(end)
                if len(ends) == 100:
                    server.vanish()

            with pytest.raises(ServerError) as raised:
                asking.run(calls, done)
        assert str(raised.value).endswith(
            f": {300 - len(ends)} calls without an answer; what is done is kept, and the same command goes on from "
            "there"
        )
        assert 100 <= len(ends) < 200
        server.listen()
        left = [number for number in range(300) if number not in ends]
        with transport(server) as asking:
            again = ends_of(asking, [calls[number] for number in left])
    ends |= {number: told(end) for number, end in zip(left, again, strict=True)}
    assert [ends[number] for number in range(300)] == right


# Ctrl-C


def pressing(asking: HttpTransport, calls: list[Call[Any]], presses: dict[int, int]) -> dict[int, object]:
    """Ask calls, with Ctrl-C pressed after so many ends; return the ends."""
    ends: dict[int, object] = {}

    def done(number: int, end: CallReply[Any] | Failure) -> None:
        for _ in range(presses.get(len(ends), 0)):
            signal.raise_signal(signal.SIGINT)
        assert number not in ends
        ends[number] = told(end)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            asking.run(calls, done)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    return ends


def test_the_first_interrupt_hands_over_all_that_was_asked() -> None:
    calls, right = mixed(300)
    with FaultServer(delay=0.05) as server, transport(server) as asking:
        ends = pressing(asking, calls, {50: 1})
        assert len(ends) == sum(server.asked.values())
        assert all(ends[number] == right[number] for number in ends)
        assert asking.trouble == ""
        assert [told(end) for end in ends_of(asking, calls)] == right, "it can ask on"


def test_the_second_interrupt_waits_for_nothing_but_keeps_what_has_come() -> None:
    calls, right = mixed(40)

    def late(body: Any, attempt: int) -> str | None:
        return "slow" if "question 3" in str(body) else None

    with FaultServer(always=late, slow_seconds=30) as server:
        with transport(server, CallLimits(), speed=1) as asking:
            began = time.monotonic()
            ends = pressing(asking, calls, {8: 2})
            assert time.monotonic() - began < 20
        assert 8 < len(ends) < 40
        assert all(ends[number] == right[number] for number in ends)


def test_another_handler_of_the_interrupt_gets_it_when_all_is_handed_over() -> None:
    class StopError(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise StopError(len(ends))

    calls, right = mixed(300)
    ends: dict[int, object] = {}

    def done(number: int, end: CallReply[Any] | Failure) -> None:
        if len(ends) == 40:
            signal.raise_signal(signal.SIGINT)
        ends[number] = told(end)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with FaultServer(delay=0.02) as server, transport(server) as asking:
            with pytest.raises(StopError) as raised:
                asking.run(calls, done)
            assert raised.value.args == (sum(server.asked.values()),)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert all(ends[number] == right[number] for number in ends)


def test_what_done_raises_is_passed_on_and_the_next_run_is_as_always() -> None:
    calls, right = mixed(100)

    def done(number: int, end: object) -> None:
        raise Malformed("a fault of the receiver")

    with FaultServer() as server, transport(server) as asking:
        with pytest.raises(Malformed, match="a fault of the receiver"):
            asking.run(calls, done)
        assert [told(end) for end in ends_of(asking, calls)] == right


def test_a_thread_that_is_not_the_main_one_asks_too() -> None:
    calls, right = mixed(20)
    found: list[object] = []
    with FaultServer() as server, transport(server) as asking:
        thread = threading.Thread(target=lambda: found.extend(map(told, ends_of(asking, calls))))
        thread.start()
        thread.join()
    assert found == right


def test_no_calls_start_nothing_and_closing_twice_is_closing() -> None:
    with transport("http://127.0.0.1:9") as asking:
        asking.run([], lambda *_: pytest.fail("nothing was asked"))
        asking.close()
