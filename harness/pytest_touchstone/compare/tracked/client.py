"""MLflow's client, as sending and reading use it; ``MLFLOW_TRACKING_URI`` says where.

By itself it waits two minutes for an answer and repeats a request seven times. Here that is 10 seconds and once more,
unless its own variables say otherwise.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pytest_touchstone.core.errors import HarnessError

ADDRESS: Final = "MLFLOW_TRACKING_URI"
PATIENCE: Final[Mapping[str, str]] = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


class TrackerError(HarnessError):
    """A tracker does not answer, or not as it should; the message says where and why."""


def missing() -> str | None:
    """Return what must be installed or set before there is a client, None where nothing is missing; quick."""
    if importlib.util.find_spec("mlflow") is None:
        return "MLflow is not installed: pip install 'pytest-touchstone[mlflow]'"
    if not os.environ.get(ADDRESS) and importlib.util.find_spec("sqlalchemy") is None:
        return f"{ADDRESS} is not set; give the address of your server, such as http://localhost:5000"
    return None


@contextmanager
def client() -> Iterator[Any]:
    """An ``MlflowClient``; raises ``TrackerError`` where it is missing, and for all that goes wrong with it."""
    if (lacking := missing()) is not None:
        raise TrackerError(lacking)
    added = {name: value for name, value in PATIENCE.items() if name not in os.environ}
    os.environ.update(added)
    try:
        from mlflow import MlflowClient

        one = MlflowClient()
        try:
            yield one
        except HarnessError:
            raise
        except Exception as error:  # whatever the server answered
            raise TrackerError(f"{place_of(one)}: {reason(error)}") from error
    finally:
        for name in added:
            os.environ.pop(name, None)


def search(client: Any, experiment: str, wanted: str = "") -> Iterator[Any]:
    """Yield all runs of an experiment that fit, page by page."""
    token = None
    while True:
        page = client.search_runs([experiment], filter_string=wanted, max_results=1000, page_token=token)
        yield from page
        if not (token := page.token):
            return


def place_of(client: Any) -> str:
    """Return the address without a password."""
    return without_password(str(client.tracking_uri))


def without_password(address: str) -> str:
    """Return an address without user and password."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", address)


_REASONS: Final = (
    (r"timed? ?out", "no answer in time"),
    (r"Connection refused|NewConnectionError", "nobody listens there"),
    (r"Name or service not known|NameResolutionError|getaddrinfo", "no such host"),
    (r"(?:error code|too many) (\d{3})", "answers with error {}"),
    (r"Connection aborted|RemoteDisconnected|Connection reset", "the connection broke"),
)


def reason(error: Exception) -> str:
    """Return in a few words why a request failed: MLflow's own sentence is several lines long."""
    text = " ".join(str(error).split())
    for pattern, said in _REASONS:
        if found := re.search(pattern, text, re.IGNORECASE):
            return said.format(*found.groups())
    return without_password(f"{type(error).__name__}: {text[:200]}")
