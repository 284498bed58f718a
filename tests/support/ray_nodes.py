"""A real Ray of a head and two nodes on this machine, replicas that note their processes, and what kills them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.requests import Request
from pytest_touchstone.engines.replicas.replica import Replica, UnitAnswers

QUICK_TO_NOTICE = {
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 300,
    "health_check_failure_threshold": 3,
}


class Cluster:
    """A head without CPUs, where the driver is, and two nodes for a replica each."""

    def __init__(self) -> None:
        ray = pytest.importorskip("ray", reason="the package ray is not installed")
        from ray.cluster_utils import Cluster as RayCluster

        self.ray = RayCluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": QUICK_TO_NOTICE},
        )
        self.nodes: list[Any] = []
        self.fill()
        ray.init(address=self.ray.address, log_to_driver=False, logging_level="ERROR")

    def fill(self) -> None:
        """Add nodes until there are two."""
        while len(self.nodes) < 2:
            self.nodes.append(self.ray.add_node(num_cpus=1))

    def kill_node(self, which: int) -> None:
        """Kill a raylet, and with it the actor of its node."""
        self.ray.remove_node(self.nodes.pop(which), allow_graceful=False)

    def close(self) -> None:
        import ray

        ray.shutdown()
        self.ray.shutdown()


def noting(folder: Path, pause: float, poison: str | None = None) -> type[Replica]:
    """A replica that notes its process in a folder when it answers, is slow, and dies of a request."""

    class Noting(Replica):
        def answer(self, requests: Sequence[Request]) -> UnitAnswers | None:
            (folder / f"pid-{os.getpid()}").touch()
            time.sleep(pause)
            if any(getattr(request, "continuation", "") == poison for request in requests):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().answer(requests)

    return Noting


def kill_actor(folder: Path) -> None:
    """Kill the process of an actor that answers, as soon as there is one."""
    for _ in range(1200):
        for path in sorted(folder.glob("pid-*")):
            path.unlink()
            try:
                os.kill(int(path.name.partition("-")[2]), signal.SIGKILL)
            except ProcessLookupError:
                continue
            return
        time.sleep(0.05)
    raise AssertionError("no actor answers")
