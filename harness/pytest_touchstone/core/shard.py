"""Shards: parts of a run that are scored by jobs of their own, and joined by ``touchstone merge``.

--eval-shard 2/5      the second of five
--eval-shard auto     which one, and of how many, the variables of the job's array or matrix say
--eval-shard auto/5   of five, whatever they say of their number; a few tasks of an array can then be sent again
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.text import listed

FLAG: Final = "--eval-shard"
AUTO: Final = "auto"

SLURM: Final = "SLURM_ARRAY_TASK_ID"
KUBERNETES: Final = "JOB_COMPLETION_INDEX"
GITLAB: Final = "CI_NODE_INDEX"
GITHUB: Final = "TOUCHSTONE_JOB_INDEX"


Reader: TypeAlias = Callable[[Mapping[str, str], int | None], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard by its number, from 1 on, and how many there are."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def suffix(self) -> str:
        """The end of the name of its run's folder."""
        return f"{self.number}of{self.count}"


def parse_shard(text: str) -> str:
    """Return the option's text as it is, if it names a shard or leaves it to the environment; else ``ValueError``."""
    found = re.fullmatch(r"(?:(auto)|([0-9]{1,6})/([0-9]{1,6})|auto/([0-9]{1,6}))", text)
    if found is None:
        raise ValueError("NUMBER/COUNT, such as 2/5, or auto, or auto/COUNT")
    _, number, count, wanted = found.groups()
    if number is not None and not 1 <= int(number) <= int(count):
        raise ValueError(f"a shard from 1/{count} to {count}/{count}" if int(count) else "one shard at least")
    if wanted is not None and not int(wanted):
        raise ValueError("one shard at least")
    return text


def shard_of(text: str, environ: Mapping[str, str]) -> Shard:
    """Return the shard that a text of ``parse_shard`` means here; raises ``OptionError``."""
    start, _, count = text.partition("/")
    if start != AUTO:
        return Shard(int(start), int(count))
    there = [name for name in READERS if environ.get(name, "").strip()]
    if len(there) != 1:
        why = f"{' and '.join(there)} are both set" if there else f"none of {listed(READERS)} is set"
        raise OptionError(f"{FLAG} {text}: {why}; name the shard: {FLAG} 2/5")
    name = there[0]
    number, of = READERS[name](environ, int(count) if count else None)
    if not 1 <= number <= of:
        first = "; number the tasks from 1: --array=1-" + str(of) if name == SLURM else ""
        raise OptionError(f"{FLAG} {text}: {name}={environ[name]} is none of {of} shards{first}")
    return Shard(number, of)


def _slurm(environ: Mapping[str, str], wanted: int | None) -> tuple[int, int]:
    """A task of an array is numbered from 1 where the count is known; else the whole array tells."""
    number = _whole(environ, SLURM)
    if wanted is not None:
        return number, wanted
    least, most, count = (_whole(environ, f"SLURM_ARRAY_TASK_{name}") for name in ("MIN", "MAX", "COUNT"))
    if least > 1 or most - least + 1 != count:
        raise OptionError(
            f"{FLAG} {AUTO}: an array of {count} of the tasks {least} to {most} does not tell of how many "
            f"shards this is one; say so: {FLAG} {AUTO}/5, with --array=1-5 and parts of it"
        )
    return number - least + 1, count


def _numbered(name: str, first: int, total: str | None) -> Reader:
    """A job whose number counts from 0 or 1, whose count is in another variable or must be given."""

    def read(environ: Mapping[str, str], wanted: int | None) -> tuple[int, int]:
        count = wanted if total is None else _whole(environ, total)
        if count is None:
            raise OptionError(
                f"{FLAG} {AUTO}: {name} does not tell of how many; give the Job's completions: {FLAG} {AUTO}/5"
            )
        if wanted not in (None, count):
            raise OptionError(f"{FLAG} {AUTO}/{wanted}: {total} is {count}; leave one of them out")
        return _whole(environ, name) + 1 - first, count

    return read


def _whole(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "").strip()
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise OptionError(f"{FLAG} {AUTO}: {name} is {text!r}; expected a whole number")
    return int(text)


READERS: Final[Mapping[str, Reader]] = {
    SLURM: _slurm,
    KUBERNETES: _numbered(KUBERNETES, 0, None),
    GITLAB: _numbered(GITLAB, 1, "CI_NODE_TOTAL"),
    GITHUB: _numbered(GITHUB, 0, "TOUCHSTONE_JOB_TOTAL"),  # strategy.job-index counts from 0
}
"""The variables that number a job, each with the function that reads its number and the count."""
