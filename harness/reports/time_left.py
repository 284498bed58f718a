"""The time that a run still takes: what is left to do, by what each kind of work has cost so far. Pure.

Three kinds of work are told apart: tokens computed for scores and prompts, steps that continue texts, and the rest:
loading, programs, grading. A step takes nearly as long for one text as for a few, since all weights are read. Sizes
are known before (``harness.results.live``); costs are learned, and taken over from checkpoint to checkpoint by the
number of parameters. The lengths of texts are unknown until some have ended. Their hazards, by sixteenths of the limit,
begin with a guess. The more texts are known, those still growing included, the less the guess counts.

An estimate is a middle and a factor, by which the truth may be more or less.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from harness.results.live import BINS, STEP_TOKENS, Part, PartProgress, ProcessProgress, Workload

LOAD_SECONDS: Final = 6.0
ITEM_SECONDS: Final = 0.004
PROGRAM_SECONDS: Final = 0.4
TOKEN_SECONDS: Final = 2e-11
"""Guesses until something is known: loading a checkpoint; an item beside its tokens; waiting for a program; a token,
per parameter."""

PARAMETERS: Final = 100_000_000
"""Of a checkpoint that does not say."""

UNKNOWN_TOKENS: Final = 100.0
"""Per item of a part whose sizes are unknown, where none are known."""

HAZARDS: Final = (0.5, 0.2, 0.05)
"""The share of texts that end in the first sixteenth of their limit, before anything is known: most, middle, least.

In the n-th sixteenth it is an n-th of that: what has gone on for long is likely to go on, small models in circles.
"""

TEXTS_KNOWN: Final = 2.0
"""So many texts count as much as what was believed before."""

ALIKE: Final = 4.0
"""So many texts of other benchmarks count as much as the guess."""

GRID: Final = 48
"""Points at which the number of growing texts is looked at."""


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


# Texts


@dataclass(frozen=True, slots=True)
class Lengths:
    """Survival of texts by sixteenths of their limit; ``survival[i]`` have more than i sixteenths."""

    survival: tuple[float, ...]
    limit: int

    def beyond(self, tokens: float) -> float:
        """Return the share of texts with more tokens than these."""
        place = BINS * tokens / max(1, self.limit)
        if place >= BINS:
            return 0.0
        low = int(place)
        part = place - low
        return (
            self.survival[low] * (1.0 - part) + self.survival[low + 1] * part if part else self.survival[low]
        )


def lengths_of(
    ended: Sequence[float], growing: Iterable[int], before: Sequence[float], limit: int
) -> Lengths:
    """Return the lengths of texts: ``ended`` counts those that have, by bins, ``growing`` has the tokens of the others,
    ``before`` the hazards believed before."""
    at_risk = [sum(ended[place:]) for place in range(BINS)]
    for tokens in growing:
        # Its own sixteenth too: it has outlived those that have ended there.
        for place in range(min(BINS, BINS * tokens // max(1, limit) + 1)):
            at_risk[place] += 1
    survival = [1.0]
    for place in range(BINS):
        hazard = (ended[place] + TEXTS_KNOWN * before[place]) / (at_risk[place] + TEXTS_KNOWN)
        survival.append(survival[-1] * (1.0 - min(1.0, hazard)))
    return Lengths(tuple(survival), limit)


def hazards(ended: Sequence[float], guess: float) -> list[float]:
    """Return the hazards of all texts of a checkpoint, which are believed of a benchmark before its own have ended.

    However many they are, they count no more than the guess: other benchmarks have texts of other lengths.
    """
    found = []
    for place in range(BINS):
        at_risk = sum(ended[place:])
        counted = min(at_risk, ALIKE)
        usual = ended[place] / at_risk if at_risk else 0.0
        found.append((counted * usual + ALIKE * guess / (1 + place)) / (counted + ALIKE))
    return found


class Growing(NamedTuple):
    """Texts of the same lengths that have the same number of tokens; ``begun`` is 0 for those that wait."""

    texts: float
    lengths: Lengths
    begun: int = 0

    def alive(self, tokens: float) -> float:
        """Return the probability that one of them goes on for more than so many tokens."""
        now = self.lengths.beyond(self.begun)
        return min(1.0, self.lengths.beyond(self.begun + tokens) / now) if now > 0 else 0.0

    @property
    def most(self) -> int:
        """The most tokens that are left of one."""
        return max(0, self.lengths.limit - self.begun)

    @property
    def mean(self) -> float:
        """The tokens that are left of one in the mean."""
        points = [self.most * (number + 0.5) / BINS for number in range(BINS)]
        return self.most / BINS * sum(map(self.alive, points))


def steps_seconds(texts: Sequence[Growing], rows: int, seconds: Callable[[float], float]) -> float:
    """Return the time until all texts are at their ends, at most ``rows`` of them at once.

    ``seconds`` gives the time of a step with so many.
    """
    many = sum(one.texts for one in texts)
    if not many:
        return 0.0
    if many <= rows:
        return _drained(texts, seconds)
    # First all rows are in use, then as many texts as there are rows come to their ends together.
    share = rows / many
    tokens = sum(one.texts * one.mean for one in texts)
    last = [one._replace(texts=one.texts * share) for one in texts]
    return tokens * (1.0 - share) / rows * seconds(rows) + _drained(last, seconds)


def _drained(texts: Sequence[Growing], seconds: Callable[[float], float]) -> float:
    """Return the same where all go on at once."""
    most = max((one.most for one in texts), default=0)
    width = most / GRID
    found = 0.0
    for number in range(GRID):
        tokens = (number + 0.5) * width
        rows, none = 0.0, 1.0
        for one in texts:
            alive = one.alive(tokens)
            rows += one.texts * alive
            none *= (1.0 - alive) ** one.texts
        if none < 1.0:
            found += width * (1.0 - none) * seconds(max(1.0, rows / (1.0 - none)))
    return found


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


def size(part: Part, known: Sequence[Part]) -> float:
    """Return the tokens of an item; where they are unknown, as many as in the mean of other parts."""
    if part.tokens is not None:
        return max(1.0, part.tokens)
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
        """The tokens of an item, by parts."""
        return [size(part, self.load.parts) for part in self.load.parts]

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
            sum(one.token / self._parameters(name) * one.seen for name, one in seen.items()) / weight
            if weight
            else TOKEN_SECONDS
        )
        return {
            name: one if one.seen > 0 else Costs(per_parameter * self._parameters(name), 0.0, one.steps)
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

    def _parameters(self, name: str) -> int:
        return self.load.parameters.get(name) or PARAMETERS

    def lengths(self, number: int, numbers: Iterable[int], guess: float) -> Lengths:
        """Return the lengths of a part's texts; ``numbers`` are the parts of its checkpoint with texts like these."""
        part = self.load.parts[number]
        own = [one for one in numbers if self.load.parts[one].benchmark == part.benchmark]
        before = hazards(self.ended(numbers), guess)
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
    steps = total(one for pool, many in pools.items() for one in [_pool_left(sums, pool)] * many)
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
    each = (done.waited + 4 * PROGRAM_SECONDS) / (ended + 4)
    return Estimate(left * each, 2.0)


def _loads(sums: Sums, state: ProcessProgress | None) -> list[Estimate]:
    """Return the checkpoints that a process has still to load, those of one model once."""
    load, models = sums.load, sums.load.models
    known = {} if state is None else {name for name, cost in state.costs.items() if cost.load is not None}
    loaded = {models.get(name, name) for name in known}
    wanted: dict[str, str] = {}
    for number, part in enumerate(load.parts):
        if part.items > sums.items_begun(number):
            wanted.setdefault(models.get(part.checkpoint, part.checkpoint), part.checkpoint)
    return [Estimate(_load_seconds(sums, name), 1.6) for model, name in wanted.items() if model not in loaded]


def _load_seconds(sums: Sums, name: str) -> float:
    """Return the seconds that loading a checkpoint takes, less those that it has taken so far."""
    seen = [cost.load for state in sums.states for cost in state.costs.values() if cost.load is not None]
    usual = sum(seen) / len(seen) if seen else LOAD_SECONDS
    since = [
        state.at - state.since
        for state in sums.states
        if state.doing == "loading" and state.checkpoint == name
    ]
    return max(0.3 * usual, usual - max(since, default=0.0))
