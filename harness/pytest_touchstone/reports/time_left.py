"""The time that a run still takes: the work left, by the time that such work has taken so far. Pure.

There are four kinds of work: loading checkpoints, computing tokens of scores and prompts, generating tokens, and
running programs. Nothing is said until some work has been timed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final, TypeAlias

from pytest_touchstone.results.live import PartProgress, ProcessProgress, Workload, WorkloadPart

Work: TypeAlias = tuple[str, str]
"""Work of a checkpoint, and of a kind."""

PARAMETERS: Final = 100_000_000
"""Of a checkpoint that does not say."""

UNKNOWN_TOKENS: Final = 100.0
"""Of an item whose size is unknown."""

GENERATED: Final = 2.0
"""A generated token takes about as long as so many tokens of a prompt, where no text has been timed."""


def time_left(load: Workload, states: Sequence[ProcessProgress], processes: int = 1) -> float | None:
    """Return the seconds until everything is answered by so many processes; None before any work has been timed."""
    done, left, spent = (defaultdict[Work, float](float) for _ in range(3))
    waiting = set[str]()
    for number, part in enumerate(load.parts):
        progress = whole(states, number)
        for kind, (did, does) in _work(part, progress).items():
            done[part.checkpoint, kind] += did
            left[part.checkpoint, kind] += max(0.0, does)
        if progress.ended < part.items:
            waiting.add(part.checkpoint)
    for state in states:
        for name, by_kind in state.seconds.items():
            for kind, seconds in by_kind.items():
                spent[name, kind] += seconds
    timed = {work: done[work] for work, seconds in spent.items() if seconds > 0 and done[work] > 0}
    if not timed:
        return None
    scale = {name: (load.parameters.get(name) or PARAMETERS) / PARAMETERS for name in load.parameters}
    whole_time = sum(
        much * (spent[work] / done[work] if work in timed else _usual(work, spent, timed, scale))
        for work, much in left.items()
    )
    loads = [state.loads for state in states] + [{}] * (processes - len(states))
    last = [list(own.values())[-1] for own in loads if own]
    to_load = sum(len(waiting - own.keys()) for own in loads)
    whole_time += to_load * sum(last) / max(1, len(last))
    return whole_time / max(1, processes)


def _work(part: WorkloadPart, progress: PartProgress) -> Mapping[str, tuple[float, float]]:
    """Return how much of each kind of work is done of a part, and how much is left."""
    items, size = part.items - progress.skipped, UNKNOWN_TOKENS if part.tokens is None else part.tokens + 1.0
    computed = min(items, progress.computed)
    work = {
        "computing": (
            computed * size + (part.shared if computed else 0.0),
            (items - computed) * size + (0.0 if computed else part.shared),
        )
    }
    if part.texts:
        ends = (progress.stopped + 1.0) / (progress.tokens + part.limit)
        begun = progress.grown / max(1, progress.growing)
        fresh = max(0.0, items * part.texts - progress.texts - progress.growing)
        tokens = fresh * length(ends, part.limit) + progress.growing * length(ends, part.limit - begun)
        work["generating"] = float(progress.tokens), tokens
    if part.programs:
        programs = max(0.0, items * max(1.0, part.texts) - progress.programs)
        work["programs"] = float(progress.programs), programs
    return work


def length(ends: float, limit: float) -> float:
    """Return the mean length of texts of which each ends with this probability at each token, or at the limit."""
    return (1.0 - math.exp(-ends * max(0.0, limit))) / ends


def _usual(
    work: Work, spent: Mapping[Work, float], done: Mapping[Work, float], scale: Mapping[str, float]
) -> float:
    """Return the seconds of a unit of work that a checkpoint has not done, by what others have, or by other work."""
    checkpoint, kind = work
    if kind == "programs":
        programs = [other for other in done if other[1] == kind]
        return sum(spent[other] for other in programs) / max(1.0, sum(done[other] for other in programs))
    for factor in (1.0, GENERATED if kind == "generating" else 1.0 / GENERATED):
        alike = [other for other in done if other[1] != "programs" and (other[1] == kind) is (factor == 1.0)]
        if alike:
            much = sum(done[other] * scale.get(other[0], 1.0) for other in alike)
            return factor * sum(spent[other] for other in alike) / much * scale.get(checkpoint, 1.0)
    return 0.0


def whole(states: Sequence[ProcessProgress], number: int) -> PartProgress:
    """Return what all processes have done of a part."""
    found = (state.parts[number] for state in states if number in state.parts)
    return reduce(PartProgress.plus, found, PartProgress())
