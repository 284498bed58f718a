"""With one thread and the same plan of units, replicas give the records of one process, byte for byte.

The plan is which units a replica computes, and in which order: an engine keeps prefixes from one call to the next, so
that what it computed before decides which tokens it computes together, and so the last digits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import find_checkpoints
from pytest_touchstone.core.benchmark import Benchmark, Dataset
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.requests import (
    Answer,
    Generate,
    Loglikelihood,
    Refusal,
    Request,
    RollingLoglikelihood,
)
from pytest_touchstone.engines.base import Done, Engine
from pytest_touchstone.engines.registry import identity, open_engine
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.ray_replicas import RayReplicas
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.plugin.driver import Job, RunningBatch, run_batch
from pytest_touchstone.results.journal import Journal, read_journal
from tests.support.simulated_ray import open_alone
from tests.support.tiny import tiny_causal

pytestmark = pytest.mark.slow

SETTINGS = ModelSettings(device="cpu", threads=1)

ITEMS = 640
"""Enough for ten units: one has 64 texts at least."""

SPEC = Benchmark(
    name="all-kinds",
    version=1,
    data=Dataset(local="x/x"),
    asks=(Loglikelihood, RollingLoglikelihood, Generate),
    primary="margin",
    metrics=("margin", "text", "length"),
)


def item(n: int) -> Any:
    """An item with a request of each kind, at once."""
    context = "and so on " * (n * 7 % 30)
    first, second, whole, said = yield [
        Loglikelihood(context, f" {n}"),
        Loglikelihood(context, f" {n + 1} more"),
        RollingLoglikelihood(f"{n} {context}and then {n}"),
        Generate(f"{context}{n}", max_new_tokens=4 + n % 9),
    ]
    return {"margin": first.logprob - second.logprob, "text": whole.logprob, "length": len(said.text)}


class Noting(RayReplicas):
    """Replicas of which it is noted what each was sent."""

    def __init__(self) -> None:
        super().__init__(SETTINGS, target_of("ray:2"))
        self.sent: dict[int, list[list[Request]]] = {}

    def submit(self, replica: int, unit: int, requests: Sequence[Request]) -> None:
        self.sent.setdefault(replica, []).append(list(requests))
        super().submit(replica, unit, requests)


class Replayed(Engine):
    """An engine of this process that has computed a plan, with a model for each replica."""

    def __init__(self, info: CheckpointInfo, plan: Iterable[Sequence[Sequence[Request]]]) -> None:
        self.info = info
        self._answers: dict[Request, Answer | Refusal] = {}
        for units in plan:
            engine = open_engine(info, SETTINGS)
            for unit in units:
                self._answers |= dict(zip(unit, engine.answer(unit), strict=True))
            engine.close()

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        del done
        return [self._answers[one] for one in requests]


def records_by(engine: Engine, folder: Path) -> dict[str, str]:
    """The records of all items as the journal has them, but for the seconds."""
    folder.mkdir()
    jobs = [
        Job(f"t::{n}", SPEC, Example(f"x/{n}", None, {}, "hash"), "c", lambda n=n: item(n))  # type: ignore[misc]
        for n in range(ITEMS)
    ]
    with Journal(folder, "main") as journal:
        run_batch(RunningBatch(jobs, engine), engine, journal)
    records = [replace(one, seconds=0.0) for one in read_journal(folder)]
    return {one.item: json.dumps(asdict(one), sort_keys=True) for one in records}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster with a CPU, and so a thread, for each of two actors."""
    ray = pytest.importorskip("ray", reason="the package ray is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def test_two_actors_and_one_process_write_the_same_bytes(cluster: None, tmp_path: Path) -> None:
    del cluster
    size: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 3}
    info = find_checkpoints([str(tiny_causal(tmp_path / "model", seed=0, **size))]).infos[0]
    transport = Noting()
    there = open_alone(info, transport, identity(info))
    while not all(one.ready for one in there._work.held.holders.values()):  # both are to compute
        there.collect(wait=False)
        time.sleep(0.05)
    found = records_by(there, tmp_path / "there")
    units = there.usage["units"]
    there.close()
    assert len(transport.sent) == 2
    assert sum(map(len, transport.sent.values())) == units > 8
    right = records_by(Replayed(info, transport.sent.values()), tmp_path / "here")
    assert len(right) == ITEMS
    assert found == right
