"""The simulations with few runs: bounds wide enough for their noise and narrow enough to fail without the rules.

``python -m tests.statistics.simulate_gate`` and its two neighbours give the figures of docs/statistics.md.
"""

from __future__ import annotations

import numpy as np

from tests.statistics import simulate_gate, simulate_selection, simulate_sequential
from tests.statistics.simulate_gate import ACCURACIES, SIZES, SUBJECTS


def test_a_checkpoint_compared_with_itself_passes_the_gate() -> None:
    """At most 2.5 % fail; 400 runs with 5 % would give up to 29 with chance 0.98, without correction about 50."""
    found = simulate_gate.rates(simulate_gate.same_twice(400, np.random.default_rng(1), SIZES, ACCURACIES))
    assert found.failed <= 20 / 400
    assert found.uncorrected_p > 0.08


def test_many_small_benchmarks_do_not_make_it_fail_though_uncorrected_limits_would() -> None:
    found = simulate_gate.rates(simulate_gate.same_twice(400, np.random.default_rng(2), *SUBJECTS))
    assert found.failed <= 20 / 400
    assert found.uncorrected_limit > 0.12


def test_items_that_share_a_text_do_not_make_it_fail() -> None:
    found = simulate_gate.rates(simulate_gate.same_twice_with_texts(40, np.random.default_rng(3)))
    assert found.failed <= 4 / 40


def test_a_drop_of_three_points_is_caught_among_three_benchmarks() -> None:
    """91 % are; 0.87 is three standard errors of 500 runs below."""
    found = simulate_gate.rates(simulate_gate.one_drop(500, np.random.default_rng(4)))
    assert found.failed >= 0.87


def test_a_checkpoint_as_good_as_the_best_of_eleven_passes_the_gate() -> None:
    found = simulate_selection.gates(120, 1, [(1200, 0.6)] * 3, simulate_selection.EQUAL, (0.0,) * 3)
    assert found.failed <= 8 / 120
    assert found.failed_plain > 0.1
    assert found.excess > 1.0
    assert abs(found.excess_shrunk) < 0.5


def test_a_drop_below_the_best_of_eleven_is_caught() -> None:
    found = simulate_selection.gates(60, 2, [(2400, 0.6)] * 3, simulate_selection.EQUAL, (-0.05, 0.0, 0.0))
    assert found.failed >= 0.9


def test_looks_save_items_and_fail_no_more_often() -> None:
    found = simulate_sequential.gates(150, 1, (2400,) * 3, (0.0,) * 3)
    assert found.failed <= 9 / 150
    assert found.saved >= 0.3


def test_looks_stop_soon_where_the_drop_is_large() -> None:
    found = simulate_sequential.gates(150, 2, (2400,) * 3, (0.05, 0.0, 0.0))
    assert found.failed >= 0.97
    assert found.saved >= 0.3


def test_looks_catch_a_drop_of_three_points_as_the_whole_does() -> None:
    found = simulate_sequential.gates(300, 3, (2400,) * 3, (0.03, 0.0, 0.0))
    assert found.failed >= found.failed_at_end - 0.04
    assert found.failed >= 0.84


def test_looks_seldom_call_a_loss_of_the_margin_not_worse() -> None:
    found = simulate_sequential.gates(150, 4, (8000,) * 3, (0.01,) * 3, flips=0.05, strict=True)
    assert found.not_worse <= 0.05
