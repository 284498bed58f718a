"""Speculative decoding goes on where it saves time, and stops where it does not."""

from __future__ import annotations

from collections.abc import Callable

from harness.engines.transformers.generation.speculative import TRIED, SpeculationTuner


def share(
    worth: SpeculationTuner, passes: int, seconds: Callable[[bool], float], brings: int, rows: int = 4
) -> float:
    """The share of passes with proposals; every row gets so many tokens of one."""
    guessed = 0
    for _ in range(passes):
        guesses = worth.guesses(rows)
        guessed += guesses
        worth.took(rows, seconds(guesses), rows * brings if guesses else None)
    return guessed / passes


def test_the_faster_way_is_gone_on_with() -> None:
    assert share(SpeculationTuner(), 1000, lambda guesses: 1.5 if guesses else 1.0, brings=2) > 0.95
    assert share(SpeculationTuner(), 1000, lambda guesses: 2.5 if guesses else 1.0, brings=2) < 0.06


def test_it_is_found_out_anew_for_other_numbers_of_rows() -> None:
    worth = SpeculationTuner()
    assert share(worth, 500, lambda guesses: 1.5 if guesses else 1.0, brings=2, rows=2) > 0.9
    assert share(worth, 500, lambda guesses: 3.0 if guesses else 1.0, brings=2, rows=40) < 0.1
    assert share(worth, 100, lambda guesses: 1.5 if guesses else 1.0, brings=2, rows=3) > 0.9


def test_a_change_of_text_is_noticed() -> None:
    worth = SpeculationTuner()
    cost = lambda guesses: 1.5 if guesses else 1.0  # noqa: E731
    assert share(worth, 300, cost, brings=1) < 0.1
    share(worth, 3000, cost, brings=3)
    assert share(worth, 500, cost, brings=3) > 0.9
    share(worth, 100, cost, brings=1)
    assert share(worth, 500, cost, brings=1) < 0.1


def test_a_few_passes_that_are_held_up_decide_nothing() -> None:
    worth, number = SpeculationTuner(), 0

    def seconds(guesses: bool) -> float:
        nonlocal number
        number += 1
        return 50.0 if number % 7 == 0 else 1.5 if guesses else 1.0

    assert share(worth, 1000, seconds, brings=2) > 0.9


def test_a_short_text_is_guessed_at_from_its_first_pass_on() -> None:
    assert share(SpeculationTuner(), TRIED, lambda guesses: 9.0, brings=1) == 1.0
