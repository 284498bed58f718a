"""Choosing the best checkpoint by the mean of each with its neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.statistics.neighbours import (
    NeighbourChoice,
    Stratum,
    choose_with_neighbours,
    means_with_neighbours,
)

RISE_AND_FALL = 0.6 - 0.4 * (np.linspace(0, 1, 11) - 0.6) ** 2
LINE = [range(11)]


def answers(accuracies: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Right and wrong answers to items that all checkpoints find easy or hard."""
    generator = np.random.default_rng(seed)
    chances = np.clip(accuracies[:, None] + 0.8 * (generator.random(n) - 0.5), 0, 1)
    return (generator.random(chances.shape) < chances).astype(float)


def choice(accuracies: np.ndarray, n: int, seed: int) -> NeighbourChoice | None:
    return choose_with_neighbours([Stratum(answers(accuracies, n, seed), None)], LINE)


def test_a_mean_is_of_three_in_the_middle_of_two_at_an_end_and_of_one_outside() -> None:
    found = means_with_neighbours(5, [[0, 2, 4]])
    assert (found @ [1.0, 10.0, 2.0, 20.0, 6.0]).tolist() == pytest.approx([1.5, 10.0, 3.0, 20.0, 4.0])


@given(st.integers(1, 8), st.data())
def test_means_with_neighbours_leave_a_constant_and_stay_within_the_values(
    count: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(count)))
    values = data.draw(st.lists(st.floats(-1, 1), min_size=count, max_size=count))
    smooth = means_with_neighbours(count, [order[: count // 2], order[count // 2 :]])
    assert smooth @ np.full(count, 0.25) == pytest.approx(np.full(count, 0.25))
    assert np.all(smooth @ values <= max(values) + 1e-12)


def test_a_checkpoint_that_is_best_either_way_is_no_other_choice() -> None:
    assert choice(np.linspace(0.3, 0.7, 11), 2000, 1) is None


def test_a_slow_training_on_few_items_is_better_judged_with_neighbours() -> None:
    """Over many such trainings, where it says so the choice is nearer to the truth than the plain one."""
    gains = []
    for seed in range(150):
        scores = answers(RISE_AND_FALL, 200, seed)
        found = choose_with_neighbours([Stratum(scores, None)], LINE)
        if found is not None and found.founded:
            gains.append(RISE_AND_FALL[found.place] - RISE_AND_FALL[scores.mean(axis=1).argmax()])
    assert len(gains) > 20
    assert np.mean(gains) > 0.003


def test_where_one_checkpoint_stands_out_its_neighbours_are_not_asked() -> None:
    spike = np.full(11, 0.5)
    spike[5:8] = 0.56, 0.48, 0.56
    spike[1] = 0.6
    found = [one for seed in range(20) if (one := choice(spike, 1000, seed)) is not None]
    assert found
    assert not any(one.founded for one in found)


def test_items_of_a_cluster_stay_in_one_half() -> None:
    """Clusters of equal items say no more than one item of each."""
    drawn = (answers(RISE_AND_FALL, 100, seed) for seed in range(10))
    alone, scores = next(
        (found, scores)
        for scores in drawn
        if (found := choose_with_neighbours([Stratum(scores, None)], LINE))
    )
    names = [str(place) for place in np.repeat(np.arange(100), 4)]
    whole = choose_with_neighbours([Stratum(np.repeat(scores, 4, axis=1), names)], LINE)
    assert alone == whole
