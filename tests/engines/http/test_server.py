"""Addresses of servers as people write them, and keys that are in no text."""

from __future__ import annotations

import json
import pickle
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.http.server import (
    MIN_KEY_LENGTH,
    NAMES,
    ApiKey,
    ServerAddress,
    choose_model,
    key_from_environment,
    parse_address,
)
from tests.support.lines import naming

HOST = "http://h:8000"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://h:8000", ServerAddress(HOST)),
        ("http://h:8000/", ServerAddress(HOST)),
        ("http://h:8000/v1", ServerAddress(HOST)),
        ("http://h:8000/v1/", ServerAddress(HOST)),
        ("http://h:8000/v1?model=a/b", ServerAddress(HOST)),
        ("http://h:8000/v1/completions", ServerAddress(HOST, only="completions")),
        ("http://h:8000/v1/chat/completions", ServerAddress(HOST, only="chat")),
        ("https://Some.Host/team/llm", ServerAddress("https://some.host/team/llm")),
        ("https://h/team/llm/v1", ServerAddress("https://h/team/llm")),
        ("https://h/api/paas/v4/chat/completions", ServerAddress("https://h/api/paas/v4", "", "chat")),
        ("http://[::1]:8000/v1", ServerAddress("http://[::1]:8000")),
    ],
)
def test_each_way_to_write_an_address_means_one_place(written: str, meant: ServerAddress) -> None:
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
    place = ServerAddress(HOST)
    assert choose_model(place, None, ["a"]) == "a"
    assert choose_model(place, "b", ["a", "b"]) == "b"
    assert choose_model(place, "hidden", []) == "hidden"
    with pytest.raises(CheckpointError, match=naming("2 models", "--eval-set model_name", "a, b")):
        choose_model(place, None, ["a", "b"])
    with pytest.raises(CheckpointError, match="did you mean 'llama-3-8b'"):
        choose_model(place, "lama-3-8b", ["llama-3-8b", "qwen"])
    with pytest.raises(CheckpointError, match=naming("no models", "--eval-set model_name")):
        choose_model(place, None, [])


SECRET = "tk/very+secret=01"


@pytest.mark.parametrize("name", NAMES)
def test_a_key_comes_from_the_environment(name: str) -> None:
    key = key_from_environment({name: f" {SECRET}\n"})
    assert key.name == name
    assert key.headers() == {"Authorization": f"Bearer {SECRET}"}


def test_our_own_variable_comes_first_and_an_empty_one_is_none() -> None:
    assert (
        key_from_environment({"OPENAI_API_KEY": "theirs-1", "TOUCHSTONE_API_KEY": "ours-1"}).name
        == "TOUCHSTONE_API_KEY"
    )
    assert (
        key_from_environment({"OPENAI_API_KEY": "theirs-1", "TOUCHSTONE_API_KEY": " "}).name
        == "OPENAI_API_KEY"
    )
    assert not key_from_environment({})
    assert key_from_environment({}).headers() == {}


@pytest.mark.parametrize("value", ["two words", "line\nbreak", "schlüssel-1", "tab\tinside"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(CheckpointError, match="OPENAI_API_KEY holds a character") as raised:
        key_from_environment({"OPENAI_API_KEY": value})
    assert value not in str(raised.value)


def test_a_key_shows_its_name_only_and_stays_in_its_process() -> None:
    key = key_from_environment({"OPENAI_API_KEY": SECRET})
    assert repr(key) == str(key) == f"{key}" == "Key(OPENAI_API_KEY)"
    with pytest.raises(TypeError):
        pickle.dumps(key)


@settings(max_examples=50)
@given(before=st.text(), after=st.text(), form=st.sampled_from([str, quote, lambda one: quote(one, safe="")]))
def test_a_key_is_removed_from_any_text_in_the_forms_it_takes_in_addresses(before, after, form) -> None:
    shown = key_from_environment({"OPENAI_API_KEY": SECRET}).removed(f"{before}{form(SECRET)}{after}")
    assert SECRET not in shown
    assert form(SECRET) not in shown
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Incorrect API key provided: sk-abcd****wxyz9.", "Incorrect API key provided: [a key]"),
        ("header Authorization: Bearer 0123.abc sent", "header Authorization: Bearer [a key] sent"),
        ("http://me:word@host/v1 is gone", "http://[a key]@host/v1 is gone"),
        ("a sk-8 text, and risk-taking-behaviour", "a sk-8 text, and risk-taking-behaviour"),
    ],
)
def test_what_looks_like_a_key_goes_too(text: str, shown: str) -> None:
    assert ApiKey().removed(text) == shown


def test_a_placeholder_is_not_looked_for_in_texts() -> None:
    short = "x" * (MIN_KEY_LENGTH - 1)
    assert (
        key_from_environment({"OPENAI_API_KEY": short}).removed(f"six {short} boxes") == f"six {short} boxes"
    )


def test_a_key_in_json_is_removed_as_it_stands_there() -> None:
    key = key_from_environment({"OPENAI_API_KEY": SECRET})
    assert SECRET not in key.removed(json.dumps({"key": SECRET}))
