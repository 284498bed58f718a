"""Checkpoints are spread over replicas, each loaded as seldom as it can be, whatever dies, and every unit answered."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_touchstone.engines.replicas.schedule import IN_FLIGHT, Unit
from pytest_touchstone.engines.replicas.series import Held, LoadOrder, ReplicaSeries, UnitOrder

COST = 1000.0
"""The cost of a unit here."""


@dataclass
class Played:
    """Replicas in a time of their own: a unit takes a second, loading ``load`` seconds; some die by the draw."""

    series: ReplicaSeries[str]
    draw: random.Random
    load: float
    deaths: int = 0
    died: int = 0
    loading: dict[int, tuple[float, str]] = field(default_factory=dict)
    queues: dict[int, deque[tuple[str, int, tuple[int, ...]]]] = field(default_factory=dict)
    free_at: dict[int, float] = field(default_factory=dict)
    now: float = 0.0
    loads: Counter[str] = field(default_factory=Counter)
    loaded_by: list[tuple[str, int]] = field(default_factory=list)
    answered: Counter[tuple[str, int]] = field(default_factory=Counter)

    def run(self) -> None:
        while any(not one.schedule.done for one in self.series.checkpoints.values()):
            self._order()
            assert self.loading or any(self.queues.values()), "nothing is under way"
            self._step()

    def _order(self) -> None:
        for order in self.series.orders():
            match order:
                case LoadOrder(replica, name):
                    assert not self.queues.get(replica)
                    assert replica not in self.loading
                    self.loads[name] += 1
                    self.loaded_by.append((name, replica))
                    self.loading[replica] = (self.now + self.load, name)
                case UnitOrder(name, (replica, unit, requests)):
                    assert replica not in self.loading
                    assert self.series.holds[replica] == name
                    queue = self.queues.setdefault(replica, deque())
                    if not queue:
                        self.free_at[replica] = self.now + len(requests)
                    queue.append((name, unit, requests))
                    assert len(queue) <= IN_FLIGHT

    def _step(self) -> None:
        times = {replica: at for replica, (at, _) in self.loading.items()}
        times |= {replica: self.free_at[replica] for replica, queue in self.queues.items() if queue}
        replica = min(times, key=lambda one: (times[one], one))
        self.now = times[replica]
        if self.deaths and self.draw.random() < 0.2:
            self._die(replica)
            return
        if replica in self.loading:
            del self.loading[replica]
            self.series.loaded(replica, self.load)
            return
        name, unit, requests = self.queues[replica].popleft()
        held = self.series.checkpoints[name]
        self.series.measured(held, COST * len(requests), float(len(requests)))
        for number in self.series.answered(name, held, replica, unit, dict.fromkeys(requests, "a")):
            self.answered[name, number] += 1
        if self.queues[replica]:
            self.free_at[replica] = self.now + len(self.queues[replica][0][2])

    def _die(self, replica: int) -> None:
        self.deaths -= 1
        self.died += 1
        self.loading.pop(replica, None)
        self.queues.pop(replica, None)
        assert self.series.died(replica) == []
        if (kept := self.series.holds[replica]) is not None:
            self.loads[kept] += 1
            self.loading[replica] = (self.now + self.load, kept)


def played(sizes: list[int], replicas: int, load: float, deaths: int = 0, seed: int = 0) -> Played:
    series: ReplicaSeries[str] = ReplicaSeries(range(replicas))
    for number, size in enumerate(sizes):
        held = Held(to_come=0.0)
        series.open(f"c{number}", held)
        series.ask(f"c{number}", [Unit((n,), COST) for n in range(size)])
    return Played(series, random.Random(seed), load, deaths)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=12),
    st.integers(1, 6),
    st.sampled_from([0.1, 3.0, 1e9]),
    st.integers(0, 2),
    st.integers(0, 2**32),
)
@example(
    [1, 2], 3, 1e9, 1, 1
)  # a replica that has just loaded left to load another, before any work was measured
def test_every_unit_is_answered_once_and_no_checkpoint_loaded_without_need(
    sizes: list[int], replicas: int, load: float, deaths: int, seed: int
) -> None:
    found = played(sizes, replicas, load, deaths, seed)
    found.run()
    expected = {(f"c{number}", n): 1 for number, size in enumerate(sizes) for n in range(size)}
    assert found.answered == Counter(expected)
    needed = sum(size > 0 for size in sizes)
    assert needed <= found.loads.total()
    assert all(found.loads[f"c{number}"] == 0 for number, size in enumerate(sizes) if not size)
    if load == 1e9:  # nothing is measured before the first is loaded: until then all replicas load something
        assert found.loads.total() <= max(needed, replicas) + found.died


def test_each_replica_takes_whole_checkpoints() -> None:
    found = played([6] * 12, 4, load=100.0)
    found.run()
    assert set(found.loads.values()) == {1}
    assert Counter(replica for _, replica in found.loaded_by) == {0: 3, 1: 3, 2: 3, 3: 3}


def test_one_checkpoint_is_loaded_by_all_replicas() -> None:
    found = played([100], 4, load=1.0)
    found.run()
    assert found.loads == {"c0": 4}
    assert found.now < 30.0


@pytest.mark.parametrize(("load", "helped"), [(5.0, True), (500.0, False)])
def test_a_free_replica_helps_only_if_it_has_loaded_before_the_others_are_done(
    load: float, helped: bool
) -> None:
    found = played([3, 60], 2, load)
    found.run()
    assert found.loads["c1"] == 1 + helped


def test_a_replica_waits_for_more_of_its_checkpoint() -> None:
    found = played([4, 4, 4], 2, load=10.0)
    first = found.series.checkpoints["c0"]
    first.to_come = COST
    found.run()  # what there is
    assert found.series.holds[0] == "c0"
    found.series.ask("c0", [Unit((100,), COST)])
    found.series.expect("c0", 0.0)
    found.run()
    assert set(found.loads.values()) == {1}


def test_what_somebody_waits_for_is_loaded_though_others_may_be_asked_more() -> None:
    found = played([4, 4], 1, load=10.0)
    found.series.checkpoints["c0"].to_come = COST
    found.series.want("c1", wanted=True)
    found.run()
    assert found.answered.total() == 8


def test_a_checkpoint_of_which_every_replica_dies_is_left_and_the_others_are_answered() -> None:
    series: ReplicaSeries[str] = ReplicaSeries(range(2))
    bad, good = Held(to_come=0.0), Held(to_come=0.0)
    for name, held in (("bad", bad), ("good", good)):
        series.open(name, held)
        series.ask(name, [Unit((0,), COST)])
    died, answered = 0, list[Any]()
    for _ in range(40):
        for order in series.orders():
            if isinstance(order, UnitOrder):
                assert order.checkpoint == "good"
                replica, unit, requests = order.order
                answered += series.answered("good", good, replica, unit, dict.fromkeys(requests, "a"))
        for replica, held_name in list(series.holds.items()):
            state = series.checkpoints[held_name].holders[replica] if held_name is not None else None
            if held_name == "bad":
                died += 1
                series.died(replica)
            elif state is not None and not state.ready:
                series.loaded(replica, 1.0)
    assert answered == [0]
    assert died == 6
    assert series.stuck(bad)
    assert not series.stuck(good)


def test_a_free_replica_takes_a_checkpoint_whose_replica_is_not_heard_of() -> None:
    found = played([5, 5], 2, load=1e9)
    found._order()
    for replica in (0, 1):
        found.series.loaded(replica, 1.0)
    held = found.series.checkpoints["c1"]
    orders = deque(found.series.orders())
    found.series.lost(0)
    while not held.schedule.done:
        order = orders.popleft()
        if isinstance(order, UnitOrder) and order.checkpoint == "c1":
            replica, unit, requests = order.order
            found.series.answered("c1", held, replica, unit, dict.fromkeys(requests, "a"))
        orders += found.series.orders()
    assert orders == deque([LoadOrder(1, "c0")])
