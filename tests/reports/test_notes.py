"""The last lines of a run suggest a limit of tokens that is larger than the one that was reached."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_touchstone.reports.next_steps import token_limit


@pytest.mark.parametrize(
    ("request_", "answer", "limit"),
    [
        ({"max_new_tokens": 512}, {"chat": True}, 512),
        ({"max_new_tokens": 512, "turns_max_new_tokens": 768}, {"chat": True}, 768),
        ({"max_new_tokens": 512, "turns_max_new_tokens": 768}, {"chat": False}, 512),
        ({"max_new_tokens": 512, "turns_max_new_tokens": 768}, {"error": "too long"}, 512),
        ({}, {"chat": True}, None),
    ],
)
def test_the_limit_is_the_one_of_the_form_in_which_a_text_was_asked_for(
    request_: dict[str, Any], answer: dict[str, Any], limit: int | None
) -> None:
    assert token_limit({"request": request_, "answer": answer}) == limit
