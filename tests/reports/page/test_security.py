"""Keys in texts are left out of a page, and the policy allows its own scripts and style alone."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.keys import MARK, PATTERNS, has_key, redact_key_forms
from pytest_touchstone.reports.page.security import Redaction, policy, refuse_keys
from tests.support.lines import missing

# In two parts each, so that no scan of this repository takes them for keys of somebody.
BODY = "a1B2c3D4" * 8
PLANTED = {
    "sk-": [f"sk-{BODY[:32]}", f"sk-proj-{BODY[:40]}", f"sk-ant-api03-{BODY}"],
    "hf_": [f"hf_{BODY[:34]}"],
    "AKIA": ["AKIA" + "IOSFODNN7EXAMPLE"],
    "ASIA": ["ASIA" + "IOSFODNN7EXAMPLE"],
    "ghp_": [f"gh{letter}_{BODY[:36]}" for letter in "pousr"],
    "github_pat_": [f"github_pat_{BODY}"],
    "glpat-": [f"glpat-{BODY[:20]}"],
    "AIza": [f"AIza{BODY[:35]}"],
    "xox": [f"xoxb-{BODY[:24]}"],
    "k_live_": [f"sk_live_{BODY[:24]}", f"rk_live_{BODY[:24]}"],
    "npm_": [f"npm_{BODY[:36]}"],
    "pypi-": [f"pypi-{BODY}"],
    "earer ": [f"Bearer {BODY[:40]}", f"authorization: bearer {BODY[:20]}.x/y=="],
    "eyJ": [f"eyJ{BODY[:20]}.eyJ{BODY[:30]}.{BODY[:43]}"],
    "-----BEGIN ": [
        f"-----BEGIN {kind}PRIVATE KEY-----\n{BODY}\n{BODY}\n-----END {kind}PRIVATE KEY-----"
        for kind in ("", "RSA ", "OPENSSH ")
    ],
}


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda one: one.literals[0])
def test_each_kind_of_key_is_found_wherever_it_stands(pattern):
    for key in PLANTED[pattern.literals[0]]:
        for text in (key, f'before "{key}" after', f"KEY={key}\n", f"한글 {key}, and"):
            assert pattern.form.search(text)
            cleaned = redact_key_forms(text)
            assert "[redacted: looks like a" in cleaned
            assert BODY[:16] not in cleaned
            assert not has_key(cleaned)


@pytest.mark.parametrize(
    "text",
    [
        "a risk-averse-investor-who-takes-no-part-in-it",
        "sk-learn is a package; a task-specific-head-of-the-language-model-2024",
        "The bearer of bad news arrived yesterday, Bearer tokens are not explained here",
        "shf_abcdefghijklmnopqrstuvwxyz0123456789",
        "-----BEGIN CERTIFICATE-----",
        "a hash: 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert not has_key(text)
    assert redact_key_forms(text) == text


def test_keys_are_taken_out_of_nested_data_and_the_places_are_told():
    redaction = Redaction()
    key = PLANTED["hf_"][0]
    data = {"a": [f"use {key}", 1, None], key: {"b": "fine"}}
    mark = MARK.format("an API key")
    assert redaction.value(data, "gsm8k/3 of tiny") == {"a": [f"use {mark}", 1, None], mark: {"b": "fine"}}
    (note,) = redaction.notes()
    assert not missing(note, "1 place", "gsm8k/3 of tiny")
    assert Redaction().notes() == []


def test_a_key_in_the_command_or_a_setting_is_refused_in_one_line():
    key = PLANTED["sk-"][0]
    for manifest, place in (
        ({"command": ["pytest", f"--key={key}"]}, "command"),
        ({"settings": {"model": {"args": key}}}, "settings.model"),
    ):
        with pytest.raises(HarnessError) as caught:
            refuse_keys(manifest, "first")
        message = str(caught.value)
        assert not missing(message, "no page of first", place, "key", "(sk-a1B...)")
        assert key not in message
        assert "\n" not in message
    refuse_keys({"command": ["pytest", "--checkpoint", "tiny"], "settings": {"seed": 1}}, "first")


@given(st.lists(st.text()), st.text())
def test_the_policy_names_each_script_and_the_style_by_its_hash(scripts, style):
    found = policy(scripts, style)
    assert found.startswith("default-src 'none'; script-src ")
    assert "unsafe" not in found
    for text in (*scripts, style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in found
