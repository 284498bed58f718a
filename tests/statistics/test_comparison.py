from __future__ import annotations

import pytest

from pytest_touchstone.statistics.comparison import POINTS, MetricUnit, unit_of

BITS = MetricUnit("bits")


@pytest.mark.parametrize(
    ("unit", "difference", "told"),
    [
        (POINTS, 0.0123, "+1.23 points"),
        (POINTS, -0.00001, "+0.00 points"),
        (BITS, -0.0123, "-0.0123 bits"),
        (BITS, 0.00002, "+2e-05 bits"),
        (BITS, -1e-15, "+0.0000 bits"),
        (MetricUnit(""), 2.5, "+2.5000"),
    ],
)
def test_a_difference_is_told_in_its_unit(unit: MetricUnit, difference: float, told: str) -> None:
    assert unit.told(difference) == told


@pytest.mark.parametrize(
    ("unit", "size", "told"),
    [
        (POINTS, 0.01, "1 point"),
        (POINTS, 0.025, "2.5 points"),
        (BITS, 0.01, "0.01 bits"),
        (MetricUnit(""), 0.01, "0.01"),
    ],
)
def test_a_margin_is_told_in_its_unit(unit: MetricUnit, size: float, told: str) -> None:
    assert unit.size(size) == told


def test_only_a_share_without_a_unit_is_told_in_points() -> None:
    assert unit_of("", share=True) is POINTS
    assert unit_of("bits", share=True) == BITS
    assert unit_of("", share=False).name == ""
