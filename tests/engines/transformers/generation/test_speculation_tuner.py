"""Speculative decoding goes on where it saves time, and stops where it does not."""

from __future__ import annotations

from collections.abc import Callable

from pytest_touchstone.engines.transformers.generation.speculative import TRIED, SpeculationTuner


def share(
    worth: SpeculationTuner, passes: int, seconds: Callable[[bool], float], brings: int, rows: int = 4
) -> float:
    """The share of passes with proposals; every row gets so many tokens of one."""
    proposed = 0
    for _ in range(passes):
        proposes = worth.proposes(rows)
        proposed += proposes
        worth.took(rows, seconds(proposes), rows * brings if proposes else None)
    return proposed / passes


def test_the_faster_way_is_gone_on_with() -> None:
    assert share(SpeculationTuner(), 1000, lambda proposes: 1.5 if proposes else 1.0, brings=2) > 0.95
    assert share(SpeculationTuner(), 1000, lambda proposes: 2.5 if proposes else 1.0, brings=2) < 0.06


def test_it_is_found_out_anew_for_other_numbers_of_rows() -> None:
    worth = SpeculationTuner()
    assert share(worth, 500, lambda proposes: 1.5 if proposes else 1.0, brings=2, rows=2) > 0.9
    assert share(worth, 500, lambda proposes: 3.0 if proposes else 1.0, brings=2, rows=40) < 0.1
    assert share(worth, 100, lambda proposes: 1.5 if proposes else 1.0, brings=2, rows=3) > 0.9


def test_a_change_of_text_is_noticed() -> None:
    worth = SpeculationTuner()
    cost = lambda proposes: 1.5 if proposes else 1.0  # noqa: E731
    assert share(worth, 300, cost, brings=1) < 0.1
    share(worth, 3000, cost, brings=3)
    assert share(worth, 500, cost, brings=3) > 0.9
    share(worth, 100, cost, brings=1)
    assert share(worth, 500, cost, brings=1) < 0.1


def test_a_few_passes_that_are_held_up_decide_nothing() -> None:
    worth, number = SpeculationTuner(), 0

    def seconds(proposes: bool) -> float:
        nonlocal number
        number += 1
        return 50.0 if number % 7 == 0 else 1.5 if proposes else 1.0

    assert share(worth, 1000, seconds, brings=2) > 0.9


def test_a_short_text_has_proposals_from_its_first_pass_on() -> None:
    assert share(SpeculationTuner(), TRIED, lambda proposes: 9.0, brings=1) == 1.0
