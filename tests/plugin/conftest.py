"""Runs of pytest in a user's project."""

from __future__ import annotations

import importlib

import pytest

from tests.support.project import Project

IMPORTED = (
    *("scipy.stats", "torch._dynamo"),  # these cannot be loaded twice
    *("rich.console", "rich.table", "sentencepiece", "transformers.models.auto.tokenization_auto"),
    *("harness.compare.formats.lm_eval", "harness.compare.formats.run", "harness.compare.formats.task_json"),
    *("harness.engines.pool", "harness.engines.transformers.lora", "harness.engines.transformers.masked"),
    *("harness.engines.transformers.mtp", "harness.engines.transformers.pool"),
    *("harness.plugin.execution", "harness.plugin.reporters", "harness.plugin.run_results"),
    *("harness.plugin.sequential", "harness.plugin.session", "harness.plugin.xdist"),
)
"""Modules that runs import. pytester forgets what an inner run has imported, and the next one would import it anew."""


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """The modules of runs, before the first."""
    for name in IMPORTED:
        importlib.import_module(name)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of tests are no jobs of GitHub, even where the tests themselves are one."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
