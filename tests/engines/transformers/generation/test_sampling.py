"""Draws against the distributions they are drawn from, and warping against transformers'."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.transformers.generation.sequence import (
    DrawKey,
    SamplingParams,
    choose,
    picked,
    uniform,
    warped,
)


def some_logits(rows: int, vocabulary: int, seed: int = 0) -> Any:
    import torch

    return 3.0 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("vocabulary", [50, 3000])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 20.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (7, 1.0), (0, 0.9), (20, 0.5), (0, 0.999), (1, 0.1)])
def test_distributions_are_those_of_transformers(
    vocabulary: int, temperature: float, top_k: int, top_p: float
) -> None:
    import torch
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = some_logits(5, vocabulary)
    ids = torch.zeros((5, 1), dtype=torch.long)
    wanted = TemperatureLogitsWarper(temperature)(ids, logits)
    if top_k:
        wanted = TopKLogitsWarper(top_k)(ids, wanted)
    if top_p < 1:
        wanted = TopPLogitsWarper(top_p)(ids, wanted)
    wanted = wanted.softmax(-1)
    found = warped(logits, SamplingParams(temperature, top_k, top_p))
    assert torch.equal(found > 0, wanted > 0)
    torch.testing.assert_close(found / found.sum(-1, keepdim=True), wanted, atol=1e-6, rtol=1e-4)


def test_draws_are_distributed_as_the_softmax() -> None:
    from scipy.stats import chisquare

    logits = some_logits(1, 12)
    count = 20_000
    draws = [DrawKey(SamplingParams(1.5), 7, number % 40, number // 40) for number in range(count)]
    tokens = choose(logits.expand(count, -1), draws)
    seen = [tokens.count(token) for token in range(12)]
    wanted = (logits / 1.5).softmax(-1)[0].double()
    assert chisquare(seen, (count * wanted / wanted.sum()).numpy()).pvalue > 0.001


@given(st.integers(-5, 2**40), st.integers(0, 1000), st.integers(0, 5000))
def test_numbers_depend_on_seed_sample_and_step_alone(seed: int, sample: int, step: int) -> None:
    number = uniform(seed, sample, step)
    assert 0.0 <= number < 1.0
    assert number == uniform(seed, sample, step)
    assert len({number, uniform(seed + 1, sample, step), uniform(seed, sample + 1, step)}) == 3


def test_a_draw_does_not_depend_on_its_batch() -> None:
    logits = some_logits(30, 200)
    warps = (SamplingParams(), SamplingParams(0.7, 0, 0.9), SamplingParams(1.0, 5, 1.0), SamplingParams(2.0))
    draws = [DrawKey(warps[number % 4], number, 3, 17) for number in range(30)]
    alone = [choose(logits[number : number + 1], [draws[number]])[0] for number in range(30)]
    assert choose(logits, draws) == alone
    assert choose(logits.flip(0), draws[::-1]) == alone[::-1]
    assert alone[::4] == logits[::4].argmax(-1).tolist()


def test_the_last_and_the_first_number_pick_a_possible_token() -> None:
    import torch

    chances = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.0]]).expand(3, -1)
    numbers = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert picked(chances, numbers).tolist() == [1, 3, 3]


def test_a_low_temperature_is_as_good_as_greedy_and_a_nan_is_told() -> None:
    logits = some_logits(4, 100)
    draws = [DrawKey(SamplingParams(1e-9), number, 0, 0) for number in range(4)]
    assert choose(logits, draws) == logits.argmax(-1).tolist()
    logits[2, 5] = float("nan")
    found = choose(logits, [*draws[:3], DrawKey(SamplingParams(), 0, 0, 0)])
    assert found[2] is None
    assert None not in (found[0], found[1], found[3])
