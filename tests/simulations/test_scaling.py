"""The simulation of many replicas, with few items: what must hold whatever the costs are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pytest_touchstone.core.requests import RollingLoglikelihood
from pytest_touchstone.core.text import CHARACTERS_PER_TOKEN
from pytest_touchstone.engines.replicas.schedule import plan_units
from simulations.scaling import COSTS, Replicas, lengths, play_items, play_series, unit_sizes
from simulations.scaling_series import SeriesPlayer

FREE = replace(COSTS, item_before=0.0, item_after=0.0, unit=0.0, latency=0.0, item_bytes=0.0)
STEADY = {"slow_share": 0.0, "dies_every": 1e12, "gigabytes": 0.0}


def test_units_are_as_large_as_those_that_are_planned() -> None:
    tokens = np.floor(lengths(3000, np.random.default_rng(1)))
    requests = [RollingLoglikelihood("x" * int((one - 1) * CHARACTERS_PER_TOKEN)) for one in tokens]
    planned = plan_units(requests, 4)
    played = unit_sizes(tokens, 4)
    assert [len(one.requests) for one in planned] == [items for items, _ in played]
    assert [one.cost for one in planned] == pytest.approx([cost for _, cost in played])


def test_without_costs_the_time_is_that_of_the_tokens() -> None:
    tokens = np.full(4096, 150.0)
    found = SeriesPlayer([[tokens]], Replicas(count=4, speed=1000.0, **STEADY), FREE, 1).play()
    assert found.wall == pytest.approx(tokens.sum() / 4000.0, rel=0.02)


def test_a_checkpoint_that_is_alone_is_planned_for_all_replicas_while_they_load() -> None:
    tokens = lengths(4096, np.random.default_rng(1))
    slowly = Replicas(count=8, **{**STEADY, "gigabytes": 1.0})
    assert SeriesPlayer([[tokens]], slowly, FREE, 1).play().units == len(unit_sizes(tokens, 8))


def test_a_driver_that_is_slower_than_its_replicas_sets_the_time() -> None:
    costs = replace(FREE, item_after=0.01)
    found = play_items(8192, Replicas(count=64, **STEADY), costs=costs)
    assert found.driver > 0.95
    assert found.wall == pytest.approx(81.92, rel=0.05)
    four = play_items(8192, Replicas(count=64, **STEADY), drivers=4, costs=costs)
    assert four.wall < found.wall / 3


def test_deaths_cost_time_and_lose_nothing() -> None:
    calm = play_items(20_000, Replicas(count=8, **STEADY), costs=FREE)
    dying = {**STEADY, "dies_every": 30.0, "gigabytes": 1.0}
    found = play_items(20_000, Replicas(count=8, restart=2.0, **dying), costs=FREE)
    assert found.again > 0
    assert found.units == calm.units + found.again
    assert found.wall > calm.wall


def test_one_driver_loads_each_checkpoint_once_as_shards_do() -> None:
    many = Replicas(count=8, slow_share=0.0, dies_every=1e12, gigabytes=64.0)
    together = play_series(16, 2, 500, many)
    apart = play_series(16, 2, 500, many, shards=8)
    assert together.loads == apart.loads == 16
    assert together.wall < 1.02 * apart.wall


def test_free_replicas_help_with_a_checkpoint_if_loading_takes_less_than_what_is_left() -> None:
    few = {"count": 8, "slow_share": 0.0, "dies_every": 1e12}
    helped = play_series(2, 4, 2000, Replicas(gigabytes=1.0, **few), costs=FREE)  # type: ignore[arg-type]
    assert helped.loads == 8
    assert helped.idle < 0.1
