"""Ray played in one process: nodes, actors, calls, and what can happen to them by a seed.

It behaves as Ray 2.60 was seen to behave with actors of ``max_restarts=-1``. A call under way when its actor dies ends
with ``ActorUnavailableError``, and so does one that is sent while the actor waits for a process. A call with retries
waits. A call may also end with an error while its actor lives.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class KillsProcessError(BaseException):
    """Raised by an actor's method whose process dies of it."""


class KillsNodeError(BaseException):
    """Raised by an actor's method that takes the whole node along."""


class RayError(Exception):
    """As in Ray, and the following likewise."""


class RayTaskError(RayError):
    pass


class RayActorError(RayError):
    pass


class ActorDiedError(RayActorError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class ObjectLostError(RayError):
    pass


class LocalRayletDiedError(RayError):
    pass


EXCEPTIONS = (
    RayError,
    RayTaskError,
    RayActorError,
    ActorDiedError,
    ActorUnavailableError,
    ObjectLostError,
    LocalRayletDiedError,
)


@dataclass(eq=False)
class Node:
    """A node with CPUs."""

    name: str
    cpus: int
    alive: bool = True


@dataclass(eq=False)
class Call:
    """A call of an actor's method, and how it has ended."""

    method: str
    arguments: tuple[Any, ...]
    retries: bool
    ended: bool = False
    value: Any = None
    error: RayError | None = None

    def end(self, value: Any = None, error: RayError | None = None) -> None:
        self.ended, self.value, self.error = True, value, error


@dataclass(eq=False)
class Actor:
    """An actor: its process and its node, if it has any now, and its open calls in order; also its own handle."""

    make: Callable[[], Any]
    cpus: int
    process: Any = None
    node: Node | None = None
    restarts: bool = False
    gone: bool = False
    calls: list[Call] = field(default_factory=list)

    def __getattr__(self, method: str) -> Any:
        def caller(max_task_retries: int = 0) -> Any:
            def remote(*arguments: Any) -> Call:
                call = Call(method, arguments, bool(max_task_retries))
                if self.gone:
                    call.end(error=ActorDiedError("The actor died"))
                elif self.restarts and self.process is None and not call.retries:
                    call.end(error=ActorUnavailableError("The actor is restarting"))
                else:
                    self.calls.append(call)
                return call

            return SimpleNamespace(remote=remote, options=caller)

        return caller()


class SimulatedRay:
    """The package ``ray``, as far as replicas use it. ``here`` is the node of the call that is computed now.

    With each waiting one call ends, of an actor that is drawn, or nothing happens where none can. ``strays`` is the
    share of answers that are lost with an ``error`` while their actor lives.
    """

    def __init__(
        self,
        cpus: Sequence[int],
        seed: int = 0,
        *,
        strays: float = 0.0,
        error: type[RayError] = ObjectLostError,
        slow: Sequence[int] = (),
    ) -> None:
        self.machines = [Node(f"node{number}", count) for number, count in enumerate(cpus)]
        self.actors: list[Actor] = []
        self.stored: list[Any] = []
        self.waits = 0
        self.here: Node | None = None
        self.exceptions = SimpleNamespace(**{kind.__name__: kind for kind in EXCEPTIONS})
        self._draw = random.Random(seed)
        self._strays, self._error, self._slow = strays, error, slow
        self._later: list[tuple[int, Callable[[], object]]] = []

    def remote(self, **options: Any) -> Any:
        assert options["max_restarts"] == -1

        def made(kind: type[Any]) -> Any:
            def begin(*arguments: Any) -> Actor:
                self.actors.append(Actor(lambda: kind(*arguments), options["num_cpus"]))
                return self.actors[-1]

            return SimpleNamespace(remote=begin)

        return made

    def wait(
        self, calls: Sequence[Call], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Call], list[Call]]:
        assert 1 <= num_returns <= len(calls)
        if timeout != 0:
            self.waits += 1
            assert self.waits < 100_000, "it waits again and again"
            for event in [event for at, event in self._later if at == self.waits]:
                event()
            self._place()
            if not any(call.ended for call in calls):
                self._compute()
        ended = [call for call in calls if call.ended][:num_returns]
        return ended, [call for call in calls if call not in ended]

    def get(self, call: Call) -> Any:
        assert call.ended
        if call.error is not None:
            raise call.error
        return call.value

    def put(self, value: Any) -> Any:
        self.stored.append(value)
        return value

    def kill(self, actor: Actor, no_restart: bool = True) -> None:
        actor.gone = no_restart
        self.kill_actor(actor)

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": node.name,
                "Alive": node.alive,
                "Resources": {"CPU": float(node.cpus)} if node.alive else {},
            }
            for node in self.machines
        ]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(sum(node.cpus for node in self.machines if node.alive))}

    # What can happen

    def later(self, waits: int, event: Callable[[], object]) -> None:
        """Let something happen when the driver waits for so many more times."""
        self._later.append((self.waits + waits, event))

    def kill_actor(self, actor: Actor) -> None:
        """Kill the process of an actor; Ray starts another."""
        actor.process = actor.node = None
        actor.restarts = True
        calls, actor.calls = actor.calls, []
        for call in calls:
            if call.retries and not actor.gone:
                actor.calls.append(call)
            else:
                call.end(error=ActorUnavailableError("Socket closed"))

    def kill_node(self, node: Node, back_after: int | None = None) -> None:
        """Kill a node with its actors; another comes when the driver has waited so often, or none."""
        node.alive = False
        for actor in self.actors:
            if actor.node is node:
                self.kill_actor(actor)
        if back_after is not None:
            self.later(back_after, lambda: self.add_node(node.cpus))

    def add_node(self, cpus: int) -> None:
        """Add a node."""
        self.machines.append(Node(f"node{len(self.machines)}", cpus))

    def _place(self) -> None:
        for actor in self.actors:
            if actor.process is None and not actor.gone:
                free = {node: node.cpus for node in self.machines if node.alive}
                for other in self.actors:
                    if other.node is not None:
                        free[other.node] -= other.cpus
                room = [node for node, cpus in free.items() if cpus >= actor.cpus]
                if room:
                    actor.node, actor.process = self._draw.choice(room), actor.make()

    def _compute(self) -> None:
        able = [actor for actor in self.actors if actor.process is not None and actor.calls]
        if not able:
            return
        weights = [0.1 if self.actors.index(actor) in self._slow else 1.0 for actor in able]
        (actor,) = self._draw.choices(able, weights)
        call, self.here = actor.calls[0], actor.node
        assert actor.node is not None
        try:
            call.end(getattr(actor.process, call.method)(*call.arguments))
        except KillsProcessError:
            self.kill_actor(actor)
            return
        except KillsNodeError:
            self.kill_node(actor.node, back_after=20)
            return
        except Exception as error:
            call.end(error=RayTaskError(f"Traceback\n{type(error).__name__}: {error}"))
        actor.calls.remove(call)
        if not call.retries and self._draw.random() < self._strays:
            call.end(error=self._error("lost on its way"))
