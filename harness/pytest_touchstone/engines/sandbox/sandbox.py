"""Answers ``RunProgram`` requests: runs programs side by side, equal ones once, within limits that fit the machine.

A supervisor (``guest``) in its sandbox has them run. It is started here, sent jobs, and ended; if it ends by itself,
another is started and given its unfinished jobs.

Values that the tests of a task need, such as the outputs of a right program, are computed once in a process of tests,
where no program that is judged has ever been. They are kept in the user's cache by the hash of all that makes them: the
task's code, the expression, and the code of the sandbox. A sandboxed program cannot reach the cache. Where programs run
without isolation, nothing is read from it or kept in it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.core.errors import SandboxError
from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram, RunProgramAnswer
from pytest_touchstone.engines.sandbox import Grader, SandboxSettings
from pytest_touchstone.engines.sandbox.cache import SingleFlight, TextFiles, judging_code, key_of
from pytest_touchstone.engines.sandbox.guest import framing
from pytest_touchstone.engines.sandbox.isolation import (
    REMEDIES,
    Isolation,
    check_isolation,
    isolation_of_kind,
    system_call_filter,
)
from pytest_touchstone.engines.sandbox.soundness import SandboxRunner

_LONGEST: Final = 2**30
_TRIES: Final = 2
"""Supervisors that a job is given to when they end early: the first may have ended because of another job."""

_END_SECONDS: Final = 5.0

Done = Callable[[dict[str, Any]], None]


class WorkerClient:
    """A client of a sandboxed supervisor; one that ends is replaced, and gets the unfinished jobs."""

    def __init__(self, isolation: Isolation, slots: int, system_calls: bytes) -> None:
        """Start the supervisor. Raises ``SandboxError`` if it does not start."""
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
        """Submit a job; ``done`` is called with its result, in another thread."""
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
        """Start supervisors and deliver their results, until closed, or until several end without any result."""
        useless = 0
        while useless < _TRIES and self._start():
            useless = 0 if self._deliver() else useless + 1
            if self._closed:
                break
            self._fail_jobs(f"the sandbox ended: {self._end() or 'no reason given'}", _TRIES)
        self._end()
        self._complaints.close()
        with self._lock:
            self._fault = self._fault or "the sandbox ends again and again"
        self._fail_jobs("the sandbox was closed" if self._closed else self._fault, 1)
        self._started.set()

    def _start(self) -> bool:
        """Start a supervisor and send it the pending jobs; return whether it started, else store the reason."""
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
            self._jobs, self._results = self._process.stdin, self._process.stdout
            framing.send(self._jobs.fileno(), self._settings)
            framing.receive(self._results.fileno())
        except (OSError, framing.ConnectionClosed) as error:
            self._fault = f"the sandbox does not start: {self._end() or error}"
            return False
        with self._lock:
            for job, _, _ in self._waiting.values():
                self._send(job)
            self._started.set()
        return True

    def _deliver(self) -> bool:
        """Deliver the supervisor's results until it ends; return whether there were any."""
        useful = False
        while True:
            try:
                result = framing.receive(self._results.fileno(), longest=_LONGEST)
            except framing.ConnectionClosed:
                return useful
            useful = True
            with self._lock:
                waiting = self._waiting.pop(result.pop("id"), None)
            if waiting is not None:
                waiting[1](result)

    def _fail_jobs(self, reason: str, most: int) -> None:
        """Fail the jobs that ``most`` supervisors were given; the others wait for the next one."""
        lost = []
        with self._lock:
            for number, (job, done, tries) in list(self._waiting.items()):
                if tries >= most:
                    del self._waiting[number]
                    lost.append(done)
                else:
                    self._waiting[number] = (job, done, tries + 1)
        for done in lost:
            done({"outcome": "fault", "detail": reason})

    def _send(self, job: dict[str, Any]) -> None:
        # The listener finds that the supervisor has ended; the next one gets the job.
        with suppress(framing.ConnectionClosed, ValueError):
            framing.send(self._jobs.fileno(), job)

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


_PREPARED_SECONDS: Final = 600.0
"""The most that computing the values of a task may take."""

_MOST_PREPARED: Final = 4000
"""The number of files that are kept, the newest."""


class PreparedValues:
    """A cache of the values of tasks, as messages; ``folder`` stores them, None for no files."""

    def __init__(self, client: WorkerClient, folder: Path | None) -> None:
        self._client, self._files = client, TextFiles(folder, _MOST_PREPARED)
        self._answers: SingleFlight[str, dict[str, Any]] = SingleFlight()

    def of(self, tests: CallTests, done: Callable[[dict[str, Any]], None]) -> None:
        """Call ``done`` with ``texts``, the messages, or with ``detail``, the reason why there are none."""
        key = key_of(judging_code(), tests.trusted, tests.prepared)
        future, new = self._answers.future(key)
        future.add_done_callback(lambda ready: done(ready.result()))
        if not new:
            return
        if (texts := self._files.find(key)) is not None:
            future.set_result({"texts": texts})
            return

        def computed(result: dict[str, Any]) -> None:
            if "texts" in result:
                self._files.keep(key, result["texts"])
            future.set_result(result)

        limits = {"cpu": _PREPARED_SECONDS, "wall": _PREPARED_SECONDS, "memory": 0}
        self._client.submit({"compute": tests.prepared, "trusted": tests.trusted, "limits": limits}, computed)

    def prune(self) -> None:
        """Remove the oldest files when there are too many."""
        self._files.prune()


SLOTS_PER_WORKER: Final = 2
"""Programs under way per core: a program and its tests spend half of the time waiting for each other."""

WALL_PER_CPU: Final = 2.0
"""Wall seconds per second of CPU time for a program that waits; one that computes is limited by CPU time alone."""

WALL_EXTRA: Final = 2.0

MAX_SLOWDOWN: Final = 4.0
"""A program may take this many times as long as the reference program (the same factor as in EvalPlus,
evaluate.py)."""

_REFERENCE_SECONDS: Final = 10.0
"""The multiple of its limit that a reference program may take, to show how slow the machine is."""

_INTERPRETER: Final = 128
"""MiB of address space that Python itself takes, on top of the program's limit."""


class Sandbox(SandboxRunner):
    """A sandbox; programs of the same task with the same text and tests run once."""

    def __init__(
        self,
        client: WorkerClient,
        *,
        isolated: bool,
        grader: Grader = "exact",
        program_seconds: float | None = None,
    ) -> None:
        """Create a sandbox; ``program_seconds`` replaces the limit of every request."""
        self._client = client
        self._program_seconds = program_seconds
        self._isolated = isolated
        self._grader = grader
        self._answers: SingleFlight[str, RunProgramAnswer] = SingleFlight()
        self._references: SingleFlight[str, float | None] = SingleFlight()
        self._values = PreparedValues(client, cache_folder("outputs") if isolated else None)

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
        """Return a future that will hold the answer."""
        if self._program_seconds is not None:
            request = replace(request, seconds=self._program_seconds)
        future, new = self._answers.future(_key(request, request.program))
        if not new:
            return future
        self._judge(request, request.seconds, lambda answer: self._second_chance(request, answer, future))
        return future

    def close(self) -> None:
        """End the programs that are still running, without a trace."""
        self._client.close()
        self._values.prune()

    # One program

    def _judge(self, request: RunProgram, seconds: float, done: Callable[[RunProgramAnswer], None]) -> None:
        job = _job(request, request.program, seconds)
        if not isinstance(request.tests, CallTests) or not request.tests.prepared:
            self._run(request, job, done)
            return

        def prepared(result: dict[str, Any]) -> None:
            if "texts" in result:
                self._run(request, {**job, "prepared": result["texts"]}, done)
            else:
                done(RunProgramAnswer("fault", printable(result["detail"]), unsandboxed=not self._isolated))

        self._values.of(request.tests, prepared)

    def _run(
        self, request: RunProgram, job: dict[str, Any], done: Callable[[RunProgramAnswer], None]
    ) -> None:
        def exact(result: dict[str, Any]) -> None:
            answer = RunProgramAnswer(
                **{**result, "detail": printable(result["detail"])}, unsandboxed=not self._isolated
            )
            if self._grader == "exact" or not isinstance(request.tests, CallTests):
                done(answer)
                return
            self._client.submit(
                {**job, "reference": True},
                lambda other: done(replace(answer, reference_outcome=other["outcome"])),
            )

        self._client.submit(job, exact)

    def _second_chance(
        self, request: RunProgram, answer: RunProgramAnswer, future: Future[RunProgramAnswer]
    ) -> None:
        """Run a program that timed out again, if the reference program shows that this machine is slow."""
        measured = isinstance(request.tests, CallTests) and request.tests.prepared
        is_reference = request.reference is None or request.program == request.reference
        if answer.outcome != "timeout" or measured or is_reference:
            future.set_result(answer)
            return

        def again(reference: Future[float | None]) -> None:
            needed = reference.result()
            if needed is None or needed * MAX_SLOWDOWN <= request.seconds:
                future.set_result(answer)
            else:
                self._judge(request, needed * MAX_SLOWDOWN, future.set_result)

        self._reference_seconds(request).add_done_callback(again)

    def _reference_seconds(self, request: RunProgram) -> Future[float | None]:
        """Return the CPU time of the reference program, or None if it does not pass either."""
        assert request.reference is not None
        future, new = self._references.future(_key(request, request.reference))
        if not new:
            return future

        def done(result: dict[str, Any]) -> None:
            future.set_result(result["seconds"] if result["outcome"] == "passed" else None)

        self._client.submit(_job(request, request.reference, request.seconds * _REFERENCE_SECONDS), done)
        return future


def start(settings: SandboxSettings) -> Sandbox:
    """Start a sandbox and test its isolation; see ``engines.sandbox.open_sandbox``."""
    isolation = isolation_of_kind(settings.kind)
    workers = settings.workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    slots = SLOTS_PER_WORKER * workers
    filter_program = system_call_filter() if isolation.isolated else b""
    try:
        client = _start_client(isolation, slots, filter_program)
    except SandboxError as error:
        raise SandboxError(f"{error}; {REMEDIES[settings.kind]}") from None
    return Sandbox(
        client,
        isolated=isolation.isolated,
        grader=settings.grader,
        program_seconds=settings.program_seconds,
    )


def _start_client(isolation: Isolation, slots: int, filter_program: bytes) -> WorkerClient:
    client = WorkerClient(isolation, slots, filter_program)
    if isolation.isolated:
        try:
            check_isolation(Sandbox(client, isolated=True).run)  # under the self-test's limits
        except BaseException:
            client.close()
            raise
    return client


def _job(request: RunProgram, program: str, seconds: float) -> dict[str, Any]:
    calls = request.tests.calls if isinstance(request.tests, CallTests) else 0
    cpu = seconds * (calls + 1)
    limits = {"cpu": cpu, "wall": WALL_PER_CPU * cpu + WALL_EXTRA, "memory": request.memory + _INTERPRETER}
    if isinstance(request.tests, InputOutputTests):
        pairs = [list(pair) for pair in request.tests.pairs]
        tests: dict[str, Any] = {"pairs": pairs, "rule": request.tests.rule}
    else:
        tests = {
            "code": request.tests.code,
            "trusted": request.tests.trusted,
            "names": list(request.tests.names),
            "reference": False,
            "prepared": None,
            "call_seconds": seconds if calls else None,
        }
    return {"program": program, "limits": limits, **tests}


def _key(request: RunProgram, program: str) -> str:
    """Return a key that is equal for requests with equal answers."""
    return key_of(request.task, program, request.tests, request.seconds, request.memory)


def printable(text: str) -> str:
    """Escape control characters and lone surrogates in a text.

    A program may have put them there to disturb a terminal or a file.
    """
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
