"""Programs in the sandboxes of a cluster's nodes: a runner that sends each to the node with the least to do.

An actor on each node with CPUs opens that node's sandbox, self-test included. It reserves nothing, since a sandbox
limits its programs itself. A program is judged there by the very code that judges here: a node whose code or Python is
another is not used, nor is one without a sandbox, and both are named. What judges a program stays outside its process
there as here: tests and expected values go to the actor, and from there only to the test runner.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.core.errors import CheckpointError, SandboxError
from pytest_touchstone.core.requests import RunProgram, RunProgramAnswer
from pytest_touchstone.engines.replicas.ray_cluster import RayTarget, start
from pytest_touchstone.engines.sandbox.cache import OnceByKey, judging_code
from pytest_touchstone.engines.sandbox.settings import SandboxSettings
from pytest_touchstone.engines.sandbox.soundness import CheckedSandbox, SandboxRunner

if TYPE_CHECKING:
    from pytest_touchstone.engines.sandbox.sandbox import Sandbox

AT_ONCE: Final = 64
"""The most programs that a node is sent at once; its sandbox runs as many as it has room for."""

MOST_TRIES: Final = 2
"""The times that a program is sent again whose actor or node has died: as often as a sandbox that ends tries anew."""

OPENING: Final = 120.0
"""Seconds in which a node must open its sandbox."""


class Opened(NamedTuple):
    """A node's sandbox: the reason why there is none, None where there is one, and the hash of the code that judges."""

    fault: str | None
    judged_by: str


class ProgramHost:
    """An actor's side: the sandbox of its node."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None

    def open(self) -> Opened:
        """Open the sandbox, or say why there is none."""
        try:
            self._opened()
        except SandboxError as error:
            return Opened(str(error), "")
        return Opened(None, judging_code())

    def run(self, request: RunProgram) -> RunProgramAnswer:
        """Return what becomes of a program; called in several threads."""
        return self._opened().run(request)

    def _opened(self) -> Sandbox:
        from pytest_touchstone.engines.sandbox.sandbox import start as start_sandbox

        with self._lock:  # the process may have been started anew
            if self._sandbox is None:
                self._sandbox = start_sandbox(self._settings)
            return self._sandbox


class _Host(NamedTuple):
    name: str
    actor: Any


class ClusterPrograms(SandboxRunner):
    """Runs programs on the nodes that have a sandbox; equal ones run once."""

    def __init__(
        self,
        settings: SandboxSettings,
        target: RayTarget,
        say: Callable[[str], object] = lambda _: None,
        kind: type[ProgramHost] = ProgramHost,
    ) -> None:
        """``say`` is told of each node that is not used, and why.

        Raises ``SandboxError`` where no node has a sandbox, or there is no cluster.
        """
        try:
            self._ray = start(target)
        except CheckpointError as error:
            raise SandboxError(str(error)) from error
        self._lock = threading.Lock()
        self._known: OnceByKey[RunProgram, RunProgramAnswer] = OnceByKey()
        self._hosts, left_out = self._usable([self._host(node, settings, kind) for node in self._nodes()])
        self._load = [0.0] * len(self._hosts)
        if not self._hosts:
            self.close()
            raise SandboxError("; ".join(left_out) or "no node of Ray's cluster has CPUs")
        for line in left_out:
            say(line)

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
        """Return a future that will hold the answer."""
        future, new = self._known.future(request)
        if new:
            self._send(request, future)
        return future

    def close(self) -> None:
        """End the actors, and with them the programs that are still running."""
        for host in self._hosts:
            self._ray.kill(host.actor)

    def _nodes(self) -> list[dict[str, Any]]:
        return [one for one in self._ray.nodes() if one["Alive"] and one["Resources"].get("CPU")]

    def _host(self, node: dict[str, Any], settings: SandboxSettings, kind: type[ProgramHost]) -> _Host:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = self._ray.remote(
            num_cpus=0,
            max_restarts=MOST_TRIES,
            max_task_retries=MOST_TRIES,
            max_concurrency=AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )(kind)
        return _Host(node.get("NodeManagerHostname") or node["NodeID"], actor.remote(settings))

    def _usable(self, hosts: list[_Host]) -> tuple[list[_Host], list[str]]:
        """Return the nodes with a sandbox that judges as this process would, and a line about each other one."""
        usable, left_out = [], []
        calls = [(host, host.actor.open.remote()) for host in hosts]
        for host, call in calls:
            try:
                found = self._ray.get(call, timeout=OPENING)
            except self._ray.exceptions.RayError as error:
                found = Opened(str(error).strip().partition("\n")[0], "")
            fault = found.fault
            if fault is None and found.judged_by != judging_code():
                fault = "its Python, or its code that judges programs, is another than here"
            if fault is None:
                usable.append(host)
            else:
                left_out.append(f"node {host.name} runs no programs: {fault}")
                self._ray.kill(host.actor)
        return usable, left_out

    def _send(self, request: RunProgram, future: Future[RunProgramAnswer], tries: int = 0) -> None:
        with self._lock:
            number = min(range(len(self._hosts)), key=self._load.__getitem__)
            self._load[number] += 1

        def ended(call: Future[RunProgramAnswer]) -> None:
            with self._lock:
                self._load[number] -= 1
            if (error := call.exception()) is None:
                future.set_result(call.result())
                return
            if tries < MOST_TRIES and not isinstance(error, self._ray.exceptions.RayTaskError):
                with self._lock:
                    self._load[number] = math.inf  # its node has died
                self._send(request, future, tries + 1)
                return
            first = str(error).strip().partition("\n")[0]
            future.set_exception(
                SandboxError(f"node {self._hosts[number].name} did not run a program: {first}")
            )

        self._hosts[number].actor.run.remote(request).future().add_done_callback(ended)


def open_on_nodes(
    settings: SandboxSettings, target: RayTarget, say: Callable[[str], object]
) -> CheckedSandbox:
    """Return the cluster's sandboxes, which try the tests of every task before programs are judged by them.

    Raises ``SandboxError`` where no node has one.
    """
    return CheckedSandbox(ClusterPrograms(settings, target, say), settings.kind)
