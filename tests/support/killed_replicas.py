"""Runs on a played Ray that are killed: the real schedule, driver and journal, and what a seed lets happen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.benchmark import Benchmark, Dataset
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.requests import Generate, Loglikelihood, Request
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.engines.registry import identity
from pytest_touchstone.engines.replicas.engine import ReplicatedEngine
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.ray_replicas import Computed, RayReplicas, Replica
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.plugin.driver import Job, RunningBatch, run_batch
from pytest_touchstone.results.journal import Journal, read_journal
from tests.engines.replicas.test_schedule import fake
from tests.support.simulated_ray import KillsNodeError, KillsProcessError, SimulatedRay, open_alone

SETTINGS = ModelSettings(device="cpu", threads=1, engine="ray")

BATCH = 120
"""The items of a batch: each of several is killed into."""

SPEC = Benchmark(
    name="sums",
    version=1,
    data=Dataset(local="x/x"),
    asks=(Loglikelihood, Generate),
    primary="acc",
    metrics=("acc", "margin", "length"),
)


class DriverKilledError(BaseException):
    """The end of the driver's process."""


def item(n: int) -> Any:
    """An item that asks twice: for log-probabilities, then for a text that depends on them."""
    context = "and so on " * (n * 7 % 60)
    answers = yield [Loglikelihood(context, f" {n} {option}") for option in "abc"]
    best = max(range(3), key=lambda one: answers[one].logprob)
    text = yield Generate(f"{context}{n} {'abc'[best]}", max_new_tokens=5 + n % 20)
    return {
        "acc": float(best == 0),
        "margin": answers[0].logprob - answers[1].logprob,
        "length": len(text.text),
    }


def job(n: int) -> Job:
    return Job(f"t::{n}", SPEC, Example(f"x/{n}", None, {}, "hash"), "c", lambda: item(n))


def run_items(numbers: Sequence[int], engine: Engine, folder: Path, batch: int = BATCH) -> None:
    """Run items batch by batch, as a session does."""
    folder.mkdir(parents=True, exist_ok=True)
    with Journal(folder, "main") as journal:
        for begin in range(0, len(numbers), batch):
            jobs = [job(n) for n in numbers[begin : begin + batch]]
            run_batch(RunningBatch(jobs, engine), engine, journal)


@dataclass
class Plan:
    """What a seed decides: the cluster, the items, and what kills."""

    seed: int
    draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        draw = self.draw = random.Random(self.seed)
        self.items = draw.randint(60, 400)
        self.nodes = [draw.randint(1, 2) for _ in range(draw.randint(1, 4))]
        self.replicas = draw.randint(1, sum(self.nodes))
        self.poison = draw.randrange(self.items) if draw.random() < 0.25 else None
        self.kills: type[BaseException] = draw.choice((KillsProcessError, KillsProcessError, KillsNodeError))

    def kill(self, cluster: SimulatedRay) -> None:
        """Let something die now: an actor, a node, two things at once, or a replica that is just loading anew."""
        for _ in range(self.draw.choice((1, 1, 2))):
            if self.draw.random() < 0.6:
                cluster.kill_actor(self.draw.choice(cluster.actors))
                continue
            node = self.draw.choice([one for one in cluster.machines if one.alive] or cluster.machines)
            others = any(one.alive and one.cpus >= node.cpus for one in cluster.machines if one is not node)
            again = self.draw.uniform(1.0, 60.0)
            cluster.kill_node(node, back_after=None if others and self.draw.random() < 0.3 else again)


def poisoned(plan: Plan) -> type[Replica]:
    """A replica's process that dies of one item's requests."""
    mark = None if plan.poison is None else f" {plan.poison} "

    class Dying(Replica):
        def answer(self, requests: Sequence[Request]) -> Computed:
            texts = [getattr(one, "continuation", "") for one in requests]
            if mark is not None and any(text.startswith(mark) for text in texts):
                raise plan.kills
            return super().answer(requests)

    return Dying


def records_of(folders: Sequence[Path]) -> tuple[dict[str, Any], Counter[str]]:
    """The scores of all items by a journal of several lives, and how often each is there."""
    records = [one for folder in folders for one in read_journal(folder)]
    return (
        {one.item: (one.status, one.scores, one.exchanges) for one in records},
        Counter(one.item for one in records),
    )


def killed_run(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Path], SimulatedRay]:
    """Run the same command again and again until nobody kills the driver; return the folders of its lives."""
    cluster = SimulatedRay(
        plan.nodes,
        plan.seed,
        stray=plan.draw.choice((0.0, 0.02, 0.1)),
        large=plan.draw.choice((0.0, 0.5)),
        seconds=lambda method, _: {"load": 8.0, "alive": 0.1}.get(method, 1.0),
    )
    monkeypatch.setattr("pytest_touchstone.engines.replicas.ray_replicas.start", lambda target: cluster)
    monkeypatch.setattr(
        "pytest_touchstone.engines.replicas.ray_replicas.node_here", lambda: cluster.node_here
    )
    monkeypatch.setattr("pytest_touchstone.engines.replicas.ray_replicas.AGAIN", 0.0)
    info = fake()
    folders: list[Path] = []
    drivers = plan.draw.choice((0, 0, 1, 2))
    while True:
        folders.append(tmp_path / f"life{len(folders)}")
        done, _ = records_of(folders)
        left = [n for n in range(plan.items) if f"t::{n}" not in done]
        engine: ReplicatedEngine | None = None
        for _ in range(plan.draw.randint(1, 6)):
            cluster.later(plan.draw.uniform(0.0, 90.0), lambda: plan.kill(cluster))
        if drivers:
            cluster.later(plan.draw.uniform(0.0, 60.0), lambda: kill_driver(cluster))
        try:
            target = target_of(f"ray:{plan.replicas}")
            engine = open_alone(info, RayReplicas(SETTINGS, target, poisoned(plan)), identity(info))
            run_items(left, engine, folders[-1])
        except DriverKilledError:
            drivers -= 1
            folders[-1].mkdir(parents=True, exist_ok=True)
            for actor in cluster.actors:  # they belong to the driver
                actor.dead = True
                cluster.kill_actor(actor)
            if plan.draw.random() < 0.5:
                (folders[-1] / "items").mkdir(exist_ok=True)
                with (folders[-1] / "items" / "items-main.jsonl").open("ab") as file:
                    file.write(b'{"schema":1,"item":"t::')  # the line that it was writing
            continue
        engine.close()
        return folders, cluster


def kill_driver(cluster: SimulatedRay) -> None:
    cluster.happened.append(f"{cluster.now:.1f} the driver dies")
    raise DriverKilledError


def unkilled(items: int, folder: Path) -> dict[str, Any]:
    """The scores of a run in one process, of which nothing is killed."""
    run_items(range(items), FakeEngine(fake()), folder)
    return records_of([folder])[0]
