"""The sandbox of this machine, for tests."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

from pytest_touchstone.engines.sandbox import Grader, open_sandbox
from pytest_touchstone.engines.sandbox.isolation import find_bubblewrap
from pytest_touchstone.engines.sandbox.sandbox import Sandbox


@functools.cache
def lacking() -> str | None:
    """The first thing that a sandbox needs and that this machine lacks."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, this is {sys.platform}"
    program = find_bubblewrap()
    if program is None:
        return "there is no bubblewrap (bwrap)"
    try:
        import pyseccomp  # noqa: F401
    except (ImportError, RuntimeError, OSError) as error:
        return f"pyseccomp cannot be imported: {error}"
    walls = ("--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc")
    tried = subprocess.run([program, *walls, "true"], capture_output=True, text=True, check=False)
    return f"bubblewrap may not make namespaces: {tried.stderr.strip()}" if tried.returncode else None


def opened_here(*, workers: int, grader: Grader = "exact") -> Sandbox:
    """A sandbox. Where this machine lacks something that it needs, the test is skipped with this as the reason, but
    not where ``CI`` is set: there a sandbox must be possible, and reasons for skipping would go unread.
    """
    if not os.environ.get("CI") and (missing := lacking()):
        pytest.skip(f"no sandbox: {missing}")
    return open_sandbox("bwrap", workers=workers, grader=grader)
