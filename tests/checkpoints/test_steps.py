"""``--eval-steps``: ranges, lists and mistakes."""

from __future__ import annotations

import pytest

from pytest_touchstone.checkpoints.find import parse_steps

STEPS = (25, 100, 200, 300, 600, 1200)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("300:", [300, 600, 1200]),
        (":300", [25, 100, 200, 300]),
        ("100:600:100", [100, 200, 300, 600]),
        ("100:599", [100, 200, 300]),
        ("::300", [300, 600, 1200]),
        ("25:", list(STEPS)),
        ("100,300", [100, 300]),
        ("25, 600:", [25, 600, 1200]),
        ("7", []),
    ],
)
def test_a_range_has_both_its_ends_and_a_list_its_members(text: str, meant: list[int]) -> None:
    assert [step for step in STEPS if parse_steps(text).has(step)] == meant


def test_epochs_with_fractions_lie_between() -> None:
    assert parse_steps("1:2").has(1.5)
    assert not parse_steps("2:").has(1.5)


@pytest.mark.parametrize(
    "text", ["", ":", "a", "1:2:3:4", "100-200", "-5:", "1.5", "100,,200", "5:1", "1:9:0"]
)
def test_anything_else_is_refused_with_what_can_be_given(text: str) -> None:
    with pytest.raises(ValueError, match=r"START:STOP:STEP or a list|the lower end first|no steps of 0"):
        parse_steps(text)
