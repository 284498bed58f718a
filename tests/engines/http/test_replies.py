"""What servers say of their failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_touchstone.engines.http.replies import (
    Explanation,
    describe_non_json,
    explain_missing_choices,
    explain_refusal,
    find_error,
)

CHOICE = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("reply", "said", "code"),
    [
        ({"choices": [CHOICE], "error": {"message": "Rate limit", "code": 429}}, "Rate limit", "429"),
        ({"choices": [CHOICE], "error": "the model is loading"}, "the model is loading", ""),
        ({"choices": [CHOICE | {"error": {"message": "gone", "code": 502}}]}, "gone", "502"),
        ({"object": "error", "message": "no model", "code": 404}, "no model", "404"),
        ({"type": "error", "error": {"type": "overloaded", "message": "busy"}}, "busy", "overloaded"),
        ({"error": {"message": "up", "code": 429, "metadata": {"raw": "1015"}}}, "up (1015)", "429"),
        ({"error": {"reason": 7}}, '{"reason": 7}', ""),
    ],
)
def test_an_error_is_found_wherever_it_stands_in_a_reply(reply: Any, said: str, code: str) -> None:
    assert find_error(reply) == Explanation(said, code)
    assert explain_refusal(json.loads, json.dumps(reply).encode()) == Explanation(said, code)


@pytest.mark.parametrize(
    "reply", [{"choices": [CHOICE]}, {"error": None}, {"error": {}, "data": []}, [], "x"]
)
def test_a_reply_without_an_error_has_none(reply: Any) -> None:
    assert find_error(reply) is None


def test_the_words_of_a_reply_in_place_of_choices_are_found() -> None:
    assert explain_missing_choices({"detail": [{"msg": "field required"}]}) == '[{"msg": "field required"}]'
    assert explain_missing_choices({"message": "no such model"}) == "no such model"
    assert (
        explain_missing_choices({"choices": [], "message": "x"}) == explain_missing_choices({"id": 1}) == ""
    )


PAGE = b"\n<!DOCTYPE html><html><head><title>Sign &amp; in</title></head></html>"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (PAGE, "the reply is a web page titled 'Sign & in' and no JSON"),
        (b"<HTML>", "the reply is a web page and no JSON"),
        ('{"a": 1}'.encode("utf-16"), "the reply is UTF-16, and JSON is UTF-8"),
        (b'data: {"choices": []}\n\n', "the reply is a stream of events"),
        (b" ", "the reply is empty"),
        (b"yes", "the reply is no JSON (why)"),
    ],
)
def test_what_is_no_json_is_named(body: bytes, said: str) -> None:
    assert describe_non_json(body, ValueError("why")).startswith(said)


def test_a_web_page_with_a_status_of_failure_is_told_by_its_title() -> None:
    assert explain_refusal(json.loads, PAGE).message.endswith("'Sign & in'")
    assert explain_refusal(json.loads, b"Bad Gateway") == Explanation("Bad Gateway")
