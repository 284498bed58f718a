"""Runs programs that nobody has read: in namespaces of their own, without rights, within limits.

``open_sandbox`` gives a ``Sandbox`` that answers ``RunProgram`` requests, many at a time.
"""

from harness.sandbox.sandbox import Sandbox, open_sandbox

__all__ = ["Sandbox", "open_sandbox"]
