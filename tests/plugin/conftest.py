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
    "transformers.models.llama.modeling_llama",  # transformers looks for the module of a class it has
    *(
        "pytest_touchstone.compare.formats.lm_eval",
        "pytest_touchstone.compare.formats.run",
        "pytest_touchstone.compare.formats.task_json",
    ),
    *("pytest_touchstone.engines.http.managed_servers", "pytest_touchstone.engines.registry"),
    *("pytest_touchstone.engines.transformers.adapters", "pytest_touchstone.engines.transformers.masked"),
    *("pytest_touchstone.engines.transformers.mtp", "pytest_touchstone.engines.transformers.pool"),
    *(
        "pytest_touchstone.plugin.controller",
        "pytest_touchstone.plugin.execution",
    ),
    *(
        "pytest_touchstone.plugin.reporters",
        "pytest_touchstone.plugin.run_results",
        "pytest_touchstone.plugin.gate",
    ),
    *(
        "pytest_touchstone.plugin.session",
        "pytest_touchstone.plugin.batches",
        "xdist.dsession",
        "xdist.workermanage",
    ),
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
