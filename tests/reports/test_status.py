"""The letter and word that pytest shows of a scored item."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.reports.progress import item_status


@pytest.mark.parametrize(
    ("score", "letter", "word"),
    [
        (1.0, "+", "1.00"),
        (1, "+", "1.00"),
        (0.0, "-", "0.00"),
        (0.83, "8", "0.83"),
        (0.05, "0", "0.05"),
        (0.999, "9", "1.00"),
        (-12.414, "~", "-12.41"),
        (2.0, "~", "2.00"),
        (None, "~", "SCORED"),
        (math.nan, "~", "SCORED"),
    ],
)
def test_a_score_has_its_letter_and_its_word(score, letter, word):
    assert item_status(score) == (letter, word)


@given(st.floats())
def test_every_number_has_one_letter_and_a_short_or_plain_word(score):
    letter, word = item_status(score)
    assert len(letter) == 1
    assert 0 < len(word) < 12
    assert "nan" not in word
    assert "inf" not in word
