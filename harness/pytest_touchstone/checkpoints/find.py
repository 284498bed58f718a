"""The checkpoints of a run: all that the options name, by series and step, without those that ``--eval-steps``
leaves out.

One of several checkpoints that fails to load does not keep the others from being scored: it is listed apart, and the
run says so and is not complete. Where none can be used the run does not begin.

The selection of steps of a series: the grammar of ``--eval-steps``.

    300            that step
    100,300        each of them
    300:           from 300 up
    :600           up to 600, which is among them
    100:600:100    from 100 to 600 in steps of 100: 100, 200, ... 600
    ::500          every 500th

Parts with commas between them add up: ``25,300:``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo, default_checkpoints, unique_names
from pytest_touchstone.checkpoints.formats.base import Lasting
from pytest_touchstone.checkpoints.resolve import find
from pytest_touchstone.checkpoints.series import FailedToLoad, number_of, ordered, step
from pytest_touchstone.core.errors import CheckpointError


class Range(NamedTuple):
    """Steps from ``start`` to ``stop``, both included, in steps of ``every``; None where not limited."""

    start: int
    stop: int | None
    every: int | None


@dataclass(frozen=True, slots=True)
class StepFilter:
    """The steps that ``text`` means."""

    text: str
    ranges: tuple[Range, ...]

    def has(self, step: float) -> bool:
        """Return whether the step (or epoch) is one of them."""
        return any(_within(step, one) for one in self.ranges)


def parse_steps(text: str) -> StepFilter:
    """The steps that a text means; raises ``ValueError`` with what was expected."""
    ranges = tuple(_range(part.strip()) for part in text.split(","))
    return StepFilter(text, ranges)


def _within(step: float, one: Range) -> bool:
    if step < one.start or (one.stop is not None and step > one.stop):
        return False
    return one.every is None or (step - one.start) % one.every == 0


def _range(part: str) -> Range:
    found = re.fullmatch(r"(\d*)(?:(:)(\d*)(?::(\d+))?)?", part)
    if found is None or part in ("", ":"):
        raise ValueError("START:STOP:STEP or a list (300:, :600, 100:600:100, 100,300)")
    start, colon, stop, every = found.groups()
    first = int(start or 0)
    last = first if not colon else int(stop) if stop else None
    if last is not None and last < first:
        raise ValueError(f"{last}:{first}, the lower end first")
    if every is not None and not int(every):
        raise ValueError(f"{start}:{stop}:1 or more, no steps of 0")
    return Range(first, last, int(every) if every else None)


# The checkpoints of a run: all that the options name, by series and step, without those that ``--eval-steps``


@dataclass(slots=True)
class FoundCheckpoints:
    """The checkpoints of a run in order, with unique names; those that failed to load; and lines about what was left
    out."""

    infos: list[CheckpointInfo] = field(default_factory=list)
    failed: list[FailedToLoad] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def find_checkpoints(
    sources: Sequence[str],
    *,
    steps: StepFilter | None = None,
    seq_len: int | None = None,
    base_model: str | None = None,
    trust_remote_code: bool = False,
    options: Mapping[str, str] = MappingProxyType({}),
    lasting: Lasting | None = None,
) -> FoundCheckpoints:
    """The checkpoints that ``sources`` name, or the builtin ones that are there.

    The other arguments are those of ``resolve.find``, and the filter of ``--eval-steps``.

    Raises ``CheckpointError`` (one line) where a single one, or all of them, failed to load, or ``steps`` leaves
    none.
    """
    series = FoundCheckpoints()
    if not sources:
        series.infos = default_checkpoints(seq_len=seq_len)
    for source in sources:
        try:
            found = find(
                source,
                seq_len=seq_len,
                base_model=base_model,
                trust_remote_code=trust_remote_code,
                options=options,
                lasting=lasting,
            )
        except CheckpointError as error:
            if len(sources) == 1:
                raise
            series.failed.append(FailedToLoad(Path(source).name, source, source, str(error)))
            continue
        series.infos += found.infos
        series.failed += found.failed
        series.left_out += [f"checkpoint {line}" for line in found.others]
    places = ordered(series.infos) if sources else (("", info) for info in series.infos)
    series.infos = [replace(info, series=folder or None, step=step(info)) for folder, info in places]
    series.failed = list({os.path.abspath(one.path): one for one in series.failed}.values())  # noqa: PTH100
    if steps is not None:
        _select(series, steps)
    series.infos = unique_names(series.infos)
    if series.failed and not series.infos:
        raise CheckpointError(none_usable([one.message for one in series.failed]))
    return series


def none_usable(messages: Sequence[str]) -> str:
    """The line for a run without a checkpoint that can be used."""
    if len(messages) == 1:
        return messages[0]
    return f"none of the {len(messages)} checkpoints can be used; the first: {messages[0]}"


def _select(series: FoundCheckpoints, steps: StepFilter) -> None:
    """Keep the steps that are wanted; a checkpoint without a step is left out with a line."""
    there = [info.step for info in series.infos]
    without = [info.name for info in series.infos if info.step is None]
    series.infos = [info for info in series.infos if info.step is not None and steps.has(info.step)]
    numbers = [(number_of(Path(one.path)), one) for one in series.failed]
    series.failed = [one for number, one in numbers if number is not None and steps.has(number)]
    if not series.infos and not series.failed:
        raise CheckpointError(f"--eval-steps {steps.text}: no checkpoint of these steps; {_steps(there)}")
    series.left_out += [f"checkpoint {name}: has no step, and --eval-steps asks for some" for name in without]


def _steps(there: Iterable[float | None], most: int = 12) -> str:
    known = [f"{one:g}" for one in sorted({one for one in there if one is not None})]
    if not known:
        return "none of the checkpoints has a step"
    shown = known if len(known) <= most else [*known[: most // 2], "...", *known[-most // 2 :]]
    return f"there are {', '.join(shown)}"
