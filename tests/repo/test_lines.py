"""What tests ask of a line: which names stand in it."""

from __future__ import annotations

import pytest

from tests.support.lines import missing, naming


@pytest.mark.parametrize("name", ["--eval-limit", "12", "-0.50", "'a b'", "acc >= 0.6", "1,000 items"])
def test_a_name_is_seen_in_whatever_sentence(name: str) -> None:
    assert missing(f"of {name}: something\n  else", name, "something else") == []
    assert naming("else", name).search(f"of {name}: something else")


@pytest.mark.parametrize("text", ["120", "0.12", "12.5", "a12", "", "1 2"])
def test_a_number_is_not_seen_within_another(text: str) -> None:
    assert missing(text, 12) == ["12"]
    assert not naming(12).search(text)


def test_a_second_line_is_no_part_of_the_first() -> None:
    assert not naming("first", "second").search("first\nsecond")
