"""Runs programs that nobody has read: in namespaces of their own, without privileges, within limits.

``open_sandbox`` gives a ``Sandbox`` that answers ``RunProgram`` requests, many at a time. ``open_checked`` gives one
that first checks whether a task's tests can fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_touchstone.engines.sandbox.settings import Grader, Kind, SandboxSettings

if TYPE_CHECKING:
    from pytest_touchstone.engines.sandbox.sandbox import Sandbox
    from pytest_touchstone.engines.sandbox.soundness import CheckedSandbox

__all__ = ["Grader", "Kind", "SandboxSettings", "open_checked", "open_sandbox"]


def open_sandbox(kind: Kind = "bwrap", **more: Any) -> Sandbox:
    """Open a sandbox whose isolation has been tested, unless it has none; the arguments are those of
    ``SandboxSettings``.

    Raises ``SandboxError`` with the reason and the remedy where programs cannot be run safely.
    """
    from pytest_touchstone.engines.sandbox.sandbox import start

    return start(SandboxSettings(kind=kind, **more))


def open_checked(settings: SandboxSettings) -> CheckedSandbox:
    """Do the same, and try the tests of every task before programs are judged by them."""
    from pytest_touchstone.engines.sandbox.sandbox import start
    from pytest_touchstone.engines.sandbox.soundness import CheckedSandbox

    return CheckedSandbox(start(settings), settings.kind)
