"""What ``--eval-samples``, ``--eval-temperature`` and ``--eval-top-p`` mean together."""

from __future__ import annotations

import pytest

from harness.core.few_shot import Sampling
from harness.plugin.options import parse_share, parse_temperature, sampling_of


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
    assert sampling_of(samples, temperature, top_p, 7) == found


def test_several_greedy_samples_are_refused_because_they_are_all_the_same() -> None:
    with pytest.raises(pytest.UsageError, match="5 greedy samples of a task are all the same"):
        sampling_of(5, 0.0, None, 7)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("0.2", 0.2), (".8", 0.8), ("1.", 1.0), ("2", 2.0)])
def test_a_temperature_is_a_number_from_0_up(text: str, value: float) -> None:
    assert parse_temperature(text) == value


@pytest.mark.parametrize("text", ["-1", "hot", "", ".", "nan", "inf", "1e3", "0,2"])
def test_anything_else_is_no_temperature(text: str) -> None:
    with pytest.raises(ValueError, match="is no temperature"):
        parse_temperature(text)


@pytest.mark.parametrize("text", ["0", "0.0", "1.1", "-1", "all", ""])
def test_a_share_is_above_0_and_1_at_most(text: str) -> None:
    with pytest.raises(ValueError, match="is no share"):
        parse_share(text)
    assert parse_share("0.95") == 0.95
    assert parse_share("1") == 1.0
