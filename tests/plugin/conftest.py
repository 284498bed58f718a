"""Runs of pytest in a user's project."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.mlflow_server import mlflow_server
from tests.support.project import Project

IMPORTED = (
    *("scipy.stats", "torch._dynamo"),  # these cannot be loaded twice
    *("rich.console", "rich.table", "sentencepiece", "transformers.models.auto.tokenization_auto"),
    *("harness.compare.formats.lm_eval", "harness.compare.formats.run", "harness.compare.formats.task_json"),
    *("harness.engines.http.children", "harness.engines.pool"),
    *("harness.engines.transformers.lora", "harness.engines.transformers.masked"),
    *("harness.engines.transformers.mtp", "harness.engines.transformers.pool"),
    *("harness.plugin.controller", "harness.plugin.execution", "harness.plugin.pytest_hooks"),
    *("harness.plugin.reporters", "harness.plugin.run_results", "harness.plugin.sequential"),
    *("harness.plugin.session", "harness.plugin.xdist", "xdist.dsession", "xdist.workermanage"),
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


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for all tests."""
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as address:
        yield address


@pytest.fixture
def tracked(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server, to which runs are sent."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    return MlflowClient(server)
