"""The time that a run still takes: what is left to do, by what each kind of work has cost so far. Pure.

Three kinds of work are told apart: tokens computed for scores and prompts, steps that continue texts, and the rest:
loading, programs, grading. A step takes nearly as long for one text as for a few, since all weights are read. Sizes
are known before (``results.live``); costs are learned, and taken over from checkpoint to checkpoint by the
number of parameters. The lengths of texts are unknown until some have ended. Their hazards, by sixteenths of the limit,
begin with a guess. The more texts are known, those still growing included, the less the guess counts.

An estimate is a middle and a factor, by which the truth may be more or less.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from pytest_touchstone.reports.text_lengths import (
    HAZARDS,
    Growing,
    Lengths,
    hazards,
    lengths_of,
    steps_seconds,
)
from pytest_touchstone.results.live import BINS, STEP_TOKENS, Part, PartProgress, ProcessProgress, Workload

LOAD_SECONDS: Final = 6.0
IMPORTS: Final = 0.6
ITEM_SECONDS: Final = 0.001
PROGRAM_SECONDS: Final = 0.4
TOKEN_SECONDS: Final = 2e-11
"""Guesses until something is known: loading a process's first checkpoint, and the share of imports in that; an item
beside its tokens; waiting for a program; a token, per parameter."""

READ: Final = 0.4
"""Cost of reading a token's probability, in tokens, for a model with ``PARAMETERS``: the vocabulary layer computes for
such tokens only. Larger models have less of their weights there."""

PARAMETERS: Final = 100_000_000
"""Of a checkpoint that does not say."""

UNKNOWN_TOKENS: Final = 100.0
"""Per item of a part whose sizes are unknown, where none are known."""


class Estimate(NamedTuple):
    """Seconds, and the factor by which they may be fewer or more."""

    seconds: float
    factor: float = 1.0

    @property
    def low(self) -> float:
        """The fewest seconds that are likely."""
        return self.seconds / self.factor

    @property
    def high(self) -> float:
        """The most."""
        return self.seconds * self.factor


def total(parts: Iterable[Estimate]) -> Estimate:
    """Return the sum of independent estimates: their errors cancel out in part."""
    known = [one for one in parts if one.seconds > 0]
    seconds = sum(one.seconds for one in known)
    if not seconds:
        return Estimate(0.0)
    variance = sum((one.seconds * math.log(max(1.0, one.factor))) ** 2 for one in known)
    return Estimate(seconds, math.exp(math.sqrt(variance) / seconds))


# Costs


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a checkpoint's work: ``token`` seconds for each (rough) token of scores and prompts, known by so
    many ``seen`` seconds; ``steps`` by class of rows: steps, rows, seconds."""

    token: float
    seen: float
    steps: Mapping[int, Sequence[float]] = field(default_factory=dict)

    def step(self, rows: float) -> float:
        """Seconds of a step with so many texts."""
        shape = _shape(rows)
        steps, whole = 4.0, 4.0 * self.token * STEP_TOKENS
        for many, all_rows, seconds in self.steps.values():
            steps += many
            whole += seconds / _shape(all_rows / max(1.0, many))
        scale = whole / steps
        many, all_rows, seconds = self.steps.get(round(rows).bit_length(), (0.0, 0.0, 0.0))
        known = _shape(all_rows / many) if many else 1.0
        return shape * (seconds / known + 4.0 * scale) / (many + 4.0)

    @property
    def steps_seen(self) -> float:
        """Seconds of steps so far."""
        return sum(seconds for _, _, seconds in self.steps.values())


def _shape(rows: float) -> float:
    """Return the time of a step with so many texts, in that of one without any."""
    return 1.0 + rows / STEP_TOKENS


def size(part: Part, known: Sequence[Part], read: float = 0.0) -> float:
    """Return the tokens of an item; where they are unknown, as many as in the mean of other parts.

    One whose probability is read counts as ``read`` more.
    """
    if part.tokens is not None:
        return max(1.0, part.tokens + read * part.read)
    others = [one.tokens for one in known if one.tokens is not None]
    return max(1.0, sum(others) / len(others)) if others else UNKNOWN_TOKENS


class Sums:
    """A workload with what all processes have done of it."""

    def __init__(self, load: Workload, states: Sequence[ProcessProgress]) -> None:
        self.load, self.states = load, states
        self.done = [
            _together(state.parts.get(number) for state in states) for number in range(len(load.parts))
        ]
        self.growing: dict[int, list[int]] = {}
        for state in states:
            for number, tokens in state.growing:
                self.growing.setdefault(number, []).append(tokens)

    def items_done(self, number: int) -> float:
        """Return the items of a part whose scores or prompts are computed."""
        done = self.done[number]
        return min(float(self.load.parts[number].items), done.ended + done.partial)

    def items_begun(self, number: int) -> int:
        """Return the items of a part that have ended or are in a batch."""
        done = self.done[number]
        return min(self.load.parts[number].items, done.ended + done.open)

    @cached_property
    def sizes(self) -> list[float]:
        """The tokens of an item, by parts, with the costs of reading in tokens."""
        return [
            size(part, self.load.parts, READ * math.sqrt(PARAMETERS / self.parameters(part.checkpoint)))
            for part in self.load.parts
        ]

    def tokens_done(self, number: int) -> float:
        """Return the tokens of a part that are computed."""
        items = self.items_done(number)
        return items * self.sizes[number] + (self.load.parts[number].shared if items else 0.0)

    def tokens_left(self, number: int) -> float:
        """Return the tokens of a part that are still to be computed."""
        part = self.load.parts[number]
        items = self.items_done(number)
        return (part.items - items) * self.sizes[number] + (0.0 if items else part.shared)

    @cached_property
    def costs(self) -> dict[str, Costs]:
        """The costs of each checkpoint's work; of one that has done none, those of others by its parameters."""
        own = {name: self._costs_of(name) for name in self.load.parameters}
        seen = {name: one for name, one in own.items() if one.seen > 0}
        weight = sum(one.seen for one in seen.values())
        per_parameter = (
            sum(one.token / self.parameters(name) * one.seen for name, one in seen.items()) / weight
            if weight
            else TOKEN_SECONDS
        )
        return {
            name: one if one.seen > 0 else Costs(per_parameter * self.parameters(name), 0.0, one.steps)
            for name, one in own.items()
        }

    def _costs_of(self, name: str) -> Costs:
        mine = [number for number, part in enumerate(self.load.parts) if part.checkpoint == name]
        costs = [state.costs[name] for state in self.states if name in state.costs]
        steps: dict[int, list[float]] = {}
        for cost in costs:
            for bits, sums in cost.steps.items():
                before = steps.setdefault(bits, [0.0, 0.0, 0.0])
                before[:] = [one + other for one, other in zip(before, sums, strict=True)]
        scoring = [number for number in mine if not self.load.parts[number].texts]
        stepping = sum(sums[2] for sums in steps.values())
        ways = (
            self._seconds_and_tokens(scoring),
            (sum(cost.seconds for cost in costs), float(sum(cost.tokens for cost in costs))),
            (stepping, sum(sums[0] * STEP_TOKENS + sums[1] for sums in steps.values())),
            self._seconds_and_tokens(mine),  # an engine that tells nothing
        )
        seconds, tokens = next((way for way in ways if way[0] > 0 and way[1] > 0), (0.0, 1.0))
        return Costs(seconds / tokens, seconds, steps)

    def _seconds_and_tokens(self, numbers: Iterable[int]) -> tuple[float, float]:
        begun = [number for number in numbers if self.items_done(number)]
        return sum(self.done[one].seconds for one in begun), sum(map(self.tokens_done, begun))

    def parameters(self, name: str) -> int:
        """Return the number of parameters of a checkpoint."""
        return self.load.parameters.get(name) or PARAMETERS

    def lengths(self, number: int, numbers: Iterable[int], guess: float) -> Lengths:
        """Return the lengths of a part's texts; ``numbers`` are the parts of its checkpoint with texts like these."""
        part = self.load.parts[number]
        benchmarks: dict[str, list[int]] = {}
        for one in numbers:
            benchmarks.setdefault(self.load.parts[one].benchmark, []).append(one)
        own = benchmarks.pop(part.benchmark, [])
        before = hazards(map(self.ended, benchmarks.values()), guess)
        growing = [tokens for one in own for tokens in self.growing.get(one, ())]
        return lengths_of(self.ended(own), growing, before, part.limit)

    def ended(self, numbers: Iterable[int]) -> list[float]:
        """Return the lengths of texts that have ended, of some parts."""
        return [
            float(sum(column))
            for column in zip([0] * (BINS + 1), *(self.done[one].lengths for one in numbers), strict=True)
        ]


def _together(parts: Iterable[PartProgress | None]) -> PartProgress:
    """Return the sum of what several processes have done of one part."""
    found = PartProgress()
    for part in parts:
        if part is None:
            continue
        found.ended, found.open = found.ended + part.ended, found.open + part.open
        found.partial += part.partial
        found.seconds, found.waited = found.seconds + part.seconds, found.waited + part.waited
        columns: tuple[tuple[list[Any], list[Any]], ...] = (
            (found.requests, part.requests),
            (found.texts, part.texts),
            (found.programs, part.programs),
            (found.lengths, part.lengths),
        )
        for mine, other in columns:
            mine[:] = [one + more for one, more in zip(mine, other, strict=True)]
    return found


# What is left


def is_timed(load: Workload, states: Sequence[ProcessProgress]) -> bool:
    """Return whether any work has been timed: before that an estimate is a guess of how fast the machine is."""
    return any(one.seen > 0 or one.steps for one in Sums(load, states).costs.values())


def time_left(load: Workload, states: Sequence[ProcessProgress], processes: int = 1) -> Estimate:
    """Return the time until everything is answered, by so many processes, ``states`` being those that have begun."""
    sums = Sums(load, states)
    shared = total(_of_checkpoint(sums, name) for name in load.parameters)
    own = [total((_under_way(sums, state), *_loads(sums, state))) for state in states]
    own += [total(_loads(sums, None))] * max(0, processes - len(states))
    whole = total((shared, *own))
    together = Estimate(whole.seconds / max(1, processes, len(own)), whole.factor)
    return max((together, *own), key=lambda one: one.seconds)


def _of_checkpoint(sums: Sums, name: str) -> Estimate:
    """Return the time for a checkpoint's work that any process may do.

    The more of its costs is seen, the better they are known.
    """
    numbers = [number for number, part in enumerate(sums.load.parts) if part.checkpoint == name]
    tokens = total(_tokens_left(sums, number) for number in numbers)
    pools = Counter(_pools_left(sums, numbers))
    # What is guessed of one pool's texts is guessed of those like it too.
    steps = total(
        Estimate(one.seconds * many, one.factor)
        for pool, many in pools.items()
        for one in [_pool_left(sums, pool)]
    )
    programs = total(_programs_left(sums, number) for number in numbers)
    cost = sums.costs[name]
    return total((_less_sure(tokens, cost.seen), steps, programs))


def _less_sure(one: Estimate, seen: float) -> Estimate:
    """Return an estimate by costs of which so many seconds are known."""
    speed = 0.05 + 1.0 / (1.0 + seen)
    return Estimate(one.seconds, math.exp(math.hypot(math.log(one.factor), speed)))


def _tokens_left(sums: Sums, number: int) -> Estimate:
    part, done = sums.load.parts[number], sums.done[number]
    left, known = sums.tokens_left(number), sums.tokens_done(number)
    if left <= 0:
        return Estimate(0.0)
    usual = sums.costs[part.checkpoint].token + ITEM_SECONDS / sums.sizes[number]
    weight = 50.0 + 0.1 * (known + left)
    token = (done.seconds + weight * usual) / (known + weight) if known else usual
    unsure = 0.25 if part.tokens is not None else 0.8
    return Estimate(left * token, math.exp(unsure * weight / (known + weight)))


def _pools_left(sums: Sums, numbers: Iterable[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Return the pools that have not begun, each by (part, items)."""
    mine = set(numbers)
    fresh = {number: sums.load.parts[number].items - sums.items_begun(number) for number in mine}
    for pool in reversed(sums.load.pools):
        left = {number: min(items, fresh[number]) for number, items in pool if number in mine}
        for number, items in left.items():
            fresh[number] -= items
        if any(left.values()):
            yield tuple((number, items) for number, items in left.items() if items)


def _pool_left(sums: Sums, pool: Iterable[tuple[int, int]]) -> Estimate:
    texts = [(number, items * sums.load.parts[number].texts, 0) for number, items in pool]
    return _texts_left(sums, texts)


def _under_way(sums: Sums, state: ProcessProgress) -> Estimate:
    """Return the time left of the texts that a process generates now."""
    # Texts of about the same length are taken together: there may be hundreds.
    fine = {number: max(1, sums.load.parts[number].limit // (2 * BINS)) for number, _ in state.growing}
    growing = Counter((number, tokens // fine[number] * fine[number]) for number, tokens in state.growing)
    at_work = Counter(number for number, _ in state.growing)
    texts = [(number, float(many), tokens) for (number, tokens), many in growing.items()]
    for number, part in state.parts.items():
        waiting = part.texts[1] - part.texts[0] - at_work[number]
        if waiting > 0:
            texts.append((number, float(waiting), 0))
    return _texts_left(sums, texts)


def _texts_left(sums: Sums, texts: Sequence[tuple[int, float, int]]) -> Estimate:
    """Return the steps of texts, each (part, how many, tokens it has), that go on together."""
    texts = [(number, many, begun) for number, many, begun in texts if many and sums.load.parts[number].limit]
    if not texts:
        return Estimate(0.0)
    name = sums.load.parts[texts[0][0]].checkpoint
    costs = sums.costs[name]
    numbers = [
        number for number, part in enumerate(sums.load.parts) if part.checkpoint == name and part.texts
    ]
    if not costs.steps and any(sums.ended(numbers)):
        return Estimate(0.0)  # an engine that does not tell of its steps: they are among the other costs
    rows = sums.load.rows
    if (at_work := sum(many for _, many, begun in texts if begun)) and any(
        not begun for _, _, begun in texts
    ):
        rows = round(at_work)  # others wait, so these are all that there is room for
    fewest, middle, most = (
        steps_seconds(
            [Growing(many, sums.lengths(number, numbers, guess), begun) for number, many, begun in texts],
            rows,
            costs.step,
        )
        for guess in HAZARDS
    )
    unknown = Estimate(middle, math.sqrt(most / fewest) if fewest > 0 else 1.0)
    return _less_sure(unknown, max(costs.steps_seen, costs.seen / 4))


def _programs_left(sums: Sums, number: int) -> Estimate:
    part, done = sums.load.parts[number], sums.done[number]
    if not part.programs:
        return Estimate(0.0)
    ended, left = done.programs[0], max(0.0, part.items * max(1.0, part.texts) - done.programs[0])
    waited, others = sum(one.waited for one in sums.done), sum(one.programs[0] for one in sums.done)
    usual = (waited + 4 * PROGRAM_SECONDS) / (others + 4)
    return Estimate(left * (done.waited + 4 * usual) / (ended + 4), 2.0)


def _loads(sums: Sums, state: ProcessProgress | None) -> list[Estimate]:
    """Return the checkpoints that a process has still to load, those of one model once."""
    load, models = sums.load, sums.load.models
    known = {} if state is None else {name for name, cost in state.costs.items() if cost.load is not None}
    loaded = {models.get(name, name) for name in known}
    wanted: dict[str, str] = {}
    for number, part in enumerate(load.parts):
        if part.items > sums.items_begun(number):
            wanted.setdefault(models.get(part.checkpoint, part.checkpoint), part.checkpoint)
    return [_load(sums, name, state) for model, name in wanted.items() if model not in loaded]


def _load(sums: Sums, name: str, state: ProcessProgress | None) -> Estimate:
    """Return the time that a process takes to load a checkpoint, less what it has taken so far.

    The first one of a process takes its imports too; what remains is by the number of parameters.
    """
    firsts, own, parameters = list[float](), 0.0, 0
    for one in sums.states:
        known = [(name, cost.load) for name, cost in one.costs.items() if cost.load is not None]
        firsts += [seconds for _, seconds in known[:1]]
        own += sum(seconds * (1.0 if place else 1.0 - IMPORTS) for place, (_, seconds) in enumerate(known))
        parameters += sum(sums.parameters(name) for name, _ in known)
    first = state is None or not any(cost.load is not None for cost in state.costs.values())
    if not firsts:
        usual = LOAD_SECONDS
    else:
        imports = IMPORTS * sum(firsts) / len(firsts) if first else 0.0
        usual = imports + own / parameters * sums.parameters(name)
    loading = state is not None and (state.doing, state.checkpoint) == ("loading", name)
    since = state.at - state.since if state is not None and loading else 0.0
    return Estimate(max(0.3 * usual, usual - since), 1.6 if first else 2.0)
