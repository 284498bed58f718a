"""Keys are found by their form, and by what the words before them say."""

from __future__ import annotations

import time

import pytest

from pytest_touchstone.core.keys import has_key, option_keys, redact, redact_key_forms, redact_value

KEY = "hunter2.of/mine"


@pytest.mark.parametrize(
    "text",
    [
        f"http://me:{KEY.replace('/', '')}@host:80/v1",
        "postgresql://u:p@ss@host/runs",
        f"http://host/v1?api_key={KEY}&model=m",
        f"https://host/x?a=1&X-Amz-Signature={KEY}",
        f"https://host/x?access_token={KEY}#there",
    ],
)
def test_a_key_in_an_address_is_found_by_its_form(text: str) -> None:
    assert has_key(text)
    shown = redact_key_forms(text)
    assert "hunter2" not in shown
    assert "p@ss" not in shown
    assert "host" in shown
    assert not has_key(shown)


@pytest.mark.parametrize(
    "text",
    [
        f"--api-key {KEY}",
        f"--api-key={KEY} --port 1",
        f"--hf-token '{KEY}'",
        f"args: {{'api_key': ['{KEY}'], 'port': 1}}",
        f'{{"password": "{KEY}"}}',
        f"OPENAI_API_KEY={KEY}",
        f"Authorization: Bearer {KEY}",
        f"vllm:model?args=--api-key%20{KEY}",
    ],
)
def test_a_key_is_found_by_the_words_before_it(text: str) -> None:
    shown = redact(text)
    assert KEY not in shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://host:80/v1?model=m&tokenizer=t",
        "https://medium.com/@me and git@github.com:a/b.git and me@host",
        "pad_token: '<pad>', max_tokens=5, --stop-token x, --max-tokens 5",
        "api_key: None, use_secret=true",
        "the token is no word of the key's vocabulary",
    ],
)
def test_what_is_no_key_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_a_key_after_its_option_in_a_list_is_found() -> None:
    words = ["pytest", "--api-key", KEY, "-v", "--server", f"--api-key={KEY}"]
    assert list(option_keys(words)) == [KEY, KEY]
    found = redact_value({"command": words, "settings": {"api_key": KEY, "n": 1, "none": None}})
    assert KEY not in str(found)
    assert found["command"][0::3] == ["pytest", "-v"]
    assert (found["settings"]["n"], found["settings"]["none"]) == (1, None)
    assert list(option_keys([])) == []


@pytest.mark.parametrize(
    "text",
    ["://" + ":" * 100_000, "-" * 100_000, "?" + "a-" * 50_000 + "key=", "api-key = " * 10_000],
    ids=lambda text: text[:5],
)
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < 2
