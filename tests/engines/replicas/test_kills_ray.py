"""Actors and nodes of a real cluster of two nodes are killed while they answer; also by what they are asked."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints.resolve import find_checkpoints
from pytest_touchstone.core.requests import Request
from pytest_touchstone.engines.registry import identity
from pytest_touchstone.engines.replicas.engine import ReplicatedEngine
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.replicas.ray_replicas import (
    Computed,
    Load,
    RayReplicas,
    Replica,
    WantedCheckpoint,
)
from tests.support.killed_replicas import SETTINGS, records_of, run_items, unkilled
from tests.support.simulated_ray import open_alone

pytestmark = pytest.mark.slow

ITEMS = 300

QUICK_TO_NOTICE = {
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 300,
    "health_check_failure_threshold": 3,
}


class Cluster:
    """A head without CPUs, where the driver is, and two nodes for a replica each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        self.ray = RayCluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": QUICK_TO_NOTICE},
        )
        self.nodes = [self.ray.add_node(num_cpus=1) for _ in range(2)]

    def kill_node(self, which: int) -> None:
        """Kill a raylet; another node comes in its place."""
        self.ray.remove_node(self.nodes[which], allow_graceful=False)
        self.nodes[which] = self.ray.add_node(num_cpus=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    ray = pytest.importorskip("ray", reason="the package ray is not installed")
    found = Cluster()
    ray.init(address=found.ray.address, log_to_driver=False, logging_level="ERROR")
    yield found
    ray.shutdown()
    found.ray.shutdown()


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return unkilled(ITEMS, tmp_path_factory.mktemp("right"))


def engine_of(folder: Path, poison: str | None = None) -> ReplicatedEngine:
    """Two replicas that note their processes in a folder, and that a request may kill."""

    class Killable(Replica):
        def load(self, wanted: WantedCheckpoint) -> Load:
            (folder / f"pid-{os.getpid()}").touch()
            return super().load(wanted)

        def answer(self, requests: Sequence[Request]) -> Computed:
            time.sleep(0.02)
            if poison is not None and any(
                getattr(one, "continuation", "").startswith(poison) for one in requests
            ):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().answer(requests)

    info = find_checkpoints(["fake:causal"]).infos[0]
    return open_alone(info, RayReplicas(SETTINGS, target_of("ray:2"), Killable), identity(info))


def kill_one(folder: Path, draw: random.Random) -> None:
    """Kill the process of an actor, if one is there now."""
    for path in draw.sample(found := sorted(folder.glob("pid-*")), len(found)):
        path.unlink()
        try:
            os.kill(int(path.name.partition("-")[2]), signal.SIGKILL)
        except ProcessLookupError:
            continue
        return


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_double_or_changed_in_a_real_cluster(
    cluster: Cluster, right: dict[str, Any], seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    (tmp_path / "pids").mkdir()
    engine = engine_of(tmp_path / "pids")
    kills = ["node"] if seed % 4 == 3 else ["actor"] * draw.choice((1, 2))
    kills += ["actor"] if seed % 8 == 7 else []  # while the node dies

    with ThreadPoolExecutor(1) as pool:  # a node can only be started by the main thread
        running = pool.submit(run_items, range(ITEMS), engine, tmp_path / "run")
        for one in kills:
            time.sleep(draw.uniform(0.0, 0.5))
            if one == "actor":
                kill_one(tmp_path / "pids", draw)
            else:
                cluster.kill_node(draw.randrange(2))
        running.result()
    engine.close()
    found, often = records_of([tmp_path / "run"])
    assert found == right
    assert set(often.values()) == {1}


def test_an_item_that_kills_its_process_is_found_by_two_actors(
    cluster: Cluster, right: dict[str, Any], tmp_path: Path
) -> None:
    del cluster
    (tmp_path / "pids").mkdir()
    engine = engine_of(tmp_path / "pids", poison=" 123 ")
    try:
        run_items(range(ITEMS), engine, tmp_path / "run")
    finally:
        engine.close()
    found, often = records_of([tmp_path / "run"])
    status, _, _ = found.pop("t::123")
    assert status == "error"
    assert found == {item: one for item, one in right.items() if item != "t::123"}
    assert set(often.values()) == {1}
