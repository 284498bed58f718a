"""Runs of pytest in a user's project."""

from __future__ import annotations

import pytest
import scipy.stats  # noqa: F401 -- pytester drops what an inner run imports, and these cannot be loaded twice
import torch._dynamo  # noqa: F401

import harness.engines.pool
import harness.plugin.execution
import harness.plugin.reporters
import harness.plugin.run_results
import harness.plugin.sequential
import harness.plugin.session
import harness.plugin.xdist  # noqa: F401
from tests.support.project import Project


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of tests are no jobs of GitHub, even where the tests themselves are one."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
