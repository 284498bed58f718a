"""A real ``mlflow server`` on loopback, and servers that are no such thing."""

from __future__ import annotations

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SECONDS = 240.0
QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Its address; it ends with all its processes."""
    address = f"http://127.0.0.1:{free_port()}"
    words = ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--workers", "1"]
    words += ["--artifacts-destination", str(folder / "artifacts"), "--host", "127.0.0.1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mlflow", "server", *words, "--port", address.rpartition(":")[2]],
            cwd=folder,
            env={**os.environ, **QUIET},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_for(address, process, folder / "log")
            yield address
        finally:
            end(process)


def sent_to(client: Any, experiment: str) -> dict[str, Any]:
    """The runs of an experiment by name."""
    found = client.get_experiment_by_name(experiment)
    return {one.info.run_name: one for one in client.search_runs([found.experiment_id])}


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"no server: {log.read_text(errors='replace')[-2000:]}")


def end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it has started; raise ``AssertionError`` where one is left."""
    for number, seconds in (signal.SIGTERM, 20.0), (signal.SIGKILL, 20.0):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            process.poll()  # or a child that ended goes on to be one of the group
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
    raise AssertionError(f"a process of the group {process.pid} is left")


@contextmanager
def stub(status: int | None) -> Iterator[str]:
    """The address of a server that answers everything with a status, or, with None, never."""
    ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            if status is None:
                ended.wait(SECONDS)
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_PUT = answer  # noqa: N815 -- the names of http.server

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
