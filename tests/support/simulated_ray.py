"""Ray played in one process, in time of its own: nodes, actors, calls, and what can happen to them by a seed.

It behaves as Ray 2.60 was seen to behave with actors of ``max_restarts=-1`` and ``max_task_retries=0``. A call under
way when its actor dies ends with ``ActorUnavailableError``, and so does one that is sent while the actor restarts. A
call with retries waits. A large answer lies on its node, and is lost with it. A call may also end with an error while
its actor lives: whether it was computed then is open.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.engines.replicas.engine import ReplicatedEngine, ReplicatedSeries
from pytest_touchstone.engines.replicas.transport import ReplicaTransport


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


class ActorUnschedulableError(RayError):
    pass


class ObjectLostError(RayError):
    pass


class OwnerDiedError(ObjectLostError):
    pass


class NodeDiedError(RayError):
    pass


class LocalRayletDiedError(RayError):
    pass


class RaySystemError(RayError):
    pass


EXCEPTIONS = (
    *(RayError, RayTaskError, RayActorError, ActorDiedError, ActorUnavailableError, ActorUnschedulableError),
    *(ObjectLostError, OwnerDiedError, NodeDiedError, LocalRayletDiedError, RaySystemError),
)

STRAY = (ActorUnavailableError, ObjectLostError, OwnerDiedError, NodeDiedError, RaySystemError)
"""The errors with which a call may end while its actor lives."""


@dataclass(slots=True)
class Node:
    """A node with CPUs, and those that actors hold."""

    name: str
    cpus: int
    alive: bool = True
    held: int = 0


@dataclass(eq=False, slots=True)
class Call:
    """A call of an actor's method, and how it has ended."""

    actor: Actor
    method: str
    arguments: tuple[Any, ...]
    retries: bool
    ended: bool = False
    value: Any = None
    error: RayError | None = None
    lies_on: Node | None = None

    def __await__(self) -> Any:
        raise NotImplementedError


@dataclass(eq=False, slots=True)
class Actor:
    """An actor: its process, if it has one now, and its calls in order."""

    make: Callable[[], Any]
    cpus: int
    number: int
    node: Node | None = None
    process: Any = None
    epoch: int = 0
    dead: bool = False
    seeks: bool = True
    queue: list[Call] = field(default_factory=list)
    busy: Call | None = None


class _Method:
    def __init__(self, cluster: SimulatedRay, actor: Actor, name: str, retries: bool = False) -> None:
        self._cluster, self._actor, self._name, self._retries = cluster, actor, name, retries

    def options(self, *, max_task_retries: int = 0) -> _Method:
        return _Method(self._cluster, self._actor, self._name, max_task_retries == -1)

    def remote(self, *arguments: Any) -> Call:
        return self._cluster.submit(Call(self._actor, self._name, arguments, self._retries))


class _Handle:
    def __init__(self, cluster: SimulatedRay, actor: Actor) -> None:
        self._cluster, self._actor = cluster, actor

    def __getattr__(self, name: str) -> _Method:
        return _Method(self._cluster, self._actor, name)


class SimulatedRay:
    """The package ``ray`` as the replicas use it.

    ``seconds`` gives the time of a call by its method and arguments. ``stray`` is the chance that a call that was
    computed ends with an error all the same; ``large`` that its answer lies on its node.
    """

    def __init__(
        self,
        nodes: Sequence[int],
        seed: int = 0,
        *,
        stray: float = 0.0,
        large: float = 0.0,
        stray_errors: Sequence[type[RayError]] = STRAY,
        seconds: Callable[[str, tuple[Any, ...]], float] = lambda method, arguments: 1.0,
    ) -> None:
        self.draw = random.Random(seed)
        self.now = 0.0
        self.machines = [Node(f"node{number}", cpus) for number, cpus in enumerate(nodes)]
        self.actors: list[Actor] = []
        self.here: Node | None = None
        self.exceptions = SimpleNamespace(**{one.__name__: one for one in EXCEPTIONS})
        self.happened: list[str] = []
        self.stored: list[Any] = []
        self.most_waits = 200_000
        self._stray, self._large, self._stray_errors, self._seconds = (
            stray,
            large,
            tuple(stray_errors),
            seconds,
        )
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def node_here(self) -> str:
        """The node of the method that runs now."""
        assert self.here is not None
        return self.here.name

    # What the replicas use

    def remote(self, **options: Any) -> Callable[[type[Any]], Any]:
        assert options.pop("max_restarts") == -1
        assert options.pop("max_task_retries") == 0

        def made(kind: type[Any]) -> Any:
            def begin(*arguments: Any) -> _Handle:
                actor = Actor(lambda: kind(*arguments), options["num_cpus"], len(self.actors))
                self.actors.append(actor)
                self._place(actor)
                return _Handle(self, actor)

            return SimpleNamespace(remote=begin)

        return made

    def submit(self, call: Call) -> Call:
        actor = call.actor
        if actor.dead:
            self._end(call, error=ActorDiedError("it is dead"))
        elif actor.process is None and not call.retries and actor.epoch:
            self.later(2.0, lambda: self._end(call, error=ActorUnavailableError("The actor is restarting.")))
        else:
            actor.queue.append(call)
            self._next(actor)
        return call

    def wait(
        self, calls: Sequence[Call], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Call], list[Call]]:
        assert 1 <= num_returns <= len(calls)
        end = None if timeout is None else self.now + timeout
        self.most_waits -= 1
        assert self.most_waits, "it waits again and again"
        while sum(call.ended for call in calls) < num_returns:
            if end is not None and (not self._events or self._events[0][0] > end):
                self.now = end
                break
            assert self._events, "it waits for what can never happen"
            self.now, _, event = heapq.heappop(self._events)
            event()
        ended = [call for call in calls if call.ended][:num_returns]
        return ended, [call for call in calls if call not in ended]

    def get(self, call: Call) -> Any:
        assert call.ended
        if call.error is not None:
            raise call.error
        if call.lies_on is not None and not call.lies_on.alive:
            raise ObjectLostError("its node has died")
        return call.value

    def put(self, value: Any) -> Any:
        self.stored.append(value)
        return value

    def kill(self, handle: _Handle, no_restart: bool = True) -> None:
        actor = handle._actor
        actor.dead = no_restart
        self.kill_actor(actor)

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": one.name,
                "Alive": one.alive,
                "Resources": {"CPU": float(one.cpus)} if one.alive else {},
            }
            for one in self.machines
        ]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(sum(one.cpus for one in self.machines if one.alive))}

    # What can happen

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen after so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def kill_actor(self, actor: Actor) -> None:
        """Kill the process of an actor; Ray starts another."""
        self.happened.append(f"{self.now:.1f} actor {actor.number} dies")
        epoch, waiting = actor.epoch, list(actor.queue)
        if actor.node is not None and actor.process is not None:
            actor.node.held -= actor.cpus
        actor.process = actor.node = actor.busy = None
        actor.epoch += 1
        actor.queue = [call for call in waiting if call.retries and not actor.dead]
        for call in waiting:
            if call not in actor.queue:
                error = ActorDiedError("killed") if actor.dead else ActorUnavailableError("Socket closed")
                self._end(call, error=error, after=self.draw.uniform(0.0, 2.0))
        if epoch or waiting:
            del epoch
        if not actor.dead:
            self.later(1.0, lambda: self._place(actor))

    def kill_node(self, node: Node, back_after: float | None = None) -> None:
        """Kill a node with all its actors; another comes after so many seconds, or none."""
        if not node.alive:
            return
        self.happened.append(f"{self.now:.1f} {node.name} dies")
        node.alive = False
        for actor in self.actors:
            if actor.node is node:
                self.kill_actor(actor)
        if back_after is not None:
            self.later(back_after, lambda: self.add_node(node.cpus))

    def add_node(self, cpus: int) -> None:
        """Add a node."""
        self.machines.append(Node(f"node{len(self.machines)}", cpus))
        for actor in self.actors:
            self._place(actor)

    # Parts

    def _place(self, actor: Actor) -> None:
        if actor.dead or actor.process is not None:
            return
        room = [one for one in self.machines if one.alive and one.cpus - one.held >= actor.cpus]
        if not room:
            if not any(one.alive for one in self.machines):
                return  # a new node places it
            epoch = actor.epoch
            self.later(1.0, lambda: self._place(actor) if actor.epoch == epoch else None)
            return
        node = self.draw.choice(room)
        node.held += actor.cpus
        actor.node, actor.process, actor.busy = node, actor.make(), None
        actor.epoch += 1
        self._next(actor)

    def _next(self, actor: Actor) -> None:
        if actor.process is None or actor.busy is not None or not actor.queue:
            return
        call = actor.busy = actor.queue[0]
        epoch = actor.epoch
        took = self._seconds(call.method, call.arguments) * self.draw.uniform(0.5, 1.5)
        self.later(took, lambda: self._compute(actor, call) if actor.epoch == epoch else None)

    def _compute(self, actor: Actor, call: Call) -> None:
        self.here = actor.node
        assert actor.node is not None
        try:
            value = getattr(actor.process, call.method)(*call.arguments)
        except KillsProcessError:
            self.kill_actor(actor)
            return
        except KillsNodeError:
            self.kill_node(actor.node, back_after=20.0)
            return
        finally:
            self.here = None
        actor.queue.remove(call)
        actor.busy = None
        if not call.retries and self.draw.random() < self._stray:
            self._end(call, error=self.draw.choice(self._stray_errors)("lost on its way"))
        else:
            lies_on = actor.node if self.draw.random() < self._large else None
            self._end(call, value=value, lies_on=lies_on, after=self.draw.uniform(0.0, 0.2))
        self._next(actor)

    def _end(
        self,
        call: Call,
        *,
        value: Any = None,
        error: RayError | None = None,
        lies_on: Node | None = None,
        after: float = 0.0,
    ) -> None:
        def end() -> None:
            if not call.ended:
                call.ended, call.value, call.error, call.lies_on = True, value, error, lies_on

        self.later(after, end)


def open_alone(
    info: CheckpointInfo, transport: ReplicaTransport, fingerprint: str | None = None
) -> ReplicatedEngine:
    """Return the only checkpoint of a transport's replicas, when the first of them has loaded it.

    Raises ``CheckpointError`` where a replica finds another checkpoint, or none can load it, and ``ServerError``
    where there is no place for any.
    """
    found = ReplicatedSeries(transport).open(info, fingerprint)
    try:
        found.load()
    except BaseException:
        transport.close()
        raise
    return found
