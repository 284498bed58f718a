"""``ReplicatedEngine``: one checkpoint in several processes, behind the seam of engines.

Replicas are actors of Ray, which places them, starts them again when they die, and carries what is said. What is ours
is which unit of requests goes to which replica. Each replica holds the checkpoint that is asked now. It loads that in a
call of its own; then it answers one unit after the other. Records and the journal stay with the driver, the only
process that writes.

A unit may be computed anywhere, so Ray repeats none: a lost one goes to the next replica that is free, while the one
that lost it may wait for a node. Ray repeats only the call ``alive``, until the actor has a process again, which then
loads. So a dead process or node costs the time of its unit.

Requests are sorted by their texts, so that those with a common beginning come to one replica, which computes it once.
The longest come first, since what is long and begins late ends late, and units grow smaller towards the end, so that
all replicas end at about the same time. Units of texts stay as large as an engine continues texts together.

A unit whose replica dies is sent again. After three deaths it is halved, and its halves are halved again at their next
death, until one request is left. That one has deaths of its own, each while it was all that the replica had, and is
given up by name at the third. So one request that kills whatever computes it costs that request.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError, ServerError
from pytest_touchstone.core.requests import (
    Answer,
    FillMask,
    Generate,
    Judge,
    Loglikelihood,
    PseudoLoglikelihood,
    Refusal,
    Request,
    RollingLoglikelihood,
    RunProgram,
)
from pytest_touchstone.core.text import CHARACTERS_PER_TOKEN
from pytest_touchstone.engines.base import Done, Engine
from pytest_touchstone.engines.registry import EnginePool, identity
from pytest_touchstone.engines.replicas.ray_cluster import RayTarget, has_room, share_of, start, target_of
from pytest_touchstone.engines.replicas.replica import (
    LoadOutcome,
    Replica,
    UnitAnswers,
    WantedCheckpoint,
    files_of,
)
from pytest_touchstone.engines.settings import ModelSettings

# Units of requests


LEAST: Final = 2000.0
"""The least cost of a unit, in tokens, but for the last: below it, sending it costs more than it evens out."""

TEXTS: Final = 64
"""The texts that an engine continues together which does not say how many it does."""

SHARE: Final = 4
"""A unit is this part of what is left for each replica."""

GENERATED: Final = 10.0
"""The cost of a new token in tokens of a prompt."""

COMMON: Final = 64
"""The characters at the beginning in which requests agree that are kept together."""

MOST_DEATHS: Final = 3
"""The deaths of its replica after which a unit is halved, or a single request given up."""


@dataclass(slots=True, eq=False)
class WorkUnit:
    """The indices of the requests that a replica computes at once, and the deaths counted against them."""

    numbers: tuple[int, ...]
    deaths: int = 0

    def failed(self, *, died: bool) -> list[WorkUnit]:
        """Return the units to send in its place, none where a single request is given up.

        An error that a replica raises, and lives on, is not tried again: the unit is halved at once.
        """
        self.deaths += died
        if died and self.deaths < MOST_DEATHS:
            return [self]
        if len(self.numbers) == 1:
            return []
        half = len(self.numbers) // 2
        parts = (self.numbers[:half], self.numbers[half:])
        return [WorkUnit(chunk, MOST_DEATHS - 1 if len(chunk) > 1 else 0) for chunk in parts]


def cost_of(request: Request) -> float:
    """Return about how many tokens a request makes a model compute."""
    match request:
        case Loglikelihood(context, continuation):
            return 1 + (len(context) + len(continuation)) / CHARACTERS_PER_TOKEN
        case RollingLoglikelihood(text) | FillMask(text):
            return 1 + len(text) / CHARACTERS_PER_TOKEN
        case PseudoLoglikelihood(text):
            return (1 + len(text) / CHARACTERS_PER_TOKEN) ** 2
        case Generate(prompt):
            new = GENERATED * request.different * request.max_new_tokens
            return 1 + len(prompt) / CHARACTERS_PER_TOKEN + new
        case RunProgram() | Judge():
            return 1.0


def plan_units(requests: Sequence[Request], replicas: int, together: int = TEXTS) -> list[WorkUnit]:
    """Split the requests into units, in the order in which they are sent.

    An engine continues ``together`` texts at once. If there are that many for each replica, a unit with texts has at
    least this number, except for the last. A step takes about as long for few texts as for many, and a unit takes as
    many steps as its longest text, so smaller units would even out nothing.
    """
    costs = [cost_of(request) for request in requests]
    left, units, numbers, size, texts = math.fsum(costs), list[WorkUnit](), list[int](), 0.0, 0
    least = min(together, math.ceil(sum(map(_texts, requests)) / replicas))
    for number in _ordered(requests, costs):
        numbers.append(number)
        size += costs[number]
        texts += _texts(requests[number])
        if size >= max(LEAST, left / (SHARE * replicas)) and not 0 < texts < least:
            units.append(WorkUnit(tuple(numbers)))
            left, numbers, size, texts = left - size, [], 0.0, 0
    return units + ([WorkUnit(tuple(numbers))] if numbers else [])


def _ordered(requests: Sequence[Request], costs: Sequence[float]) -> list[int]:
    """Return the requests' numbers: families with a common beginning, those with the longest member first."""
    families: dict[tuple[str, str], list[int]] = {}
    for number in sorted(range(len(requests)), key=lambda n: (_text(requests[n]), n), reverse=True):
        request = requests[number]
        families.setdefault((type(request).__name__, _text(request)[:COMMON]), []).append(number)
    ordered = sorted(families.values(), key=lambda members: (-max(costs[n] for n in members), members[0]))
    return [number for members in ordered for number in members]


def _texts(request: Request) -> int:
    return request.different if isinstance(request, Generate) else 0


def _text(request: Request) -> str:
    match request:
        case Loglikelihood(context, _):
            return context
        case RollingLoglikelihood(text) | FillMask(text) | PseudoLoglikelihood(text):
            return text
        case Generate(prompt):
            return prompt
        case RunProgram() | Judge():
            return ""


# The actors


LOOK: Final = 5.0
"""Seconds without news after which the nodes are looked at."""

MOST_LOOKS: Final = 24
"""The looks in a row that find no node with room for a replica before the run ends: two minutes for one to come."""

KEPT: Final = "what is done is kept; the same command goes on"


class _Call(NamedTuple):
    """A call in progress: the replica's index, the method, its checkpoint, and the unit."""

    replica: int
    method: str
    checkpoint: WantedCheckpoint | None = None
    unit: WorkUnit | None = None


class UnitEnd(NamedTuple):
    """The end of a unit: its answers, the error that its replica raised, or the error by which it ``died``.

    All are empty if the replica's process was restarted and has not loaded the checkpoint.
    """

    unit: WorkUnit
    replica: int
    computed: UnitAnswers | None
    error: str | None
    died: bool


class Replicas:
    """The actors of a run, and the calls under way, at most one for each.

    ``texts`` is the most that one of them continues together, None where none says.
    """

    def __init__(self, settings: ModelSettings, target: RayTarget, kind: type[Replica] = Replica) -> None:
        """Start the replicas; raises ``CheckpointError`` if Ray or a cluster at the address is missing."""
        self._ray = start(target)
        share = share_of(self._ray, settings, target)
        self._needs = share.needs
        actor = self._ray.remote(**share.needs, max_restarts=-1)(kind)
        here = replace(settings, threads=share.threads, engine=None)
        self._actors = [actor.remote(here) for _ in range(share.replicas)]
        self._calls: dict[Any, _Call] = {}
        self._idle: dict[int, WantedCheckpoint | None] = {}
        self._left_out: dict[int, str] = {}
        self._failed_loads: Counter[int] = Counter()
        self._looks = 0
        self._info: CheckpointInfo | None = None
        self._checkpoint: WantedCheckpoint | None = None
        self._files: dict[str, Any] = {}
        self.texts: int | None = None
        for number in range(share.replicas):
            self._call(_Call(number, "alive"))

    def __len__(self) -> int:
        return len(self._actors) - len(self._left_out)

    @property
    def loaded(self) -> bool:
        """Return whether a replica holds the checkpoint."""
        answering = (call.checkpoint for call in self._calls.values() if call.method == "answer")
        return self._checkpoint in (*self._idle.values(), *answering)

    def hold(self, info: CheckpointInfo, checkpoint: WantedCheckpoint) -> None:
        """Let all replicas load a checkpoint as soon as they are free, unless they hold it."""
        if checkpoint != self._checkpoint:
            self._info, self._checkpoint = info, checkpoint
            self._files, self.texts = {}, None
            self._failed_loads.clear()
            self._idle |= dict.fromkeys(self._left_out)
            self._left_out.clear()

    def step(self, requests: Sequence[Request], waiting: deque[WorkUnit]) -> list[UnitEnd]:
        """Send units to the replicas that are free, and return what has ended, perhaps nothing.

        Raises ``CheckpointError`` where no replica can load the checkpoint, or one finds another, and ``ServerError``
        where the cluster is gone, or has no room for a replica.
        """
        for number, held in list(self._idle.items()):
            if held != self._checkpoint:
                self._call(_Call(number, "load", self._checkpoint), self._checkpoint, self._files)
            elif waiting:
                unit = waiting.popleft()
                self._call(_Call(number, "answer", held, unit), [requests[n] for n in unit.numbers])
        if len(self._left_out) == len(self._actors):
            raise CheckpointError(f"no replica is left; {next(iter(self._left_out.values()))}")
        ended, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=LOOK)
        if not ended:
            self._look_at_nodes()
            return []
        self._looks = 0
        ended, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        return [end for reference in ended if (end := self._ended(reference)) is not None]

    def forget(self) -> None:
        """Let go of the units under way: their replicas are free when they have ended."""
        self._calls = {key: call._replace(unit=None) for key, call in self._calls.items()}

    def close(self) -> None:
        """End the actors for good."""
        self._calls.clear()
        for actor in self._actors:
            with contextlib.suppress(Exception):  # one that is dead already, or a cluster that is gone
                self._ray.kill(actor, no_restart=True)

    def _call(self, call: _Call, *arguments: object) -> None:
        method = getattr(self._actors[call.replica], call.method)
        if call.method == "alive":
            method = method.options(max_task_retries=-1)
        self._idle.pop(call.replica, None)
        self._calls[method.remote(*arguments)] = call

    def _ended(self, reference: Any) -> UnitEnd | None:
        """Take the end of a call; return that of its unit."""
        call, errors = self._calls.pop(reference), self._ray.exceptions
        computed, error, died = None, None, False
        try:
            reply = self._ray.get(reference)
        except (errors.LocalRayletDiedError, ConnectionError) as lost:
            raise ServerError(
                f"the cluster of Ray is not reached any more ({_lines(lost)[0]}); {KEPT}"
            ) from lost
        except errors.RayTaskError as raised:  # by the actor's own code; it lives on
            error = _lines(raised)[-1]
            self._idle[call.replica] = call.checkpoint
            if call.method == "load":
                self._leave_out(call.replica, error)
        except errors.RayError as lost:
            error, died = _lines(lost)[0], True
            self._died(call, error)
        else:
            if call.method == "answer":
                computed = reply
            loaded = call.method == "load" and self._load_ended(call, reply)
            self._idle[call.replica] = call.checkpoint if loaded or computed is not None else None
        return None if call.unit is None else UnitEnd(call.unit, call.replica, computed, error, died)

    def _died(self, call: _Call, error: str) -> None:
        """Wait until an actor has a new process, unless it died while loading too often, or for good."""
        self._failed_loads[call.replica] += call.method == "load" and call.checkpoint == self._checkpoint
        if call.method == "alive":
            self._leave_out(call.replica, error)
        elif self._failed_loads[call.replica] >= MOST_DEATHS:
            self._leave_out(call.replica, f"each has died {MOST_DEATHS} times while it loaded")
        else:
            self._call(_Call(call.replica, "alive"))

    def _leave_out(self, replica: int, why: str) -> None:
        self._idle.pop(replica, None)
        self._left_out[replica] = why

    def _load_ended(self, call: _Call, reply: LoadOutcome) -> bool:
        """Return whether a replica has loaded its checkpoint; missing files are sent for the next attempt."""
        if call.checkpoint == self._checkpoint and self._info is not None:
            if reply.fault is not None:
                self._idle[call.replica] = None  # for the next checkpoint
                raise CheckpointError(reply.fault)
            if reply.lacks_files and not self._files:
                paths = files_of(self._info)
                self._files = {name: self._ray.put(_content(path)) for name, path in paths.items()}
            self.texts = max(self.texts or 0, reply.texts or 0) or None
        return reply.fault is None and not reply.lacks_files

    def _look_at_nodes(self) -> None:
        """Raise ``ServerError`` where every replica waits for a node, and none has come for a while."""
        waits = all(call.method == "alive" for call in self._calls.values())
        self._looks = self._looks + 1 if waits and not has_room(self._ray, self._needs) else 0
        if self._looks >= MOST_LOOKS:
            needs = " and ".join(f"{number} {name[4:-1].upper()}" for name, number in self._needs.items())
            raise ServerError(
                f"no node of Ray's cluster has room for a replica (it needs {needs}), and none has come for "
                f"{LOOK * MOST_LOOKS:.0f} s; {KEPT}"
            )


def _content(path: Path) -> Any:
    import numpy as np

    return np.memmap(path, np.uint8, "r") if path.stat().st_size else b""


def _lines(error: Exception) -> list[str]:
    return str(error).strip().splitlines() or [type(error).__name__]


MOST_AT_ONCE: Final = ("batch_tokens",)
"""Counts of which the replicas have a greatest value together, and no sum."""


class ReplicatedEngine(Engine):
    """Answers requests by the replicas of a run."""

    def __init__(self, replicas: Replicas, info: CheckpointInfo) -> None:
        """Return when a replica holds the checkpoint.

        Raises ``CheckpointError`` if a replica finds another one, or none can load it, and ``ServerError`` if no
        replica has room.
        """
        self.info, self._replicas = info, replicas
        fingerprint = identity(info)
        self._checkpoint = WantedCheckpoint(
            info.plain(), fingerprint, fingerprint is not None and bool(files_of(info))
        )
        self._usage: dict[tuple[int, str], dict[str, Any]] = {}
        self._counts: Counter[str] = Counter()
        replicas.hold(info, self._checkpoint)
        while not replicas.loaded:
            self._step((), deque())

    @property
    def usage(self) -> dict[str, Any]:
        """The counts of all replicas together, those that died included, and those of units and deaths."""
        totals: dict[str, Any] = {}
        for name in dict.fromkeys(name for usage in self._usage.values() for name in usage):
            values = [usage[name] for usage in self._usage.values() if name in usage]
            if all(type(value) in (int, float) for value in values):
                totals[name] = max(values) if name in MOST_AT_ONCE else sum(values)
        return {**totals, "replicas": len({replica for replica, _ in self._usage}), **self._counts}

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in order; each is passed to ``done`` as soon as it is complete.

        A request that kills every replica that computes it is refused by name. Raises ``ServerError`` where no
        replica is left: another call would find none either.
        """
        answers: dict[int, Answer | Refusal] = {}
        self._replicas.hold(self.info, self._checkpoint)
        waiting = deque(plan_units(requests, len(self._replicas), self._replicas.texts or TEXTS))
        try:
            while len(answers) < len(requests):
                try:
                    ended = self._step(requests, waiting)
                except CheckpointError as error:
                    raise ServerError(f"{error}; {KEPT}") from None
                for number, answer in (pair for end in ended for pair in self._answers(end, waiting)):
                    answers[number] = answer
                    if done is not None:
                        done(number, answer)
        finally:
            self._replicas.forget()
        return [answers[number] for number in range(len(requests))]

    def _step(self, requests: Sequence[Request], waiting: deque[WorkUnit]) -> list[UnitEnd]:
        try:
            return self._replicas.step(requests, waiting)
        except CheckpointError as error:
            raise CheckpointError(f"{self.info.name}: {error}") from None

    def _answers(self, end: UnitEnd, waiting: deque[WorkUnit]) -> list[tuple[int, Answer | Refusal]]:
        """Return the numbers of the requests that are answered now; others wait again, behind what waits already."""
        if end.computed is not None:
            self._counts["units"] += 1
            self._usage[end.replica, end.computed.life] = end.computed.usage
            return list(zip(end.unit.numbers, end.computed.answers, strict=True))
        if end.error is None:
            waiting.append(end.unit)
            return []
        if end.died:
            self._counts["deaths"] += 1
        units = end.unit.failed(died=end.died)
        waiting.extend(units)
        died = f"the process that computes it has died, {end.unit.deaths} times"
        return [] if units else [(end.unit.numbers[0], Refusal(died if end.died else end.error))]


class ReplicatedPool(EnginePool):
    """Opens checkpoints by replicas, which are started with the first one.

    Served models and files of answers are opened in this process: a server has its own replicas, a file has no model.
    """

    _replicas: Replicas | None = None

    def close(self) -> None:
        """Close all engines, and end the replicas."""
        super().close()
        if self._replicas is not None:
            self._replicas.close()
            self._replicas = None

    def _opener(self, info: CheckpointInfo) -> Callable[[CheckpointInfo], Engine]:
        if info.served or info.answers:
            return super()._opener(info)
        if self._replicas is None:
            assert self._settings.engine is not None
            self._replicas = Replicas(self._settings, target_of(self._settings.engine))
        return functools.partial(ReplicatedEngine, self._replicas)
