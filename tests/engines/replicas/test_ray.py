"""A real Ray of a head and two nodes on this machine: the answers and records of one process, whatever is killed."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints.resolve import find_checkpoints
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Answer, Generate, Loglikelihood, Refusal, Request
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.replicas.engine import Replicas, ReplicatedEngine
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.replica import Replica
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.lines import naming
from tests.support.ray_nodes import Cluster, kill_actor, noting
from tests.support.tiny import tiny_causal

pytestmark = pytest.mark.slow

SETTINGS = ModelSettings(device="cpu", threads=1, engine="ray:2")


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with closing(Cluster()) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.fill()
    return running


def requests(count: int) -> list[Request]:
    return [Loglikelihood(f"{number % 7} and " * (1 + number % 9), f" {number}") for number in range(count)]


def opened(target: str, kind: type[Replica] = Replica) -> ReplicatedEngine:
    return ReplicatedEngine(Replicas(SETTINGS, target_of("ray:2"), kind), find_checkpoints([target]).infos[0])


class Noted(Replicas):
    """Replicas of which it is noted what each was sent."""

    def __init__(self) -> None:
        self.sent: dict[int, list[Sequence[Request]]] = {}
        super().__init__(SETTINGS, target_of("ray:2"))

    def _call(self, call: Any, *arguments: Any) -> None:
        if call.unit is not None:
            self.sent.setdefault(call.replica, []).append(arguments[0])
        super()._call(call, *arguments)


def test_two_replicas_and_one_process_give_the_same_bytes(cluster: Cluster, tmp_path: Path) -> None:
    """With the same plan: an engine keeps prefixes from call to call, so what it computed before decides which tokens
    it computes together, and so the last digits."""
    size: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 3}
    info = find_checkpoints([str(tiny_causal(tmp_path / "model", seed=0, **size))]).infos[0]
    replicas = Noted()
    engine = ReplicatedEngine(replicas, info)
    while list(replicas._idle.values()).count(replicas._checkpoint) < 2:  # both are to compute
        replicas.step((), deque())
    asked = [*requests(2000), *(Generate(f"{n} and", max_new_tokens=4 + n % 9) for n in range(600))]
    found = engine.answer(asked)
    replicas.close()
    right: dict[Request, Answer | Refusal] = {}
    for units in replicas.sent.values():
        alone = open_engine(info, SETTINGS)
        for unit in units:
            right |= dict(zip(unit, alone.answer(unit), strict=True))
    assert len(replicas.sent) == 2
    assert engine.usage["units"] == sum(map(len, replicas.sent.values())) > 8
    assert list(map(repr, found)) == [repr(right[request]) for request in asked]


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_actor_or_node_changes_no_answer(cluster: Cluster, seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    engine, asked = opened("fake:causal", noting(tmp_path, 0.1)), requests(6000)
    found: list[Any] = []
    answering = threading.Thread(target=lambda: found.extend(engine.answer(asked)))
    answering.start()
    for kill in [["actor"], ["actor", "actor"], ["node"], ["actor", "node", "actor"]][seed]:
        time.sleep(draw.uniform(0.0, 0.3))
        if kill == "actor":
            kill_actor(tmp_path)
        else:
            cluster.kill_node(draw.randrange(2))  # none comes in its place: the other replica goes on
    answering.join()
    engine._replicas.close()
    assert found == FakeEngine(engine.info).answer(asked)
    assert engine.usage["deaths"] >= 1


def test_a_request_that_kills_whatever_computes_it_costs_that_request_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    engine, asked = opened("fake:causal", noting(tmp_path, 0.0, poison=" 123")), requests(400)
    found = engine.answer(asked)
    engine._replicas.close()
    right = FakeEngine(engine.info).answer(asked)
    assert [number for number, answer in enumerate(found) if answer != right[number]] == [123]
    assert isinstance(found[123], Refusal)
    assert "3 times" in found[123].reason


def test_another_checkpoint_than_the_one_asked_for_is_refused_by_name(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_touchstone.engines.replicas.engine.identity", lambda info: "0123456789abcdef")
    with pytest.raises(
        CheckpointError, match=naming("fake-causal", "fake:causal", "fingerprint", "0123456789ab")
    ):
        opened("fake:causal")
