"""Keys and tokens of the environment in what is sent."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.mlflow import without_password
from pytest_touchstone.core.keys import MARK
from pytest_touchstone.reports.trackers.sending import SecretValues

ENVIRONMENT = {
    "HF_TOKEN": "hf_planted_value",
    "WANDB_API_KEY": "0123456789abcdef",
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDVALUE",
    "DB_PASSWORD": "hf_planted_value and more",
    "MLFLOW_TRACKING_URI": "https://me:planted-in-address@host/path",
    "TOKENIZERS_PARALLELISM": "not secret",
    "PWD": "/home/somebody",
    "SHORT_KEY": "abc",
}
PLANTED = [
    *("hf_planted_value", "0123456789abcdef", "AKIAPLANTEDVALUE", "hf_planted_value and more"),
    "planted-in-address",
]


@given(st.text(), st.sampled_from(PLANTED), st.text())
def test_no_value_of_a_secret_variable_stays(before: str, secret: str, after: str) -> None:
    secrets = SecretValues(ENVIRONMENT)
    removed = secrets.removed(before + secret + after)
    assert all(one not in removed for one in PLANTED)
    data = (before + secret + after).encode("utf-8", "backslashreplace")
    assert all(one.encode() not in secrets.removed_from(data) for one in PLANTED)


def test_its_name_stands_in_its_place_and_nothing_else_changes() -> None:
    secrets = SecretValues(ENVIRONMENT)
    assert secrets.removed("a hf_planted_value and more b") == "a [DB_PASSWORD] b"
    for kept in ("not secret", "/home/somebody", "abc", "https://host/path"):
        assert secrets.removed(kept) == kept


def test_what_looks_like_a_key_goes_too_and_other_bytes_stay() -> None:
    key = "hf_" + "aB3" * 10
    assert SecretValues({}).removed(f"a {key}") == f"a {MARK.format('an API key')}"
    assert SecretValues({}).removed_from(b"\xff\x00 a") == b"\xff\x00 a"


def test_a_secret_is_found_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text("x" * 13 + "\nhf_planted_value" + "y" * 100)
    assert SecretValues(ENVIRONMENT).within([path]) == "HF_TOKEN"
    path.write_text("x" * 100)
    assert SecretValues(ENVIRONMENT).within([path]) is None


def test_an_address_is_shown_without_user_and_password() -> None:
    assert without_password("https://me:secret@host:5000/a") == "https://host:5000/a"
    assert without_password("sqlite:///m.db") == "sqlite:///m.db"
