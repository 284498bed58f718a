"""A cluster of Ray: how it is reached, what a replica needs of it, and whether a node has that."""

from __future__ import annotations

import logging
import os
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.replicas.target import RayTarget
from pytest_touchstone.engines.settings import ModelSettings

NEEDS: Final = "needs the package ray: pip install 'pytest-touchstone[ray]'"

NAMES: Final = {"num_cpus": "CPU", "num_gpus": "GPU"}
"""The resources of an actor's options, as nodes have them."""


class Share(NamedTuple):
    """The resources of an actor, the number of actors, and the threads of each."""

    needs: dict[str, Any]
    replicas: int
    threads: int | None


def start(target: RayTarget) -> Any:
    """Return the package, connected: to the address, to that of ``RAY_ADDRESS``, to a cluster that runs on this
    machine, or to a new one."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise CheckpointError(f"--eval-engine {target.text} {NEEDS}") from error
    if not ray.is_initialized():
        address = f"ray://{target.address}" if target.address else None
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # of many kinds, all of which mean that there is no cluster
            first = str(error).strip().partition("\n")[0]
            raise CheckpointError(f"--eval-engine {target.text}: no cluster of Ray: {first}") from error
    return ray


def share_of(ray: Any, settings: ModelSettings, target: RayTarget) -> Share:
    """Return what each actor gets.

    An actor has an accelerator where the cluster has any and the run does not ask for CPUs, else its part of the CPUs.
    """
    there = ray.cluster_resources()
    cards, cpus = int(there.get("GPU", 0)), max(1, int(there.get("CPU", 1)))
    if cards and settings.device != "cpu":
        return Share({"num_gpus": 1, "num_cpus": 1}, target.count or cards, settings.threads)
    nodes = max(1, sum(1 for one in ray.nodes() if one["Alive"] and one["Resources"].get("CPU")))
    count = target.count or nodes
    threads = max(1, cpus // count)
    return Share({"num_cpus": min(threads, cpus // nodes) or 1}, count, threads)


def has_room(ray: Any, needs: dict[str, Any]) -> bool:
    """Return whether a node that lives has what a replica needs, taken or not."""
    wanted = {NAMES[name]: number for name, number in needs.items()}
    return any(
        one["Alive"] and all(one["Resources"].get(name, 0) >= number for name, number in wanted.items())
        for one in ray.nodes()
    )


def lives(ray: Any, node: str) -> bool:
    """Return whether a node is alive, as far as the cluster knows."""
    return any(one["Alive"] for one in ray.nodes() if one["NodeID"] == node)
