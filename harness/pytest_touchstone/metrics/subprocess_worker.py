"""Work that may hang or exhaust memory, done by a child process with limits for each item.

``TimeLimitedWorker`` starts a fresh Python (never a copy of this process, which may hold torch and its threads) and
keeps it warm; ``ask`` hands it one item and waits for the reply. Both sides write JSON to a connection whose number is
the child's last argument:

    child   {"ready": true}                            once its imports are done, or {"failed": "why"}
    parent  {"limit_s": 5.0, "item": ...}
    child   {"value": ...} or {"error": "why"}

The limit is processor time of the child, so a busy machine changes no verdict. The system itself ends the child that
exceeds it (``ITIMER_PROF``), which works in the middle of one long computation in C, where no Python code would run,
and also after the parent has died. Only a child that waits without computing is ended by the parent, later. Nothing is
asked of the parent's signals, so any thread may ask. The child ends when the connection does; its memory is limited
with ``RLIMIT_AS`` where the system knows that.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import site
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.errors import BenchmarkError

MEMORY_BYTES: Final = 2 << 30
START_S: Final = 120.0
"""The number of seconds within which a child must be ready."""


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """The outcome of one item: its value, or that it exceeded the limit, or the error."""

    value: Any = None
    timed_out: bool = False
    error: str | None = None


class TimeLimitedWorker:
    """A child process that answers one item at a time; it starts with the first item, and after a kill.

    Threads may share it; they then wait for each other.
    """

    def __init__(self, command: Sequence[str], *, patience_s: float = 30.0) -> None:
        self.command = tuple(command)
        self.patience_s = patience_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._exit_code: int | None = None

    @property
    def pid(self) -> int | None:
        """The child's process id, None without a child."""
        return None if self._process is None else self._process.pid

    def ask(self, item: Any, limit_s: float) -> WorkerReply:
        """Return the child's reply to an item of plain data, after at most ``limit_s`` seconds of CPU time.

        A child that waits without computing is killed after four times the limit plus ``patience_s`` of wall time.
        Raises ``BenchmarkError`` if a child cannot be started.
        """
        with self._lock:
            self._start()
            try:
                reply = self._exchange({"limit_s": limit_s, "item": item}, 4 * limit_s + self.patience_s)
            except TimeoutError:
                return WorkerReply(timed_out=True)
            except (EOFError, OSError):
                if self._exit_code == -signal.SIGPROF:
                    return WorkerReply(timed_out=True)
                return WorkerReply(error=f"the process that checks answers ended with code {self._exit_code}")
            return WorkerReply(value=reply.get("value"), error=reply.get("error"))

    def close(self) -> None:
        """End the child, if there is one; ``ask`` would start another."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        """Start a child unless there is one, and wait until it is ready."""
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        self._connection, child_end = Pipe()
        with child_end:
            self._process = subprocess.Popen(
                (*self.command, str(child_end.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[child_end.fileno()],
                env=_environment(),
            )
        try:
            why = self._exchange(None, START_S).get("failed")
        except (EOFError, OSError):
            why = f"it ended with code {self._exit_code} before it was ready"
        if why is not None:
            self._end()
            raise BenchmarkError(f"the process {' '.join(self.command)} cannot check answers: {why}")

    def _exchange(self, message: Mapping[str, Any] | None, seconds: float) -> dict[str, Any]:
        """Return the child's next message; kill the child if there is none in time.

        A late message would be taken for the reply to another item.
        """
        assert self._connection is not None
        try:
            if message is not None:
                _send(self._connection, message)
            if not self._connection.poll(seconds):
                raise TimeoutError
            return _receive(self._connection)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        """Kill the child unless it has ended."""
        if self._process is not None and self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._exit_code = self._process.wait()
        self._process = self._connection = None


def serve(warm: Callable[[], None], answer: Callable[[Any], Any]) -> None:
    """Run the child's whole life: warm up, then answer every item until the parent ends.

    ``answer`` gives plain data; whatever it raises becomes the reply's error.
    """
    _restrain()
    connection = Connection(int(sys.argv[-1]))
    try:
        warm()
    except ImportError as error:
        _send(connection, {"failed": str(error)})
        return
    with suppress(EOFError, OSError):
        _send(connection, {"ready": True})
        while True:
            request = _receive(connection)
            signal.setitimer(signal.ITIMER_PROF, request["limit_s"])
            try:
                reply = {"value": answer(request["item"])}
            except Exception as error:  # the item's fault: the next one is answered all the same
                reply = {"error": type(error).__name__}
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            _send(connection, reply)


def _environment() -> dict[str, str]:
    """Return this process's environment, changed so that Python imports this copy of the package.

    A folder of installed packages is left out: it is found anyway, and must not come before the standard library.
    """
    root = str(Path(__file__).resolve().parents[2])
    if root in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}:
        return dict(os.environ)
    paths = (root, os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _send(connection: Connection, message: Mapping[str, Any]) -> None:
    connection.send_bytes(json.dumps(message).encode("ascii"))


def _receive(connection: Connection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(connection.recv_bytes())
    return message


def _restrain() -> None:
    """Limit this process's memory, and leave Ctrl-C to the parent, whose end it will notice."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, highest = resource.getrlimit(resource.RLIMIT_AS)
    wanted = MEMORY_BYTES if highest == resource.RLIM_INFINITY else min(MEMORY_BYTES, highest)
    with suppress(ValueError, OSError):  # a system that does not know the limit
        resource.setrlimit(resource.RLIMIT_AS, (wanted, highest))
