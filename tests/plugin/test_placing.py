"""Shards agree about who has which item; the parts cost about the same, and stay when rows are added."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.plugin.shards import SLACK, Placed, place

ITEMS = st.lists(
    st.builds(
        Placed,
        model=st.sampled_from(["m", "n"]),
        result=st.sampled_from(["r", "s", "t"]),
        prefix=st.sampled_from(["p", "q"]),
        together=st.integers(0, 40).map(str),
        cost=st.floats(0, 1000),
        shared=st.floats(0, 1000),
        row=st.just(""),
    ),
    max_size=60,
)


def benchmarks(
    *, models: int = 1, rows: int = 1000, added: int = 0, shared: float = 0.0, groups: int = 1
) -> list[Placed]:
    """Three benchmarks whose rows are of very different sizes; the added rows come before the others."""
    found = []
    for model in range(models):
        for name, cost in (("short", 40.0), ("long", 900.0), ("middle", 100.0)):
            sizes = random.Random(name)
            for number in [*range(rows, rows + added), *range(rows)]:
                size = cost * (sizes.random() + 0.5)
                result = f"m{model} {name}"
                prefix = f"{result} {number % groups}"
                found.append(Placed(f"m{model}", result, prefix, f"row {number}", size, shared))
    return found


def costs(items: list[Placed], shards: list[int], count: int) -> list[float]:
    return [
        sum(one.cost for one, at in zip(items, shards, strict=True) if at == shard) for shard in range(count)
    ]


@settings(max_examples=60)
@given(ITEMS, st.integers(1, 9), st.randoms(use_true_random=False))
def test_every_item_has_one_shard_whatever_the_order_of_the_items(
    items: list[Placed], count: int, chance: random.Random
) -> None:
    found = place(items, count)
    assert len(found) == len(items)
    assert all(0 <= shard < count for shard in found)
    order = list(range(len(items)))
    chance.shuffle(order)
    again = place([items[index] for index in order], count)
    kinds = [defaultdict(set) for _ in range(2)]  # type: ignore[var-annotated]
    for index, shard in enumerate(found):
        kinds[0][items[index][:4]].add(shard)
    for index, shard in zip(order, again, strict=True):
        kinds[1][items[index][:4]].add(shard)
    assert kinds[0] == kinds[1]
    assert all(len(shards) == 1 for shards in kinds[0].values())  # the rows of a cluster stay together


def test_no_shard_has_more_than_its_share_and_the_slack() -> None:
    for count in (2, 3, 5, 16):
        items = benchmarks()
        found = costs(items, place(items, count), count)
        assert max(found) <= (1 + SLACK) * sum(found) / count * 1.001
        assert min(found) >= 0.75 * sum(found) / count


def test_each_benchmark_is_spread_so_that_a_wrong_guess_of_its_cost_does_no_harm() -> None:
    items = benchmarks()
    shards = place(items, 4)
    for name in ("short", "long", "middle"):
        own = [one._replace(cost=one.cost if name in one.result else 0.0) for one in items]
        found = costs(own, shards, 4)
        assert max(found) <= 1.1 * sum(found) / 4


def test_the_items_of_a_shard_are_not_the_rows_that_follow_each_other() -> None:
    items = benchmarks()
    shards = place(items, 2)
    changes = sum(mine != other for mine, other in itertools.pairwise(shards))
    assert changes > len(items) / 10


def test_rows_that_are_added_move_few_of_the_others() -> None:
    for count in (2, 3, 5):
        before, after = benchmarks(), benchmarks(added=10)
        at = {one[:4]: shard for one, shard in zip(before, place(before, count), strict=True)}
        moved = sum(
            at.get(one[:4], shard) != shard for one, shard in zip(after, place(after, count), strict=True)
        )
        assert moved <= 0.06 * len(before)


def test_items_that_share_a_dear_prefix_are_not_torn() -> None:
    torn = {}
    for shared in (0.0, 5000.0):
        items = benchmarks(rows=400, groups=40, shared=shared)
        where = defaultdict(set)
        for one, shard in zip(items, place(items, 4), strict=True):
            where[one.prefix].add(shard)
        torn[shared] = sum(len(shards) for shards in where.values()) / len(where)
    assert torn[5000.0] == 1.0
    assert torn[0.0] > 2


def test_a_row_of_two_benchmarks_is_in_one_shard() -> None:
    items = [one._replace(row=one.together) for one in benchmarks(rows=200)]
    where = defaultdict(set)
    for one, shard in zip(items, place(items, 5), strict=True):
        where[one.row].add(shard)
    assert len(where) == 200
    assert all(len(shards) == 1 for shards in where.values())
    assert {shard for shards in where.values() for shard in shards} == set(range(5))


def test_of_many_checkpoints_each_is_loaded_by_few_shards() -> None:
    items = benchmarks(models=20, rows=30)
    shards = place(items, 4)
    assert len({(one.model, shard) for one, shard in zip(items, shards, strict=True)}) <= 20 + 4
    found = costs(items, shards, 4)
    assert max(found) <= 1.05 * sum(found) / 4


def test_few_checkpoints_are_shared_by_all() -> None:
    items = benchmarks(models=1)
    assert len(set(place(items, 8))) == 8
