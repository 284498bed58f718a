"""One attempt: replies with the status 200 that are no answer, and those that are one all the same."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_touchstone.engines.http.calls import Call, Failure, Limits, Reply
from pytest_touchstone.engines.http.keys import key_of
from tests.engines.http.test_transport import SECRET, question, transport
from tests.support.fault_server import FaultServer
from tests.support.scripted_server import scripted


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
        transport(server, Limits(attempts=2), key_of({"OPENAI_API_KEY": SECRET})) as asking,
    ):
        end = asking.one(question())
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
        end = asking.one(Call("/v1/completions", {}, lambda found: found["choices"][0]))
    assert isinstance(end, Reply)
    assert end.value == 5
