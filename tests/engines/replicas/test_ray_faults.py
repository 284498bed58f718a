"""What Ray tells of actors and nodes that die becomes sendings anew, or one clear line; played in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import find_checkpoints
from pytest_touchstone.core.errors import CheckpointError, ServerError
from pytest_touchstone.core.requests import Generate, Refusal, Request
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.engines.registry import identity, open_engine
from pytest_touchstone.engines.replicas.engine import ReplicatedEngine
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.ray_replicas import (
    Computed,
    Load,
    RayReplicas,
    Replica,
    WantedCheckpoint,
)
from pytest_touchstone.engines.settings import ModelSettings
from tests.engines.replicas.test_schedule import asked, fake
from tests.support import simulated_ray
from tests.support.simulated_ray import KillsNodeError, KillsProcessError, SimulatedRay, open_alone
from tests.support.tiny import tiny_causal

SETTINGS = ModelSettings(device="cpu", threads=1, engine="ray:2")


def opened(
    cluster: SimulatedRay,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Replica] = Replica,
    count: int = 2,
    info: CheckpointInfo | None = None,
) -> ReplicatedEngine:
    """Return a replicated engine whose Ray is the played one."""
    monkeypatch.setattr("pytest_touchstone.engines.replicas.ray_replicas.start", lambda target: cluster)
    monkeypatch.setattr(
        "pytest_touchstone.engines.replicas.ray_replicas.node_here", lambda: cluster.node_here
    )
    info = info or fake()
    transport = RayReplicas(SETTINGS, target_of(f"ray:{count}"), kind)
    return open_alone(info, transport, identity(info))


@pytest.mark.parametrize(
    "error",
    [
        *(simulated_ray.ObjectLostError, simulated_ray.OwnerDiedError, simulated_ray.NodeDiedError),
        *(simulated_ray.ActorUnavailableError, simulated_ray.RaySystemError),
    ],
)
def test_an_answer_that_is_lost_on_its_way_is_asked_again_and_nobody_has_died(
    error: type[simulated_ray.RayError], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimulatedRay([1, 1], stray=0.2, stray_errors=[error])
    engine = opened(cluster, monkeypatch)
    assert engine.answer(asked(2000)) == FakeEngine(fake()).answer(asked(2000))
    assert engine.usage["resent"] > 0
    assert "deaths" not in engine.usage


def test_a_replica_that_loads_slowly_after_a_death_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"load": 100.0}
    cluster = SimulatedRay([1], seconds=lambda method, _: times.get(method, 1.0))
    engine = opened(cluster, monkeypatch, count=1)
    cluster.later(3.0, lambda: cluster.kill_actor(cluster.actors[0]))
    assert engine.answer(asked(2000)) == FakeEngine(fake()).answer(asked(2000))
    assert engine.usage["deaths"] == 1


def test_replicas_that_die_whenever_they_load_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(Replica):
        def load(self, wanted: WantedCheckpoint) -> Load:
            raise KillsProcessError

    with pytest.raises(
        CheckpointError, match="fake:causal: no replica is left; each has died 3 times while it"
    ):
        opened(SimulatedRay([1, 1]), monkeypatch, Dying)


def test_when_no_node_is_left_the_run_ends_with_a_line_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimulatedRay([1, 1])
    engine = opened(cluster, monkeypatch)
    for node in list(cluster.machines):
        cluster.later(5.0, lambda node=node: cluster.kill_node(node))  # type: ignore[misc]
    told: dict[int, Any] = {}
    with pytest.raises(
        ServerError, match=r"no node .* room for a replica .* is kept; the same command goes on"
    ):
        engine.answer(asked(3000), told.__setitem__)
    assert 0 < len(told) < 3000


def test_a_node_that_comes_back_in_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimulatedRay([1])
    engine = opened(cluster, monkeypatch, count=1)
    cluster.later(3.0, lambda: cluster.kill_node(cluster.machines[0], back_after=60.0))
    assert engine.answer(asked(2000)) == FakeEngine(fake()).answer(asked(2000))


def test_what_replicas_have_spent_is_kept_when_they_die(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(Replica):
        def answer(self, requests: Sequence[Request]) -> Any:
            self.spent = getattr(self, "spent", 0) + len(requests)
            return super().answer(requests)._replace(usage={"tokens": self.spent})

    cluster = SimulatedRay([1, 1])
    engine = opened(cluster, monkeypatch, Counting)
    for at in (4.2, 11.3):
        cluster.later(at, lambda: cluster.kill_actor(cluster.actors[0]))
    engine.answer(asked(3000))
    assert engine.usage["deaths"] == 2
    assert engine.usage["tokens"] == 3000


def test_a_request_is_not_given_up_for_the_deaths_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimulatedRay([1])
    engine = opened(cluster, monkeypatch, count=1)
    for at in (8.0, 60.0, 110.0, 160.0):
        cluster.later(at, lambda: cluster.kill_node(cluster.machines[-1], back_after=10.0))
    found = engine.answer(asked(1))
    assert found == FakeEngine(fake()).answer(asked(1))


@pytest.mark.parametrize("kills", [KillsProcessError, KillsNodeError])
def test_a_request_that_kills_its_process_or_its_node_is_found(
    kills: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying(Replica):
        def answer(self, requests: Sequence[Request]) -> Computed:
            if any(getattr(one, "continuation", "") == "321" for one in requests):
                raise kills
            return super().answer(requests)

    engine = opened(SimulatedRay([1, 1]), monkeypatch, Dying)
    found, right = engine.answer(asked(1000)), FakeEngine(fake()).answer(asked(1000))
    assert [number for number, one in enumerate(found) if one != right[number]] == [321]
    assert isinstance(found[321], Refusal)
    assert "the process that computes it has died" in found[321].reason


def test_another_model_on_a_node_to_which_a_replica_moves_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Elsewhere(Replica):
        def load(self, wanted: WantedCheckpoint) -> Load:
            return (
                Load("node2: /m has the fingerprint b")
                if cluster.node_here == "node2"
                else super().load(wanted)
            )

    cluster = SimulatedRay([1, 1])
    engine = opened(cluster, monkeypatch, Elsewhere)
    cluster.later(3.0, lambda: cluster.kill_node(cluster.machines[0], back_after=1.0))
    with pytest.raises(ServerError, match=r"fake:causal: node2: /m has the .* the same command goes on"):
        engine.answer(asked(2000))


def test_files_that_a_node_lacks_are_sent_once_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = find_checkpoints([str(tiny_causal(tmp_path / "model", seed=0))]).infos[0]
    cluster = SimulatedRay([1, 1])
    monkeypatch.setattr("pytest_touchstone.engines.replicas.ray_replicas.are_here", lambda info: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = opened(cluster, monkeypatch, info=info)
    requests = [Generate(f"{number} and", max_new_tokens=3) for number in range(40)]
    assert engine.answer(requests) == open_engine(info, SETTINGS).answer(requests)
    there = tmp_path / "touchstone-weights" / str(identity(info))
    names = {path.name for path in there.glob("0/*")}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert len(cluster.stored) == len(names)
    engine.close()
    (there / "0" / "config.json").write_text("{}")  # of an earlier run, and not whole
    with pytest.raises(CheckpointError):
        opened(cluster, monkeypatch, info=info)


def test_a_unit_that_comes_to_a_process_that_has_not_loaded_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = SimulatedRay([1, 1])
    engine = opened(cluster, monkeypatch)
    for actor in cluster.actors:  # died and started anew while no call was under way
        actor.process = actor.make()
    assert engine.answer(asked(2000)) == FakeEngine(fake()).answer(asked(2000))
    assert engine.usage["deaths"] >= 1
