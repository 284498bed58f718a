"""What is packed comes back as it was, whatever it holds."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.reports.page.items import SHARED, chunk_items, chunk_text, packed, unpacked

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
JSON = st.recursive(
    TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JSON)
def test_data_comes_back_and_needs_no_escape_in_html(value: object) -> None:
    text = packed(value)
    assert unpacked(text) == value
    assert not set(text) & set("<>&'\"")


LEADS = st.sampled_from(["", "brief\n", "one shot\n" * 30, "one shot\n" * 40, "another\n" * 30])
QUESTIONS = st.builds(lambda lead, rest: {"kind": "Generate", "question": lead + rest}, LEADS, TEXTS)
ITEMS = st.one_of(
    st.builds(lambda asked: {"asked": asked}, st.lists(QUESTIONS, min_size=1, max_size=2)),
    st.builds(lambda message: {"message": message}, TEXTS),
    st.just({"asked": [{"kind": "choices"}]}),
)


@given(st.lists(ITEMS, max_size=8))
def test_questions_come_back_with_the_beginnings_that_they_share(items: list[dict[str, Any]]) -> None:
    assert chunk_items(chunk_text(items)) == items


def test_a_beginning_that_questions_share_is_kept_once() -> None:
    examples = "Question: one?\nAnswer: two\n\n" * 10
    items = [{"asked": [{"question": f"{examples}Question: {number}?"}]} for number in range(50)]
    assert len(examples) > SHARED
    text = chunk_text(items)
    assert text.count("Answer: two") == 10
    leads, _, second, *_ = map(json.loads, text.split("\x00"))
    assert leads == [[examples, 50]]
    assert second == {"asked": [{"question": "Question: 1?"}]}
