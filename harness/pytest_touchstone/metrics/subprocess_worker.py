"""Work that may hang or take all memory, done by a child process with a limit for each item.

``TimeLimitedWorker`` starts a fresh Python (never a copy of this process, which may hold torch and its threads)
and keeps it warm; ``ask`` hands it one item and waits for the reply. Both sides write lines of JSON to the child's
standard input and output:

    child   {"ready": true}                            once its imports are done, or {"failed": "why"}
    parent  {"limit_s": 5.0, "item": ...}
    child   {"value": ...} or {"error": "why"}

The limit is processor time of the child, so a busy machine changes no verdict. The system itself ends the
child that exceeds it (``ITIMER_PROF``), which works in the middle of one long computation in C, where no
Python code would run, and also after the parent has died. Only a child that waits without computing is ended
by the parent, later. Nothing is asked of the parent's signals, so any thread may ask. The child ends when
its input does; its memory is limited with ``RLIMIT_AS`` where the system knows that.
"""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

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
    """A child process that answers one item at a time, started when first asked and again after a kill.

    Safe to share between threads, which then wait for each other; a forked copy starts another child.
    """

    def __init__(self, command: Sequence[str], *, patience_s: float = 30.0) -> None:
        self.command = tuple(command)
        self.patience_s = patience_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is no child."""
        return None if self._process is None else self._process.pid

    def ask(self, item: Any, limit_s: float) -> WorkerReply:
        """The child's reply to an item of plain data, after at most ``limit_s`` seconds of its processor time.

        A child that waits without computing is ended after four times the limit plus ``patience_s`` on the clock.
        Raises ``BenchmarkError`` when a child cannot be started.
        """
        with self._lock:
            process = self._running()
            try:
                reply, ended = _exchange(
                    process, {"limit_s": limit_s, "item": item}, 4 * limit_s + self.patience_s
                )
            except BaseException:  # interrupted: the late reply must not be taken for the next item's
                self._end()
                raise
            if reply is None:
                code = self._end()
                if ended or code == -getattr(signal, "SIGPROF", 0):
                    return WorkerReply(timed_out=True)
                return WorkerReply(error=f"the process that checks answers ended with code {code}")
            return WorkerReply(value=reply.get("value"), error=reply.get("error"))

    def close(self) -> None:
        """Ends the child, if there is one; ``ask`` would start another."""
        with self._lock:
            if self._process is not None:
                self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():  # forked: the child on the other end is the first owner's
            self._process, self._owner = None, os.getpid()
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            self._process = self._started()
        return self._process

    def _started(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )
        try:
            reply, _ = _exchange(self._process, None, START_S)
        except BaseException:
            self._end()
            raise
        if reply is None or "failed" in reply:
            code = self._end()
            why = reply["failed"] if reply else f"it ended with code {code} before it was ready"
            raise BenchmarkError(f"the process {' '.join(self.command)} cannot check answers: {why}")
        return self._process

    def _end(self) -> int:
        """Kills the child unless it has ended, and returns its code."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass
        return code


def serve(warm: Callable[[], None], answer: Callable[[Any], Any]) -> None:
    """Run the child's whole life: warm up, then answer every item until its input ends.

    ``answer`` gives plain data; whatever it raises becomes the reply's error. Its output and what it prints
    are kept apart.
    """
    _restrain()
    inlet, outlet = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        warm()
    except ImportError as error:
        _send(outlet, {"failed": str(error)})
        return
    _send(outlet, {"ready": True})
    while (request := _receive(inlet)) is not None:
        _limit_time(request["limit_s"])
        try:
            reply = {"value": answer(request["item"])}
        except Exception as error:  # the item's fault: the next one is answered all the same
            reply = {"error": type(error).__name__}
        _limit_time(0.0)
        _send(outlet, reply)


def _exchange(
    process: subprocess.Popen[bytes], message: Mapping[str, Any] | None, patience_s: float
) -> tuple[dict[str, Any] | None, bool]:
    """The child's next message, None if it ended instead, and whether it was ended here for its silence."""
    assert process.stdin is not None
    assert process.stdout is not None
    ended = threading.Event()

    def end() -> None:
        ended.set()
        process.kill()

    timer = threading.Timer(patience_s, end)
    timer.daemon = True
    timer.start()
    try:
        if message is not None:
            _send(process.stdin, message)
        return _receive(process.stdout), ended.is_set()
    except BrokenPipeError:
        return None, ended.is_set()
    finally:
        timer.cancel()


def _environment() -> dict[str, str]:
    """This process's environment, changed so that Python finds this very copy of the package.

    A folder of installed packages is left out: it is found anyway, and must not come before the standard library.
    """
    root = str(Path(__file__).resolve().parents[2])
    if root in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}:
        return dict(os.environ)
    paths = (root, os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _send(pipe: IO[bytes], message: Mapping[str, Any]) -> None:
    pipe.write(json.dumps(message).encode("ascii") + b"\n")
    pipe.flush()


def _receive(pipe: IO[bytes]) -> dict[str, Any] | None:
    """The next message; None at the end of the stream, also in the middle of a message."""
    line = pipe.readline()
    message: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
    return message


def _restrain() -> None:
    """Limit this process's memory, and leave Ctrl-C to the parent, whose end it will notice."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        import resource

        _, highest = resource.getrlimit(resource.RLIMIT_AS)
        wanted = MEMORY_BYTES if highest == resource.RLIM_INFINITY else min(MEMORY_BYTES, highest)
        resource.setrlimit(resource.RLIMIT_AS, (wanted, highest))
    except (ImportError, ValueError, OSError):
        return  # a system that does not know the limit


def _limit_time(seconds: float) -> None:
    """Makes the system end this process after so much processor time; 0 removes the limit."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)
