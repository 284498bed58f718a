"""A series on a played Ray whose actors and nodes die: each request is answered once, and by its own checkpoint."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_touchstone.core.requests import Answer, Loglikelihood, LoglikelihoodAnswer, Refusal, Request
from pytest_touchstone.engines.base import Receiver
from pytest_touchstone.engines.registry import identity
from pytest_touchstone.engines.replicas.engine import ReplicatedSeries
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.ray_replicas import Computed, RayReplicas, Replica
from tests.engines.replicas.test_schedule import asked, fake
from tests.support.killed_replicas import SETTINGS, Plan
from tests.support.simulated_ray import SimulatedRay


class Named(Replica):
    """A replica whose answers tell the checkpoint that it holds."""

    def answer(self, requests: Sequence[Request]) -> Computed:
        found = super().answer(requests)
        if not found.has_loaded:
            return found
        assert self._holds is not None
        name = str(self._holds.row["name"])
        return found._replace(answers=[answer_of(name, one) for one in requests], seconds=1.0)


def answer_of(name: str, request: Request) -> LoglikelihoodAnswer:
    assert isinstance(request, Loglikelihood)
    return LoglikelihoodAnswer(-float(int(name[1:]) * 10_000 + int(request.continuation)), False, 1)


@pytest.mark.parametrize("seed", range(25))
def test_each_request_is_answered_once_by_its_own_checkpoint(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(seed)
    cluster = SimulatedRay(
        plan.nodes,
        seed,
        stray=plan.draw.choice((0.0, 0.02, 0.1)),
        large=plan.draw.choice((0.0, 0.5)),
        seconds=lambda method, _: {"load": 8.0, "alive": 0.1}.get(method, 1.0),
    )
    monkeypatch.setattr("pytest_touchstone.engines.replicas.ray_replicas.start", lambda target: cluster)
    monkeypatch.setattr(
        "pytest_touchstone.engines.replicas.ray_replicas.node_here", lambda: cluster.node_here
    )
    monkeypatch.setattr("pytest_touchstone.engines.replicas.ray_replicas.AGAIN", 0.0)
    for _ in range(plan.draw.randint(1, 6)):
        cluster.later(plan.draw.uniform(0.0, 90.0), lambda: plan.kill(cluster))
    series = ReplicatedSeries(RayReplicas(SETTINGS, target_of(f"ray:{plan.replicas}"), Named))
    infos = [replace(fake(), name=f"c{number}") for number in range(plan.draw.randint(1, 5))]
    engines = [series.open(info, identity(info)) for info in infos]
    found: dict[tuple[str, int], Answer | Refusal] = {}
    requests = {info.name: asked(random.Random(seed + n).randint(1, 900)) for n, info in enumerate(infos)}

    def done_of(name: str, first: int) -> Receiver:
        def done(number: int, answer: Answer | Refusal | Exception) -> None:
            assert not isinstance(answer, Exception)
            assert (name, first + number) not in found
            found[name, first + number] = answer

        return done

    for engine in engines:
        mine = requests[engine.info.name]
        half = len(mine) // 2
        for first, part in (
            (0, mine[:half]),
            (half, mine[half:]),
        ):  # the second batch comes while the first is asked
            engine.submit(part, done_of(engine.info.name, first))
            engine.collect(wait=False)
        engine.expect(len(mine), 0)
    for engine in engines:
        while not all((engine.info.name, n) in found for n in range(len(requests[engine.info.name]))):
            engine.collect(wait=True)
    told = "\n".join([f"seed {seed}", *cluster.happened])
    for name, asked_of in requests.items():
        assert [found[name, n] for n in range(len(asked_of))] == [answer_of(name, one) for one in asked_of], (
            told
        )
