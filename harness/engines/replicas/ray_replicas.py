"""Replicas of a checkpoint as actors of Ray, which places, starts and restarts them and carries what is said.

An actor loads its checkpoint in its constructor, and finds the fingerprint by itself: a path may hold something else
on its node. Ray restarts an actor that died as often as it takes, and calls nothing twice: a lost unit is the
schedule's to send again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from harness.checkpoints import CheckpointInfo
from harness.checkpoints.info import info_from_plain
from harness.core.errors import CheckpointError, HarnessError
from harness.core.requests import Request
from harness.engines.replicas.target import RayTarget
from harness.engines.replicas.transport import Answered, Died, Event, Failed, Loaded, Refused
from harness.engines.settings import ModelSettings

NEEDS: Final = "needs the package ray: pip install 'pytest-touchstone[ray]'"


class Replica:
    """An actor's side: a loaded checkpoint, or the reason why there is none."""

    def __init__(self, row: dict[str, Any], settings: ModelSettings, fingerprint: str | None) -> None:
        from harness.engines.registry import identity, open_engine

        began = time.monotonic()
        info = info_from_plain(row)
        self._fault: str | None = None
        try:
            own = identity(info)
            if own != fingerprint:
                self._fault = (
                    f"{os.uname().nodename}: {info.path} has the fingerprint {(own or 'none')[:12]}, and here "
                    f"{(fingerprint or 'none')[:12]} was asked for"
                )
                return
            self._engine = open_engine(info, settings)
        except HarnessError as error:
            self._fault = f"{os.uname().nodename}: {error}"
        self._seconds = time.monotonic() - began

    def loaded(self) -> tuple[str | None, float]:
        """Return why it cannot answer, None where it can, and the seconds of loading."""
        return self._fault, getattr(self, "_seconds", 0.0)

    def answer(self, requests: Sequence[Request]) -> tuple[list[Any], dict[str, Any], str | None]:
        """Return the answers of a unit, the usage so far, and an error in place of both."""
        try:
            return list(self._engine.answer(requests)), self._engine.usage, None
        except Exception as error:  # of this unit alone; the driver finds out of which request
            return [], {}, f"{type(error).__name__}: {error}"


class RayReplicas:
    """The transport of Ray: an actor for each replica, and the calls under way."""

    def __init__(
        self,
        info: CheckpointInfo,
        settings: ModelSettings,
        target: RayTarget,
        fingerprint: str | None,
        kind: type[Replica] = Replica,
    ) -> None:
        """Raises ``CheckpointError`` where there is no Ray, or no cluster at the address."""
        self._ray = start(target)
        resources, count, threads = needs_of(self._ray, settings, target)
        actor = self._ray.remote(**resources, max_restarts=-1, max_task_retries=0)(kind)
        own = replace(settings, threads=threads, engine=None)
        self._actors = [actor.remote(info.plain(), own, fingerprint) for _ in range(count)]
        self._calls: dict[Any, tuple[int, int | None]] = {}
        for number in self.replicas:
            self._load(number)

    @property
    def replicas(self) -> Sequence[int]:
        """The replicas, by number."""
        return range(len(self._actors))

    def submit(self, replica: int, unit: int, requests: Sequence[Request]) -> None:
        """Send a unit to an actor."""
        self._calls[self._actors[replica].answer.remote(list(requests))] = replica, unit

    def wait(self) -> list[Event]:
        """Return what the calls that have ended say; of an actor that died, its death once."""
        ended, _ = self._ray.wait(list(self._calls), num_returns=1)
        more, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        found: list[Event] = []
        for call in dict.fromkeys([*ended, *more]):
            if call in self._calls:
                found += self._ended(call)
        return found

    def drop(self, replica: int) -> None:
        """End an actor for good."""
        self._calls = {call: one for call, one in self._calls.items() if one[0] != replica}
        with contextlib.suppress(Exception):
            self._ray.kill(self._actors[replica], no_restart=True)

    def close(self) -> None:
        """End the actors for good."""
        self._calls.clear()
        for actor in self._actors:
            with contextlib.suppress(Exception):  # one that is dead already, or a cluster that is gone
                self._ray.kill(actor, no_restart=True)

    def _load(self, replica: int) -> None:
        self._calls[self._actors[replica].loaded.remote()] = replica, None

    def _ended(self, call: Any) -> list[Event]:
        replica, unit = self._calls.pop(call)
        try:
            said = self._ray.get(call)
        except self._ray.exceptions.RayActorError:
            # All other calls of the actor fail likewise; they are of the same death.
            lost = [one for one, (who, _) in self._calls.items() if who == replica]
            for one in lost:
                del self._calls[one]
            self._load(replica)
            return [Died(replica)]
        if unit is None:
            fault, seconds = said
            return [Loaded(replica, seconds) if fault is None else Refused(replica, fault)]
        answers, usage, error = said
        return [Answered(replica, unit, answers, usage) if error is None else Failed(replica, unit, error)]


def start(target: RayTarget) -> Any:
    """Return the package, connected: to the address, to that of ``RAY_ADDRESS``, or to a cluster of this machine."""
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


def needs_of(ray: Any, settings: ModelSettings, target: RayTarget) -> tuple[dict[str, Any], int, int | None]:
    """Return an actor's resources, the number of actors, and the threads of each.

    An actor has an accelerator where the cluster has any and the run does not ask for CPUs, else its part of the CPUs.
    """
    there = ray.cluster_resources()
    cards, cpus = int(there.get("GPU", 0)), max(1, int(there.get("CPU", 1)))
    if cards and settings.device != "cpu":
        return {"num_gpus": 1, "num_cpus": 1}, target.count or cards, settings.threads
    nodes = max(1, sum(1 for one in ray.nodes() if one["Alive"]))
    count = target.count or nodes
    threads = max(1, cpus // count)
    return {"num_cpus": min(threads, cpus // nodes) or 1}, count, threads
