"""Runs programs that nobody has read: in namespaces of their own, without rights, within limits.

``open_sandbox`` gives a ``Sandbox`` that answers ``RunProgram`` requests, many at a time; ``open_checked`` one that
first sees whether a task's tests can fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.engines.sandbox.settings import Grader, Kind, SandboxSettings

if TYPE_CHECKING:
    from harness.engines.sandbox.sandbox import Sandbox
    from harness.engines.sandbox.soundness import Checked

__all__ = ["Grader", "Kind", "SandboxSettings", "open_checked", "open_sandbox"]


def open_sandbox(kind: Kind = "bwrap", **more: Any) -> Sandbox:
    """A sandbox whose walls have been tried, unless it has none; the arguments are as in ``SandboxSettings``.

    Raises ``SandboxError`` with the reason and the remedy where programs cannot be run safely.
    """
    from harness.engines.sandbox.sandbox import start

    return start(SandboxSettings(kind=kind, **more))


def open_checked(settings: SandboxSettings) -> Checked:
    """The same, with the tests of every task tried before programs are judged by them."""
    from harness.engines.sandbox.sandbox import start
    from harness.engines.sandbox.soundness import Checked

    return Checked(start(settings), settings.kind)
