"""Addresses of servers, as people write them, and the choice among a server's models."""

from __future__ import annotations

import pytest

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.http.server import Address, choose_model, parse_address

HOST = "http://h:8000"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://h:8000", Address(HOST)),
        ("http://h:8000/", Address(HOST)),
        ("http://h:8000/v1", Address(HOST)),
        ("http://h:8000/v1/", Address(HOST)),
        ("http://h:8000/v1?model=a/b", Address(HOST)),
        ("http://h:8000/v1/completions", Address(HOST, only="completions")),
        ("http://h:8000/v1/chat/completions", Address(HOST, only="chat")),
        ("https://Some.Host/team/llm", Address("https://some.host/team/llm")),
        ("https://h/team/llm/v1", Address("https://h/team/llm")),
        ("https://h/api/paas/v4/chat/completions", Address("https://h/api/paas/v4", "", "chat")),
        ("http://[::1]:8000/v1", Address("http://[::1]:8000")),
    ],
)
def test_each_way_to_write_an_address_means_one_place(written: str, meant: Address) -> None:
    assert parse_address(written) == meant


def test_a_key_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(CheckpointError, match="OPENAI_API_KEY") as refused:
        parse_address("https://someone:sk-secret@h:8000/v1")
    assert "secret" not in str(refused.value)
    assert "https://h:8000/v1" in str(refused.value)


@pytest.mark.parametrize("written", ["http://", "http://h:99999/v1", "http://h:x/v1", "http://h/v1#part"])
def test_what_is_no_address_is_named_with_an_example(written: str) -> None:
    with pytest.raises(CheckpointError, match="http://HOST:PORT/v1"):
        parse_address(written)


def test_the_only_model_is_taken_and_one_of_several_must_be_named() -> None:
    place = Address(HOST)
    assert choose_model(place, None, ["a"]) == "a"
    assert choose_model(place, "b", ["a", "b"]) == "b"
    assert choose_model(place, "hidden", []) == "hidden"
    with pytest.raises(CheckpointError, match=r"2 models; choose one with --eval-model-name .*: a, b"):
        choose_model(place, None, ["a", "b"])
    with pytest.raises(CheckpointError, match="did you mean 'llama-3-8b'"):
        choose_model(place, "lama-3-8b", ["llama-3-8b", "qwen"])
    with pytest.raises(CheckpointError, match="lists no models; name the one"):
        choose_model(place, None, [])
