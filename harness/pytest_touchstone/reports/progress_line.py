"""The progress line as text: items, what is happening now, speed, time left and errors, as wide as there is room.

    touchstone: 76/1184 items, gsm8k: 12 of 32 texts, 1,840 tokens/s, 2 to 6 min left

Pure, but for ``Live``, which reads files, and the speedometer, which remembers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pytest_touchstone.core.text import count
from pytest_touchstone.reports.formatting import duration
from pytest_touchstone.reports.time_left import Estimate, is_timed, time_left
from pytest_touchstone.results.live import (
    Part,
    PartProgress,
    ProcessProgress,
    Workload,
    read_progress,
    read_workload,
)

NAME: Final = 24
"""Characters of a name that are shown."""

WINDOW: Final = 6.0
"""Seconds over which the speed is taken."""

SURE: Final = 1.15
"""The factor up to which a time is shown as one number."""

RECKONING: Final = 0.01
"""The most of a processor's time that is spent on the time left."""

STALE: Final = 60.0
"""Seconds after which a process that says nothing is taken to be gone."""


class Doing(NamedTuple):
    """Something that is happening: of a benchmark, so many of so many texts (or requests, or programs)."""

    name: str
    done: int
    of: int
    noun: str


@dataclass(frozen=True, slots=True)
class Moment:
    """The contents of a line: items, faults, what is happening, and how it goes on; ``measuring``: no work has been
    timed yet by which the time left could be told."""

    done: int = 0
    total: int = 0
    faults: int = 0
    elapsed: float = 0.0
    doing: Sequence[Doing | str] = ()
    speed: float | None = None
    left: Estimate | None = None
    measuring: bool = False


def line(moment: Moment, room: int) -> str:
    """Return the line in so many characters, if that can be; what matters least is left out first."""
    for items in (" items", "", None):
        for most in (99, 3, 2, 1, 0) if items is None else (99,):
            for speed in (True, False) if most <= 1 else (True,):
                text = _line(moment, items, most, speed=speed)
                if len(text) <= room:
                    return text
    return text


def _line(moment: Moment, items: str | None, most: int, *, speed: bool) -> str:
    parts = [f"{moment.done}/{moment.total}{items}"] if items is not None else []
    if moment.done >= moment.total:
        parts = [f"{moment.done}/{moment.total} items", "all answered"]
    else:
        parts += _now(moment.doing, most)
        if speed and moment.speed:
            parts.append(f"{moment.speed:,.{0 if moment.speed >= 10 else 1}f} tokens/s")
        parts += (
            [f"{duration(moment.elapsed)} since the start{', measuring' * moment.measuring}"]
            if moment.left is None
            else [remaining(moment.left)]
        )
    parts += [count(moment.faults, "error")] if moment.faults else []
    return plain(f"touchstone: {', '.join(parts)}")


def plain(text: str) -> str:
    """Return the text with what a terminal may not show as one character replaced."""
    return "".join(one if one.isascii() and one.isprintable() else "?" for one in text)


def _now(doing: Sequence[Doing | str], most: int) -> list[str]:
    """Return what is happening, at most so many of it by name."""
    counted = [one for one in doing if isinstance(one, Doing)]
    found: list[str] = []
    for noun in dict.fromkeys(one.noun for one in counted):
        some = [one for one in counted if one.noun == noun]
        if len(some) == 1:
            found.append(f"{some[0].name}: {some[0].done:,} of {some[0].of:,} {noun}")
        else:
            shown = [f"{one.name} {one.done:,}/{one.of:,}" for one in some[:most]]
            more = [count(len(some) - most, "more benchmark")] if len(some) > most else []
            found.append(f"{noun}: {', '.join([*shown, *more])}")
    found += [one for one in doing if isinstance(one, str)]
    if not found or not most:
        return []
    return ["; ".join(found[:most])]


def remaining(left: Estimate) -> str:
    """Return the time left in words: ``3:40 left``, or ``2 to 6 min left`` while it is not known well."""
    if left.factor <= SURE:
        return f"{duration(left.seconds)} left"
    (low, unit), (high, other) = (_rounded(left.low, left.high), _rounded(left.high, left.high))
    if (low, unit) == (high, other):
        return f"about {high} {other} left"
    return f"{low}{'' if unit == other else f' {unit}'} to {high} {other} left"


def _rounded(seconds: float, largest: float) -> tuple[str, str]:
    """Return a time as a number and its unit, which for a small part of the largest time is a smaller one."""
    of_minutes, of_hours = largest >= 120.0, largest >= 7200.0
    if of_hours and seconds >= 1800.0:
        value, unit = seconds / 3600.0, "h"
    elif of_minutes and seconds >= 45.0:
        value, unit = seconds / 60.0, "min"
    else:
        value, unit = seconds, "s"
    step = (1 if value < 10 else 5) if unit == "s" else (0.5 if value < 5 else 1)
    return f"{max(step, step * round(value / step)):g}", unit


class Speedometer:
    """Tokens per second over the last seconds, of all processes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def speed(self, now: float, states: Iterable[ProcessProgress]) -> float | None:
        """Return the speed now, None where no tokens were computed of late."""
        self._seen.append((now, sum(state.tokens for state in states)))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()
        seconds, tokens = (last - first for first, last in zip(self._seen[0], self._seen[-1], strict=True))
        return tokens / seconds if seconds > 1.0 and tokens > 0 else None


class Live:
    """The files of a run that goes on (``results.live``), read again at every look."""

    def __init__(self, directory: Path, processes: int) -> None:
        self._directory, self._processes = directory, processes
        self._load: Workload | None = None
        self._speedometer = Speedometer()
        self._left: Estimate | None = None
        self._known, self._again, self._timed = 0.0, 0.0, False

    def moment(self, now: float) -> Moment:
        """Return what is happening, at a time of the wall clock; items and faults are for others to say."""
        states = read_progress(self._directory)
        if not states:
            return Moment()
        if len(states) < self._processes or self._load is None:
            self._load = read_workload(self._directory)
        if self._load is None:
            return Moment()
        left = self._time_left(self._load, states, now)
        return Moment(
            doing=doing(self._load, states, now),
            speed=self._speedometer.speed(now, states),
            left=left,
            measuring=left is None,
        )

    def _time_left(self, load: Workload, states: Sequence[ProcessProgress], now: float) -> Estimate | None:
        """Return the time left, reckoned now and then, so that it takes next to no time itself."""
        if now >= self._again:
            began = time.thread_time()
            self._timed = self._timed or is_timed(load, states)
            self._left, self._known = time_left(load, states, self._processes) if self._timed else None, now
            self._again = now + max(1.0, (time.thread_time() - began) / RECKONING)
        if self._left is None:
            return None
        return self._left._replace(seconds=max(1.0, self._left.seconds - (now - self._known)))


# What is happening


def doing(load: Workload, states: Sequence[ProcessProgress], now: float) -> list[Doing | str]:
    """Return what all processes do, each benchmark once; where something holds them up, that alone."""
    troubles = [state.trouble for state in states if state.trouble and now - state.at <= STALE]
    if troubles:
        return list(dict.fromkeys(troubles))
    several = len(load.parameters) > 1
    found: dict[tuple[str, str], Doing | str] = {}
    for state in states:
        if now - state.at > STALE:
            continue
        if state.doing == "loading":
            found.setdefault(("", ""), f"loading {short(state.checkpoint or '')}")
            continue
        for checkpoint, benchmark in _open(load, state):
            name = f"{short(checkpoint)} {short(benchmark)}" if several else short(benchmark)
            found.setdefault(
                (checkpoint, benchmark), _doing(load, states, (checkpoint, benchmark), name, state.doing)
            )
    return list(found.values())


def _open(load: Workload, state: ProcessProgress) -> Iterator[tuple[str, str]]:
    """Give checkpoint and benchmark of the items that a process is at."""
    for number, part in state.parts.items():
        if part.open:
            yield load.parts[number].checkpoint, load.parts[number].benchmark


def _doing(
    load: Workload, states: Sequence[ProcessProgress], which: tuple[str, str], name: str, what: str
) -> Doing:
    mine = {
        number: part for number, part in enumerate(load.parts) if (part.checkpoint, part.benchmark) == which
    }
    if what == "grading":
        ended = sum(state.parts[number].ended for state in states for number in mine if number in state.parts)
        return Doing(name, ended, max(ended, sum(part.items for part in mine.values())), "graded")
    noun = (
        "programs"
        if what == "programs"
        else "texts"
        if any(one.texts for one in mine.values())
        else "requests"
    )
    done, of = 0.0, 0.0
    for number, part in mine.items():
        some = [state.parts[number] for state in states if number in state.parts]
        done += sum(_counts(one, noun)[0] for one in some)
        of += sum(_counts(one, noun)[1] for one in some) + _to_come(part, some, noun)
    return Doing(name, int(done + 1e-6), max(round(of), int(done + 1e-6)), noun)


def _counts(progress: PartProgress, noun: str) -> Sequence[float]:
    found: Mapping[str, Sequence[float]] = {
        "texts": progress.texts,
        "programs": progress.programs,
        "requests": progress.requests,
    }
    return found[noun]


def _to_come(part: Part, some: Sequence[PartProgress], noun: str) -> float:
    """Return what items will ask for that have not begun; a text is run as one program."""
    items = max(0, part.items - sum(one.ended + one.open for one in some))
    programs = sum(one.texts[1] - one.programs[1] for one in some) if noun == "programs" else 0
    return items * (part.requests if noun == "requests" else part.texts or 1.0) + max(0, programs)


def short(name: str) -> str:
    """Return a name as it is shown: of a long one the end, where its step is."""
    return name if len(name) <= NAME else f"..{name[-NAME + 2 :]}"
