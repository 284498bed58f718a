"""The sandbox of this machine, for tests."""

from __future__ import annotations

import os

import pytest

from harness.core.errors import SandboxError
from harness.engines.sandbox import Grader, open_sandbox
from harness.engines.sandbox.sandbox import Sandbox


def opened_here(*, workers: int, grader: Grader = "exact") -> Sandbox:
    """A sandbox. Without one the test is skipped with the reason, but fails where ``CI`` is set: there it must be
    possible, and reasons for skipping would go unread.
    """
    try:
        return open_sandbox("bwrap", workers=workers, grader=grader)
    except SandboxError as error:
        if os.environ.get("CI"):
            pytest.fail(f"no sandbox: {error}")
        pytest.skip(f"there is no sandbox here: {error}")
