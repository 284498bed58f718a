"""Requests become units, each request in one; a unit that fails is sent again, halved, or given up."""

from __future__ import annotations

import pytest

from pytest_touchstone.core.requests import Generate, Loglikelihood, Request, RollingLoglikelihood
from pytest_touchstone.engines.replicas.engine import LEAST, TEXTS, WorkUnit, cost_of, plan_units
from pytest_touchstone.engines.replicas.ray_cluster import RayTarget, target_of


def asked(count: int) -> list[Request]:
    return [Loglikelihood(f"{number % 7} " * (number % 50 + 1), f"{number}") for number in range(count)]


def test_units_are_whole_the_longest_first_and_smaller_towards_the_end() -> None:
    requests = [*asked(3000), *(RollingLoglikelihood("say " * 20 * number) for number in range(300))]
    units = plan_units(requests, 4)
    assert sorted(number for unit in units for number in unit.numbers) == list(range(3300))
    sizes = [sum(cost_of(requests[number]) for number in unit.numbers) for unit in units]
    assert sizes[0] > 3 * sizes[-2]
    assert sizes[-2] < 2 * LEAST + max(map(cost_of, requests))
    assert max(cost_of(requests[number]) for number in units[0].numbers) == max(map(cost_of, requests))


@pytest.mark.parametrize(("texts", "replicas", "least"), [(1000, 4, TEXTS), (100, 4, 25), (3, 4, 1)])
def test_units_have_as_many_texts_as_go_on_together_where_all_replicas_get_so_many(
    texts: int, replicas: int, least: int
) -> None:
    requests = [Generate("say " * (number % 20), max_new_tokens=300) for number in range(texts)]
    sizes = [len(unit.numbers) for unit in plan_units(requests, replicas)]
    assert sum(sizes) == texts
    assert min(sizes[:-1], default=least) >= least
    assert len(sizes) >= min(replicas, texts)


def test_requests_with_one_context_are_in_one_unit() -> None:
    contexts = [f"{number} " * 200 for number in range(40)]
    requests: list[Request] = [Loglikelihood(context, option) for option in "abcd" for context in contexts]
    units = plan_units(requests, 2)
    where: dict[str, set[int]] = {}
    for place, unit in enumerate(units):
        for number in unit.numbers:
            where.setdefault(contexts[number % 40], set()).add(place)
    assert sum(len(places) > 1 for places in where.values()) <= len(units)


def test_a_unit_is_halved_at_its_third_death_and_its_halves_at_their_next() -> None:
    unit = WorkUnit((3, 1, 4, 5))
    assert [unit.failed(died=True), unit.failed(died=True)] == [[unit], [unit]]
    first, second = unit.failed(died=True)
    assert (first.numbers, second.numbers) == ((3, 1), (4, 5))
    assert [half.numbers for half in first.failed(died=True)] == [(3,), (1,)]


def test_a_request_is_given_up_for_three_deaths_of_its_own() -> None:
    single, _ = WorkUnit((1, 2), deaths=2).failed(died=True)
    assert [single.failed(died=True) for _ in range(3)] == [[single], [single], []]


def test_an_error_is_not_tried_again() -> None:
    assert [half.numbers for half in WorkUnit((1, 2, 3)).failed(died=False)] == [(1,), (2, 3)]
    assert WorkUnit((1,)).failed(died=False) == []


@pytest.mark.parametrize(
    ("text", "count", "address"),
    [("ray", None, None), ("ray:4", 4, None), ("ray://h:10001", None, "h:10001"), ("ray:2://h:1", 2, "h:1")],
)
def test_an_engine_is_named_with_its_number_and_place(
    text: str, count: int | None, address: str | None
) -> None:
    assert target_of(text) == RayTarget(text, count, address)


@pytest.mark.parametrize("text", ["dask", "ray:0", "ray:", "ray://", "ray:two"])
def test_any_other_engine_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ray:NUMBER"):
        target_of(text)
