"""The harness's side of the supervisor: starts it, sends jobs, hands out their results, ends it."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from pytest_touchstone.core.errors import SandboxError
from pytest_touchstone.engines.sandbox.guest import framing
from pytest_touchstone.engines.sandbox.isolation import Isolation

_LONGEST: Final = 2**30
_TRIES: Final = 2
"""Supervisors that a job is given to when they end early: the first may have ended because of another job."""

_END_SECONDS: Final = 5.0

Done = Callable[[dict[str, Any]], None]


class WorkerClient:
    """A supervisor in its sandbox. If it ends by itself, another is started and given its unfinished jobs."""

    def __init__(self, isolation: Isolation, slots: int, system_calls: bytes) -> None:
        """Raise ``SandboxError`` when the supervisor does not start."""
        self._isolation = isolation
        self._settings = {"slots": slots, "isolated": isolation.isolated, "system_calls": system_calls.hex()}
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[dict[str, Any], Done, int]] = {}
        self._last = 0
        self._closed = False
        self._started: threading.Event = threading.Event()
        self._fault: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the client
        # The supervisor ends with the thread that started it, so that thread lives as long as the client.
        self._thread = threading.Thread(target=self._run, name="sandbox", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._fault is not None:
            raise SandboxError(self._fault)

    def submit(self, job: dict[str, Any], done: Done) -> None:
        """Have a job done; ``done`` is called with its result, in another thread."""
        with self._lock:
            self._last += 1
            number = self._last
            self._waiting[number] = ({**job, "id": number}, done, 1)
            if self._fault is None and not self._closed:
                self._send(self._waiting[number][0])
                return
            del self._waiting[number]
        done({"outcome": "fault", "detail": self._fault or "the sandbox is closed"})

    def close(self) -> None:
        """End the supervisor and everything in it."""
        with self._lock:
            self._closed = True
            process = self._process
            if process is not None and process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()  # which ends the supervisor and its process namespace
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive() and process is not None:
            process.kill()
            self._thread.join()
        if self._isolation.removal:
            subprocess.run(self._isolation.removal, capture_output=True, check=False)

    def _run(self) -> None:
        """Start supervisors and hand out their results, until closed, or until one ends without any result."""
        useless = 0
        while useless < _TRIES and self._start():
            useless = 0 if self._listen() else useless + 1
            if self._closed:
                break
            self._give_up(f"the sandbox ended: {self._end() or 'no reason given'}")
        self._end()
        self._complaints.close()
        with self._lock:
            self._fault = self._fault or "the sandbox ends again and again"
            lost = [done for _, done, _ in self._waiting.values()]
            self._waiting.clear()
        for done in lost:
            done({"outcome": "fault", "detail": "the sandbox was closed" if self._closed else self._fault})
        self._started.set()

    def _start(self) -> bool:
        """Start a supervisor and give it the waiting jobs; False, with the reason noted, where it does not start."""
        try:
            self._process = subprocess.Popen(
                self._isolation.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env=self._isolation.environment,
                start_new_session=True,  # Ctrl-C is for the harness, which closes this
            )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            framing.send(self._process.stdin.fileno(), self._settings)
            framing.receive(self._process.stdout.fileno())
        except (OSError, framing.Closed) as error:
            self._fault = f"the sandbox does not start: {self._end() or error}"
            return False
        with self._lock:
            for job, _, _ in self._waiting.values():
                self._send(job)
            self._started.set()
        return True

    def _listen(self) -> bool:
        """Hand out the supervisor's results until it ends; return whether there were any."""
        assert self._process is not None
        assert self._process.stdout is not None
        useful = False
        while True:
            try:
                found = framing.receive(self._process.stdout.fileno(), longest=_LONGEST)
            except framing.Closed:
                return useful
            useful = True
            with self._lock:
                waiting = self._waiting.pop(found.pop("id"), None)
            if waiting is not None:
                waiting[1](found)

    def _give_up(self, reason: str) -> None:
        """Give up the jobs that have been lost once already; the others wait for the next supervisor."""
        lost = []
        with self._lock:
            for number, (job, done, tries) in list(self._waiting.items()):
                if tries >= _TRIES:
                    del self._waiting[number]
                    lost.append(done)
                else:
                    self._waiting[number] = (job, done, tries + 1)
        for done in lost:
            done({"outcome": "fault", "detail": reason})

    def _send(self, job: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            framing.send(self._process.stdin.fileno(), job)
        except (framing.Closed, ValueError):
            return  # the listener finds that the supervisor has ended; the next one gets the job

    def _end(self) -> str:
        """End the supervisor and return the last line of its error output, if any."""
        process = self._process
        if process is None:
            return ""
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""
