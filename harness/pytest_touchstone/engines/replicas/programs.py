"""Programs in the sandboxes of a cluster's nodes, each sent to the node with the least work.

An actor on each node with CPUs opens that node's sandbox, self-test included. It reserves nothing, since a sandbox
limits its programs itself. A program is judged there by the very code that judges here: a node whose code or Python is
another is not used, nor is one without a sandbox, and both are named. What judges a program stays outside its process
there as here: tests and expected values go to the actor, and from there only to the test runner.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.core.errors import CheckpointError, SandboxError
from pytest_touchstone.core.requests import RunProgram, RunProgramAnswer
from pytest_touchstone.engines.replicas.ray_cluster import RayTarget, nodes_with_cpus, start
from pytest_touchstone.engines.sandbox import SandboxSettings
from pytest_touchstone.engines.sandbox.cache import SingleFlight, judging_code
from pytest_touchstone.engines.sandbox.soundness import SandboxRunner, SelfCheckingSandbox

if TYPE_CHECKING:
    from pytest_touchstone.engines.sandbox.sandbox import Sandbox

AT_ONCE: Final = 64
"""The maximum number of programs that a node is sent at once; its sandbox runs as many as fit."""

MOST_TRIES: Final = 2
"""The retries of Ray for a program whose actor has died: as many as a sandbox that ends gets."""

OPENING: Final = 120.0
"""Seconds in which a node must open its sandbox."""


class ProgramHost:
    """The actor's side: the sandbox of its node."""

    def __init__(self, settings: SandboxSettings, judged_by: str) -> None:
        """Store the settings; ``judged_by`` is the hash of the driver's code for verdicts."""
        self._settings, self._judged_by = settings, judged_by
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None

    def fault(self) -> str | None:
        """Open the sandbox; return the reason if it cannot be used, else None."""
        if judging_code() != self._judged_by:
            return "its Python, or its code that judges programs, is another than here"
        try:
            self._opened()
        except SandboxError as error:
            return str(error)
        return None

    def run(self, request: RunProgram) -> RunProgramAnswer:
        """Return the answer for a program; called in several threads."""
        return self._opened().run(request)

    def _opened(self) -> Sandbox:
        from pytest_touchstone.engines.sandbox.sandbox import start as start_sandbox

        with self._lock:  # the process may have been started anew
            if self._sandbox is None:
                self._sandbox = start_sandbox(self._settings)
            return self._sandbox


class _Host(NamedTuple):
    node: str
    name: str
    actor: Any


class ClusterPrograms(SandboxRunner):
    """A sandbox that runs programs on the nodes that have one; equal programs run once."""

    def __init__(
        self,
        settings: SandboxSettings,
        target: RayTarget,
        say: Callable[[str], object] = lambda _: None,
        kind: type[ProgramHost] = ProgramHost,
    ) -> None:
        """Open the nodes' sandboxes; ``say`` gets a line about each node that is not used.

        Raises ``SandboxError`` if no node has a sandbox, or there is no cluster.
        """
        try:
            self._ray = start(target)
        except CheckpointError as error:
            raise SandboxError(str(error)) from error
        self._lock = threading.Lock()
        self._known: SingleFlight[RunProgram, RunProgramAnswer] = SingleFlight()
        self._hosts: dict[str, _Host] = {}
        self._load: Counter[str] = Counter()
        left_out = self._open([self._host(node, settings, kind) for node in nodes_with_cpus(self._ray)])
        if not self._hosts:
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
        for host in self._hosts.values():
            self._ray.kill(host.actor)

    def _host(self, node: dict[str, Any], settings: SandboxSettings, kind: type[ProgramHost]) -> _Host:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = self._ray.remote(
            num_cpus=0,
            max_restarts=MOST_TRIES,
            max_task_retries=MOST_TRIES,
            max_concurrency=AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )(kind)
        name = node.get("NodeManagerHostname") or node["NodeID"]
        return _Host(node["NodeID"], name, actor.remote(settings, judging_code()))

    def _open(self, hosts: list[_Host]) -> list[str]:
        """Take the nodes with a sandbox that judges like this process; return a line about each other node."""
        left_out = []
        calls = [(host, host.actor.fault.remote()) for host in hosts]
        for host, call in calls:
            try:
                fault = self._ray.get(call, timeout=OPENING)
            except self._ray.exceptions.RayError as error:
                fault = _first_line(error)
            if fault is None:
                self._hosts[host.node] = host
            else:
                left_out.append(f"node {host.name} runs no programs: {fault}")
                self._ray.kill(host.actor)
        return left_out

    def _send(self, request: RunProgram, future: Future[RunProgramAnswer]) -> None:
        """Send a program to the least loaded node; to another one if that dies."""
        with self._lock:
            host = min(self._hosts.values(), key=lambda host: self._load[host.node])
            self._load[host.node] += 1

        def ended(call: Future[RunProgramAnswer]) -> None:
            error = call.exception()
            with self._lock:
                self._load[host.node] -= 1
                others = self._hosts.keys() - {host.node}
                if lost := isinstance(error, self._ray.exceptions.RayActorError) and bool(others):
                    self._hosts.pop(host.node, None)
            if error is None:
                future.set_result(call.result())
            elif lost:
                self._send(request, future)
            else:
                future.set_exception(
                    SandboxError(f"node {host.name} did not run a program: {_first_line(error)}")
                )

        host.actor.run.remote(request).future().add_done_callback(ended)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def open_on_nodes(
    settings: SandboxSettings, target: RayTarget, say: Callable[[str], object]
) -> SelfCheckingSandbox:
    """Return the cluster's sandboxes, which check the tests of every task before they judge programs.

    Raises ``SandboxError`` if no node has one.
    """
    return SelfCheckingSandbox(ClusterPrograms(settings, target, say), settings.kind)
