"""A cluster of Ray: its name in ``--eval-engine``, the connection, and a replica's resources.

ray                a replica for each accelerator of the cluster, or one for each node without any
ray:4              four, in the cluster of RAY_ADDRESS, else in one that runs on this machine, else in a new one
ray://HOST:10001   in a cluster that is reached as Ray's clients reach it; ray:4://HOST:10001 four of them
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class RayTarget:
    """A number of replicas (None: as many as fit) in a Ray cluster (None: the environment's, or a new one)."""

    text: str
    count: int | None = None
    address: str | None = None


def parse_engine(text: str) -> str:
    """Return the option's text if ``target_of`` accepts it. Raises ``ValueError`` with the expected form."""
    target_of(text)
    return text


def target_of(text: str) -> RayTarget:
    """Parse the option. Raises ``ValueError`` with the expected form."""
    match = re.fullmatch(r"ray(?::([1-9][0-9]{0,4}))?(?:://([^/\s]+))?", text)
    if match is None:
        raise ValueError("ray, ray:NUMBER, ray://HOST:PORT or ray:NUMBER://HOST:PORT")
    count, address = match.groups()
    return RayTarget(text, int(count) if count else None, address)


NEEDS: Final = "needs the package ray: pip install 'pytest-touchstone[ray]'"

NAMES: Final = {"num_cpus": "CPU", "num_gpus": "GPU"}
"""The resources of an actor's options, as nodes have them."""


class ActorShare(NamedTuple):
    """The resources of an actor, the number of actors, and the threads of each."""

    needs: dict[str, Any]
    replicas: int
    threads: int | None


def start(target: RayTarget) -> Any:
    """Connect to a cluster and return the package ``ray``.

    The order is: the address, that of ``RAY_ADDRESS``, a cluster that runs on this machine, a new one.
    """
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


def nodes_with_cpus(ray: Any) -> list[dict[str, Any]]:
    """Return the nodes that live and have CPUs."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]


def share_of(ray: Any, settings: ModelSettings, target: RayTarget) -> ActorShare:
    """Return the resources of each actor.

    An actor has an accelerator if the cluster has any and the run does not ask for CPUs, else its part of the CPUs.
    """
    there = ray.cluster_resources()
    cards, cpus = int(there.get("GPU", 0)), max(1, int(there.get("CPU", 1)))
    if cards and settings.device != "cpu":
        return ActorShare({"num_gpus": 1, "num_cpus": 1}, target.count or cards, settings.threads)
    nodes = max(1, len(nodes_with_cpus(ray)))
    count = target.count or nodes
    threads = max(1, cpus // count)
    return ActorShare({"num_cpus": min(threads, cpus // nodes) or 1}, count, threads)


def has_room(ray: Any, needs: dict[str, Any]) -> bool:
    """Return whether a live node has the resources of a replica, free or not."""
    wanted = {NAMES[name]: number for name, number in needs.items()}
    return any(
        all(node["Resources"].get(name, 0) >= number for name, number in wanted.items())
        for node in nodes_with_cpus(ray)
    )
