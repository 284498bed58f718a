"""Every request is answered once, or given up by name, whatever dies, lags behind, or answers twice."""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.info import info_from_plain
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    Generate,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    RollingLoglikelihood,
)
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.engines.replicas.ray_cluster import RayTarget, target_of
from pytest_touchstone.engines.replicas.schedule import (
    IN_FLIGHT,
    LEAST,
    TEXTS,
    ReplicaState,
    Schedule,
    Unit,
    cost_of,
    plan_units,
)
from pytest_touchstone.engines.replicas.transport import (
    Answered,
    CheckpointLoaded,
    Died,
    Event,
    Failed,
    Refused,
    WantedWeights,
)
from tests.support.simulated_ray import open_alone


def fake() -> CheckpointInfo:
    return info_from_plain(
        {
            **dict.fromkeys(("name", "source", "path", "model_type", "architecture"), "fake:causal"),
            **{"kind": "causal", "format": "fake", "seq_len": 2048, "engine": "fake"},
        }
    )


def asked(count: int) -> list[Request]:
    return [Loglikelihood(f"{number % 7} " * (number % 50 + 1), f"{number}") for number in range(count)]


def ready_schedule(units: list[Unit], replicas: int) -> Schedule:
    return Schedule.of(units, {number: ReplicaState(ready=True, loads=False) for number in range(replicas)})


@dataclass
class Cluster:
    """A made-up cluster: replicas compute their units in order; the draws say who goes on, dies, or answers late."""

    count: int
    draw: Any
    poison: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset()
    deaths: int = 0
    most_deaths: int = 20
    load_deaths: frozenset[int] = frozenset()
    refuses: int | None = None
    texts: int | None = None
    engine: FakeEngine = field(default_factory=lambda: FakeEngine(fake()))
    queues: dict[int, deque[tuple[int, list[Request]]]] = field(default_factory=dict)
    loading: set[int] = field(default_factory=set)
    late: list[Answered] = field(default_factory=list)
    most_held: int = 0
    computed: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queues = {number: deque() for number in range(self.count)}

    @property
    def replicas(self) -> range:
        return range(self.count)

    def load(self, replica: int, weights: WantedWeights) -> None:
        assert not self.queues[replica]
        self.loading.add(replica)

    def submit(self, replica: int, unit: int, requests: Any) -> None:
        assert replica not in self.loading
        self.queues[replica].append((unit, list(requests)))
        self.most_held = max(self.most_held, len(self.queues[replica]))

    def wait(self) -> list[Event]:
        busy = sorted({*self.loading, *(number for number, queue in self.queues.items() if queue)})
        assert busy or self.late, "nothing is under way: it would wait for ever"
        if self.late and (not busy or self.draw(0, 3) == 0):
            return [self.late.pop()]
        return [self._step(busy[self.draw(0, len(busy) - 1)])]

    def _step(self, replica: int) -> Event:
        if replica in self.loading:
            if self.refuses == replica:
                return Refused(replica, "node: /m has the fingerprint b, and here a was asked for")
            self.loading.discard(replica)
            return (
                Died(replica) if replica in self.load_deaths else CheckpointLoaded(replica, texts=self.texts)
            )
        unit, requests = self.queues[replica][0]
        texts = {one.continuation for one in requests if isinstance(one, Loglikelihood)}
        random_death = self.deaths < self.most_deaths and self.draw(0, 9) == 0
        if texts & self.poison or random_death:
            self.deaths += not texts & self.poison
            if random_death and self.draw(0, 1) and not texts & self.poison:  # it had answered already
                self.late.append(Answered(replica, unit, self.engine.answer(requests), {}))
            self.queues[replica].clear()
            return Died(replica)
        self.queues[replica].popleft()
        if texts & self.errors:
            return Failed(replica, unit, "ValueError: no")
        self.computed[replica] = self.computed.get(replica, 0) + len(requests)
        return Answered(replica, unit, self.engine.answer(requests), {"tokens": 1})

    def look(self) -> list[Event]:
        return []

    def close(self) -> None:
        self.queues.clear()


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(0, 120), st.sets(st.integers(0, 119), max_size=2))
def test_nothing_is_lost_or_changed_and_only_poison_is_given_up(
    data: st.DataObject, replicas: int, count: int, poison: set[int]
) -> None:
    chance = data.draw(st.randoms(use_true_random=False))
    cluster = Cluster(replicas, chance.randint, frozenset(map(str, poison)), most_deaths=2)
    engine = open_alone(fake(), cluster)
    requests = asked(count)
    told: dict[int, Any] = {}

    def done(number: int, answer: Any) -> None:
        assert number not in told
        told[number] = answer

    found = engine.answer(requests, done)
    assert told == dict(enumerate(found))
    for number, (mine, right) in enumerate(zip(found, FakeEngine(fake()).answer(requests), strict=True)):
        if number in poison:
            assert mine == Refusal("the process that computes it has died, 3 times")
        else:
            assert mine == right
    assert cluster.most_held <= IN_FLIGHT
    assert "differing" not in engine.usage
    again = engine.answer(requests[:5])  # late answers of the first call are none of the second's
    assert [one for one in again if not isinstance(one, Refusal)] == [
        one for one in found[:5] if not isinstance(one, Refusal)
    ]


def test_a_late_answer_of_a_dead_replica_is_taken_and_leaves_the_second_sending_alone() -> None:
    schedule = ready_schedule([Unit((0,), 1.0), Unit((1,), 1.0)], 1)
    (first, _) = schedule.orders()
    schedule.died(0)
    schedule.loaded(0)
    (again,) = schedule.orders()
    assert again.requests == (1,)
    assert schedule.orders() == []  # the replica computes it alone
    assert schedule.answered(0, first.unit, {0: "a"}) == [0]
    assert schedule.orders() == []
    assert schedule.answered(0, again.unit, {1: "a"}) == [1]
    assert schedule.done
    assert schedule.differing == []


def test_a_request_is_blamed_only_for_deaths_while_it_was_alone() -> None:
    schedule = ready_schedule([Unit((0,), 1.0), Unit((1,), 1.0)], 1)
    given_up = []
    for _ in range(12):
        orders = schedule.orders()
        if (1,) in [
            one.requests for one in orders
        ]:  # it kills the replica before the answer to the first is there
            given_up += schedule.died(0)
            schedule.loaded(0)
        for one in orders if len(orders) == 1 and orders[0].requests == (0,) else ():
            assert schedule.answered(0, one.unit, {0: "a"}) == [0]
    assert given_up == [1]
    assert schedule.done


def test_a_replica_whose_contact_was_lost_and_that_lives_has_not_died() -> None:
    schedule = ready_schedule([Unit((0,), 1.0)], 1)
    for _ in range(8):
        assert len(schedule.orders()) == 1
        assert schedule.lost(0) == []
        assert schedule.orders() == []
        assert schedule.loaded(0) == []
    (last,) = schedule.orders()
    assert schedule.answered(0, last.unit, {0: "a"}) == [0]
    assert schedule.given_up == {}


def test_the_units_of_a_call_that_was_left_are_not_those_of_the_next() -> None:
    before = ready_schedule([Unit((0,), 1.0), Unit((1,), 1.0)], 1)
    assert len(before.orders()) == IN_FLIGHT
    schedule = Schedule.of([Unit((0,), 1.0)], before.replicas, first=before.next)
    assert schedule.orders() == []  # the replica still has two
    schedule.died(0)  # of the first of these
    schedule.loaded(0)
    (one,) = schedule.orders()
    assert schedule.resent == 0
    assert schedule.answered(0, one.unit, {0: "a"}) == [0]


def test_nothing_is_kept_of_calls_that_are_done() -> None:
    engine = open_alone(fake(), Cluster(2, lambda low, high: high, most_deaths=0))
    requests = asked(500)
    engine.answer(requests)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(3):
            engine.answer(requests)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(40):
            engine.answer(requests)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000  # the units of 40 calls would be 160,000 and more


def test_poison_among_ten_thousand_is_found_with_few_deaths() -> None:
    cluster = Cluster(2, lambda low, high: high, frozenset({"4321"}), most_deaths=0)
    engine = open_alone(fake(), cluster)
    found = engine.answer(asked(10_000))
    assert [number for number, one in enumerate(found) if isinstance(one, Refusal)] == [4321]
    assert engine.usage["deaths"] <= 20


def test_an_error_is_found_without_a_death() -> None:
    engine = open_alone(fake(), Cluster(2, lambda low, high: high, errors=frozenset({"77"}), most_deaths=0))
    found = engine.answer(asked(500))
    assert [(number, one) for number, one in enumerate(found) if isinstance(one, Refusal)] == [
        (77, Refusal("ValueError: no"))
    ]


def test_a_slow_replica_gets_less() -> None:
    turns = iter(range(10**9))
    cluster = Cluster(2, lambda low, high: low if next(turns) % 8 == 0 else high, most_deaths=0)
    open_alone(fake(), cluster).answer(asked(4000))
    assert cluster.computed[0] < cluster.computed[1] / 2


def test_a_replica_that_dies_while_it_loads_is_left_out_and_all_of_them_are_an_error() -> None:
    cluster = Cluster(2, lambda low, high: low, load_deaths=frozenset({0}), most_deaths=0)
    assert len(open_alone(fake(), cluster).answer(asked(50))) == 50
    cluster = Cluster(2, lambda low, high: low, load_deaths=frozenset({0, 1}), most_deaths=0)
    with pytest.raises(CheckpointError, match="no replica is left; each has died 3 times while it loaded"):
        open_alone(fake(), cluster).answer(asked(50))


def test_another_checkpoint_on_a_node_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="fake:causal: node: /m has the fingerprint b, and here a"):
        open_alone(fake(), Cluster(2, lambda low, high: high, refuses=1)).answer(asked(5))


def test_answers_that_differ_are_reported() -> None:
    class Liar(Cluster):
        def _step(self, replica: int) -> Event:
            found = super()._step(replica)
            if isinstance(found, Answered):
                lies = [LoglikelihoodAnswer(-1.0, False, 1) for _ in found.answers]
                self.late.append(Answered(replica, found.unit, lies, {}))
            return found

    cluster = Liar(1, lambda low, high: low, most_deaths=0)
    engine = open_alone(fake(), cluster)
    requests = asked(3000)
    assert engine.answer(requests) == FakeEngine(fake()).answer(requests)
    assert engine.usage["differing"] > 0
    assert "answered twice" in engine.usage["notes"][0]


def test_units_are_whole_the_longest_first_and_smaller_towards_the_end() -> None:
    requests = [*asked(3000), *(RollingLoglikelihood("say " * 20 * number) for number in range(300))]
    units = plan_units(requests, 4)
    assert sorted(number for unit in units for number in unit.requests) == list(range(3300))
    sizes = [unit.cost for unit in units]
    assert sizes[0] > 3 * sizes[-2]
    assert sizes[-2] < 2 * LEAST + max(map(cost_of, requests))
    assert max(cost_of(requests[number]) for number in units[0].requests) == max(map(cost_of, requests))


@pytest.mark.parametrize(("texts", "replicas", "least"), [(1000, 4, TEXTS), (100, 4, 25), (3, 4, 1)])
def test_units_have_as_many_texts_as_go_on_together_where_all_replicas_get_so_many(
    texts: int, replicas: int, least: int
) -> None:
    requests = [Generate("say " * (number % 20), max_new_tokens=300) for number in range(texts)]
    sizes = [len(unit.requests) for unit in plan_units(requests, replicas)]
    assert sum(sizes) == texts
    assert min(sizes[:-1], default=least) >= least
    assert len(sizes) >= min(replicas, texts)


@pytest.mark.parametrize(("says", "least"), [(None, TEXTS), (16, 16), (256, 256)])
def test_units_have_as_many_texts_as_the_engine_of_a_replica_says(says: int | None, least: int) -> None:
    sizes: list[int] = []

    class Told(Cluster):
        def submit(self, replica: int, unit: int, requests: Any) -> None:
            sizes.append(len(requests))
            super().submit(replica, unit, requests)

    engine = open_alone(fake(), Told(2, lambda low, _: low, most_deaths=0, texts=says))
    requests: list[Request] = [Generate(f"say {number}", max_new_tokens=8) for number in range(1100)]
    assert engine.answer(requests) == FakeEngine(fake()).answer(requests)
    assert sum(sizes) == len(requests)
    assert min(sizes[:-1]) >= least
    assert min(sizes[:-1]) < 2 * least


def test_requests_with_one_context_are_in_one_unit() -> None:
    contexts = [f"{number} " * 200 for number in range(40)]
    requests: list[Request] = [Loglikelihood(context, option) for option in "abcd" for context in contexts]
    units = plan_units(requests, 2)
    where: dict[str, set[int]] = {}
    for place, unit in enumerate(units):
        for number in unit.requests:
            where.setdefault(contexts[number % 40], set()).add(place)
    assert sum(len(places) > 1 for places in where.values()) <= len(units)


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
