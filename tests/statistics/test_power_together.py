"""The power of tests that Holm corrects together: against closed forms, and against verdicts on drawn answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pytest_touchstone.statistics.paired import compare_flips
from pytest_touchstone.statistics.power import (
    PlannedTest,
    binary_design,
    composite_design,
    power_of_drop,
    powers_together,
)
from pytest_touchstone.statistics.verdicts import judge

ONE = PlannedTest(binary_design(400, 0.2), 0.08)


def first_step(one: PlannedTest, family: int) -> float:
    return power_of_drop(one.design, one.drop, family=family, margin=one.margin)


def test_of_two_equal_tests_each_has_the_second_step_where_the_other_is_found() -> None:
    half, whole = first_step(ONE, 2), first_step(ONE, 1)
    assert powers_together([ONE, ONE]) == pytest.approx([half + (whole - half) * half] * 2, abs=0.01)


def test_a_test_made_of_another_one_alone_falls_with_it_so_the_second_step_adds_nothing() -> None:
    same = replace(ONE, made_of={0: 1.0})
    assert powers_together([ONE, same]) == pytest.approx([first_step(ONE, 2)] * 2, abs=0.01)


def test_where_nothing_else_is_lost_only_the_first_step_counts() -> None:
    others = [replace(ONE, drop=0.0)] * 4
    assert powers_together([ONE, *others])[0] == pytest.approx(first_step(ONE, 5), abs=0.01)
    assert powers_together([ONE]) == [first_step(ONE, 1)]


def test_many_tests_are_found_no_less_often_than_at_the_first_step_and_no_more_than_alone() -> None:
    found = powers_together([replace(ONE, drop=0.06)] * 30)
    once = replace(ONE, drop=0.06)
    assert first_step(once, 30) - 0.01 < min(found)
    assert max(found) < first_step(once, 1) + 0.01


@pytest.mark.parametrize(
    ("sizes", "drops"), [((300,) * 3, (0.08,) * 3), ((200, 300, 400, 500), (0.12, 0.06, 0.08, 0.0))]
)
def test_the_power_is_that_of_the_gates_own_verdicts_on_drawn_answers(
    sizes: tuple[int, ...], drops: tuple[float, ...]
) -> None:
    runs, flips = 1_000, 0.2
    draw = np.random.default_rng(7)
    worse = np.zeros(len(sizes))
    for _ in range(runs):
        found = {}
        for place, (n, drop) in enumerate(zip(sizes, drops, strict=True)):
            flipped = draw.binomial(n, flips)
            lost = draw.binomial(flipped, (flips + drop) / (2 * flips))
            found[place] = compare_flips(0, int(flipped - lost), int(lost), int(n - flipped))
        worse += [one.kind == "worse" for one in judge(found).values()]
    tests = [PlannedTest(binary_design(n, flips), drop) for n, drop in zip(sizes, drops, strict=True)]
    assert powers_together(tests) == pytest.approx(
        list(worse / runs), abs=0.045
    )  # 3 standard errors of 1,000


def test_a_sum_of_benchmarks_that_finds_the_drop_helps_each_of_them() -> None:
    third = replace(ONE.design, spread=ONE.design.spread / 3)
    made = replace(ONE, design=composite_design([third] * 3), made_of=dict.fromkeys(range(3), 1.0))
    *own, whole = powers_together([ONE] * 3 + [made])
    assert min(own) > first_step(ONE, 4) + 0.03
    assert whole > max(own)
