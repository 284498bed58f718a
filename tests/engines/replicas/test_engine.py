"""On a played Ray, whatever dies and whenever: every request has its answer once, or is given up by name."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import find_checkpoints
from pytest_touchstone.core.errors import CheckpointError, ServerError
from pytest_touchstone.core.requests import Generate, Refusal, Request
from pytest_touchstone.engines.answers.engine import AnswersEngine
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.engines.registry import identity, open_engine
from pytest_touchstone.engines.replicas import open_pool
from pytest_touchstone.engines.replicas.engine import Replicas, ReplicatedEngine
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.replica import LoadOutcome, Replica, UnitAnswers, WantedCheckpoint
from pytest_touchstone.engines.settings import ModelSettings
from tests.engines.replicas.test_units import asked
from tests.support import simulated_ray
from tests.support.lines import naming
from tests.support.simulated_ray import KillsNodeError, KillsProcessError, SimulatedRay
from tests.support.tiny import tiny_causal

SETTINGS = ModelSettings(device="cpu", threads=1, engine="ray:2")


def fake() -> CheckpointInfo:
    return find_checkpoints(["fake:causal"]).infos[0]


def right(requests: Sequence[Request]) -> list[Any]:
    return FakeEngine(fake()).answer(requests)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that starts replicas of a played Ray."""

    def start(cluster: SimulatedRay, kind: type[Replica] = Replica, count: int = 2) -> Replicas:
        monkeypatch.setattr("pytest_touchstone.engines.replicas.engine.start", lambda target: cluster)
        return Replicas(SETTINGS, target_of(f"ray:{count}"), kind)

    return start


def opened(replicas: Replicas) -> ReplicatedEngine:
    return ReplicatedEngine(replicas, fake())


def killing(kills: type[BaseException], *continuations: str) -> type[Replica]:
    """A replica that dies of requests with these continuations."""

    class Dying(Replica):
        def answer(self, requests: Sequence[Request]) -> UnitAnswers | None:
            if any(getattr(request, "continuation", "") in continuations for request in requests):
                raise kills
            return super().answer(requests)

    return Dying


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_changed_whatever_dies_and_only_poison_is_given_up(
    seed: int, started: Any
) -> None:
    draw = random.Random(seed)
    nodes = [draw.randint(1, 2) for _ in range(draw.randint(1, 4))]
    poison = {str(draw.randrange(1000)) for _ in range(draw.choice((0, 0, 1, 2)))}
    cluster = SimulatedRay(nodes, seed, strays=draw.choice((0.0, 0.02, 0.1)))
    kills = draw.choice((KillsProcessError, KillsNodeError))
    engine = opened(started(cluster, killing(kills, *poison), draw.randint(1, sum(nodes))))

    def kill() -> None:
        if draw.random() < 0.6:
            cluster.kill_actor(draw.choice(cluster.actors))
        elif alive := [node for node in cluster.machines if node.alive]:
            others = draw.random() < 0.3 and len(alive) > 1 and max(nodes) == 1
            cluster.kill_node(draw.choice(alive), back_after=None if others else draw.randint(1, 20))

    for _ in range(draw.randint(1, 6)):
        cluster.later(draw.randint(1, 60), kill)
    told: dict[int, Any] = {}

    def done(number: int, answer: Any) -> None:
        assert number not in told
        told[number] = answer

    requests = asked(1000)
    answers = engine.answer(requests, done)
    assert told == dict(enumerate(answers))
    differing = {number for number, answer in enumerate(right(requests)) if answers[number] != answer}
    assert differing == set(map(int, poison))
    assert all(isinstance(answers[number], Refusal) for number in differing)


@pytest.mark.parametrize("kills", [KillsProcessError, KillsNodeError])
def test_poison_among_ten_thousand_is_found_with_few_deaths(kills: type[BaseException], started: Any) -> None:
    engine = opened(started(SimulatedRay([1, 1]), killing(kills, "4321")))
    answers = engine.answer(asked(10_000))
    refused = {number: answer for number, answer in enumerate(answers) if isinstance(answer, Refusal)}
    assert [*refused] == [4321]
    assert "3 times" in refused[4321].reason
    assert engine.usage["deaths"] <= 20


def test_an_error_is_found_without_a_death(started: Any) -> None:
    class Raising(Replica):
        def answer(self, requests: Sequence[Request]) -> UnitAnswers | None:
            if any(getattr(request, "continuation", "") == "77" for request in requests):
                raise ValueError("no")
            return super().answer(requests)

    engine = opened(started(SimulatedRay([1, 1]), Raising))
    answers = engine.answer(asked(500))
    refusals = {number: answer for number, answer in enumerate(answers) if isinstance(answer, Refusal)}
    assert refusals == {77: Refusal("ValueError: no")}
    assert "deaths" not in engine.usage


@pytest.mark.parametrize("error", [simulated_ray.ObjectLostError, simulated_ray.ActorUnavailableError])
def test_an_answer_that_is_lost_on_its_way_is_asked_again(
    error: type[simulated_ray.RayError], started: Any
) -> None:
    engine = opened(started(SimulatedRay([1, 1], strays=0.2, error=error)))
    assert engine.answer(asked(2000)) == right(asked(2000))


def test_a_node_that_is_lost_for_good_leaves_its_unit_to_the_others(started: Any) -> None:
    cluster = SimulatedRay([1, 1])
    engine = opened(started(cluster))
    cluster.later(3, lambda: cluster.kill_node(cluster.machines[0]))
    assert engine.answer(asked(2000)) == right(asked(2000))
    assert engine.usage["deaths"] == 1


def test_a_node_that_comes_back_in_time_is_waited_for(started: Any) -> None:
    cluster = SimulatedRay([1])
    engine = opened(started(cluster, count=1))
    cluster.later(3, lambda: cluster.kill_node(cluster.machines[0], back_after=20))
    assert engine.answer(asked(2000)) == right(asked(2000))


def test_when_no_node_is_left_the_run_ends_with_a_line_that_says_so(started: Any) -> None:
    cluster = SimulatedRay([1, 1])
    engine = opened(started(cluster))
    for node in cluster.machines:
        cluster.later(4, lambda node=node: cluster.kill_node(node))  # type: ignore[misc]
    told: dict[int, Any] = {}
    with pytest.raises(ServerError, match=naming("no node", "replica", "kept", "same command")):
        engine.answer(asked(3000), told.__setitem__)
    assert 0 < len(told) < 3000


def test_a_cluster_that_is_not_reached_any_more_ends_the_run(started: Any) -> None:
    cluster = SimulatedRay([1, 1])
    engine = opened(started(cluster))
    cluster._strays, cluster._error = 1.0, simulated_ray.LocalRayletDiedError
    with pytest.raises(ServerError, match=naming("cluster", "Ray")):
        engine.answer(asked(5))


def test_what_replicas_have_spent_is_kept_when_they_die(started: Any) -> None:
    class Counting(Replica):
        spent = 0

        def answer(self, requests: Sequence[Request]) -> UnitAnswers | None:
            self.spent += len(requests)
            computed = super().answer(requests)
            return None if computed is None else computed._replace(usage={"tokens": self.spent})

    cluster = SimulatedRay([1, 1])
    engine = opened(started(cluster, Counting))
    for waits in (4, 12):
        cluster.later(waits, lambda: cluster.kill_actor(cluster.actors[0]))
    engine.answer(asked(3000))
    assert engine.usage["tokens"] == 3000
    assert engine.usage["replicas"] == 2


def test_a_process_that_was_started_anew_and_holds_nothing_loads_again(started: Any) -> None:
    cluster = SimulatedRay([1, 1])
    engine = opened(started(cluster))
    assert len(engine.answer(asked(500))) == 500
    for actor in cluster.actors:
        actor.process = actor.make()
    assert engine.answer(asked(2000)) == right(asked(2000))


def test_a_slow_replica_gets_less(started: Any) -> None:
    computed = [0, 0]

    class Counted(Replica):
        def answer(self, requests: Sequence[Request]) -> UnitAnswers | None:
            computed[[actor.process for actor in cluster.actors].index(self)] += len(requests)
            return super().answer(requests)

    cluster = SimulatedRay([1, 1], slow=[0])
    opened(started(cluster, Counted)).answer(asked(20_000))
    assert computed[0] < computed[1] / 2


@pytest.mark.parametrize(("says", "least"), [(None, 64), (16, 16), (256, 256)])
def test_units_have_as_many_texts_as_the_engine_of_a_replica_says(
    says: int | None, least: int, started: Any
) -> None:
    sizes: list[int] = []

    class Telling(Replica):
        def load(self, wanted: WantedCheckpoint, files: Mapping[str, Any]) -> LoadOutcome:
            return super().load(wanted, files)._replace(texts=says)

        def answer(self, requests: Sequence[Request]) -> UnitAnswers | None:
            sizes.append(len(requests))
            return super().answer(requests)

    requests: list[Request] = [Generate(f"say {number}", max_new_tokens=8) for number in range(1100)]
    assert opened(started(SimulatedRay([1, 1]), Telling)).answer(requests) == right(requests)
    assert sum(sizes) == len(requests)
    assert least <= sorted(sizes)[1] < 2 * least


@pytest.mark.parametrize(("batch", "texts"), [(None, 64), (7, 7)])
def test_a_replica_says_how_many_texts_its_engine_continues_together(
    tmp_path: Path, batch: int | None, texts: int
) -> None:
    info = find_checkpoints([str(tiny_causal(tmp_path / "model"))]).infos[0]
    replica = Replica(ModelSettings(device="cpu", batch=batch))
    assert replica.load(WantedCheckpoint(info.plain(), identity(info)), {}).texts == texts


def test_replicas_that_die_whenever_they_load_are_an_error_and_load_the_next_checkpoint(
    started: Any, tmp_path: Path
) -> None:
    class Dying(Replica):
        def load(self, wanted: WantedCheckpoint, files: Mapping[str, Any]) -> LoadOutcome:
            if wanted.row["name"] != "model":
                raise KillsProcessError
            return super().load(wanted, files)

    replicas = started(SimulatedRay([1, 1]), Dying)
    with pytest.raises(CheckpointError, match=naming("fake-causal", "replica", "3 times")):
        opened(replicas)
    info = find_checkpoints([str(tiny_causal(tmp_path / "model"))]).infos[0]
    assert len(ReplicatedEngine(replicas, info).answer(asked(20))) == 20


def test_replicas_that_refuse_a_checkpoint_load_the_next(started: Any, tmp_path: Path) -> None:
    class Refusing(Replica):
        def load(self, wanted: WantedCheckpoint, files: Mapping[str, Any]) -> LoadOutcome:
            return (
                LoadOutcome("it is broken") if wanted.row["name"] != "model" else super().load(wanted, files)
            )

    replicas = started(SimulatedRay([1, 1]), Refusing)
    with pytest.raises(CheckpointError, match="fake-causal: it is broken"):
        opened(replicas)
    engine = ReplicatedEngine(replicas, find_checkpoints([str(tiny_causal(tmp_path / "model"))]).infos[0])
    assert len(engine.answer(asked(3000))) == 3000
    assert engine.usage["replicas"] == 2


def test_a_replica_that_cannot_load_is_left_out(started: Any) -> None:
    class Dying(Replica):
        def load(self, wanted: WantedCheckpoint, files: Mapping[str, Any]) -> LoadOutcome:
            if cluster.here is cluster.machines[0]:
                raise KillsProcessError
            return super().load(wanted, files)

    cluster = SimulatedRay([1, 1])
    engine = opened(started(cluster, Dying))
    assert engine.answer(asked(2000)) == right(asked(2000))
    assert engine.usage["replicas"] == 1


def test_another_model_on_a_node_to_which_a_replica_moves_ends_the_run(started: Any) -> None:
    class Elsewhere(Replica):
        def load(self, wanted: WantedCheckpoint, files: Mapping[str, Any]) -> LoadOutcome:
            if cluster.here is not None and cluster.here.name == "node2":
                wanted = wanted._replace(fingerprint="0123456789abcdef")
            return super().load(wanted, files)

    cluster = SimulatedRay([1, 1])
    engine = opened(started(cluster, Elsewhere))
    cluster.later(3, lambda: cluster.kill_node(cluster.machines[0], back_after=1))
    with pytest.raises(
        ServerError, match=naming("fake-causal", "fingerprint", "0123456789ab", "same command")
    ):
        engine.answer(asked(2000))


def test_files_that_a_node_lacks_are_sent_once_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Any
) -> None:
    ray = pytest.importorskip("ray", reason="the package ray is not installed")
    monkeypatch.setattr(ray, "get", lambda stored: stored)
    info = find_checkpoints([str(tiny_causal(tmp_path / "model", seed=0))]).infos[0]
    cluster = SimulatedRay([1, 1])
    monkeypatch.setattr("pytest_touchstone.engines.replicas.replica.are_here", lambda info: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = ReplicatedEngine(started(cluster), info)
    requests = [Generate(f"{number} and", max_new_tokens=3) for number in range(40)]
    assert engine.answer(requests) == open_engine(info, SETTINGS).answer(requests)
    there = tmp_path / "touchstone-weights" / str(identity(info))
    names = {path.name for path in there.glob("0/*")}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert len(cluster.stored) == len(names)
    assert [path.name for path in there.parent.iterdir()] == [there.name]
    (there / "0" / "config.json").write_text("{}")  # of an earlier run, and not whole
    with pytest.raises(CheckpointError):
        ReplicatedEngine(started(SimulatedRay([1, 1])), info)


def test_an_exception_of_the_caller_leaves_the_engine_able_to_answer(started: Any) -> None:
    engine = opened(started(SimulatedRay([1, 1])))

    def leave(number: int, answer: Any) -> None:
        raise KeyError(number)

    with pytest.raises(KeyError):
        engine.answer(asked(3000), leave)
    others = [Generate(f"{number} and", max_new_tokens=3) for number in range(300)]
    assert engine.answer(others) == right(others)


def test_a_file_of_answers_is_opened_without_replicas(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"id": "1", "prompt": "a", "response": "b"}\n', encoding="utf-8")
    (info,) = find_checkpoints([f"answers:{path}"]).infos
    with closing(open_pool(SETTINGS)) as pool:
        assert isinstance(pool.engine(info), AnswersEngine)
