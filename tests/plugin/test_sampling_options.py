"""``--eval-samples``, ``--eval-temperature`` and ``--eval-set top_p`` together."""

from __future__ import annotations

import pytest

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.plugin.options import sampling_values


@pytest.mark.parametrize(
    ("samples", "temperature", "top_p", "found"),
    [
        (1, None, None, Sampling(1, 0.0, 1.0, 7)),
        (20, None, None, Sampling(20, 0.2, 0.95, 7)),
        (1, 0.8, None, Sampling(1, 0.8, 0.95, 7)),
        (100, 0.8, 1.0, Sampling(100, 0.8, 1.0, 7)),
        (1, 0.0, 0.5, Sampling(1, 0.0, 0.5, 7)),
    ],
)
def test_what_is_left_open_follows_from_the_rest(
    samples: int, temperature: float | None, top_p: float | None, found: Sampling
) -> None:
    assert Sampling(samples, seed=7, **sampling_values(samples, temperature, top_p)) == found


def test_several_greedy_samples_are_refused_because_they_are_all_the_same() -> None:
    with pytest.raises(OptionError, match="5 greedy samples"):
        sampling_values(5, 0.0, None)
