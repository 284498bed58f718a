"""Answers ``RunProgram`` requests: runs programs side by side, equal ones once, within limits that fit the machine.

Values that the tests of a task need, such as the outputs of a right program, are computed once in a process of tests,
where no program that is judged has ever been. They are kept in the user's cache by the hash of all that makes them: the
task's code, the expression, and the code of the sandbox. A sandboxed program cannot reach the cache. Where programs run
without isolation, nothing is read from it or kept in it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram, RunProgramAnswer
from pytest_touchstone.engines.sandbox.client import WorkerClient
from pytest_touchstone.engines.sandbox.isolation import check_isolation, isolation_here
from pytest_touchstone.engines.sandbox.seccomp import system_calls
from pytest_touchstone.engines.sandbox.settings import Grader, SandboxSettings
from pytest_touchstone.engines.sandbox.soundness import SandboxRunner, judging_code

_PREPARED_SECONDS: Final = 600.0
"""The most that computing the values of a task may take."""

_MOST_PREPARED: Final = 4000
"""The number of files that are kept, the newest."""


class PreparedValues:
    """The messages of a task's values, or the reason why there are none; ``folder`` keeps them, None for no files."""

    def __init__(self, client: WorkerClient, folder: Path | None) -> None:
        self._client, self._folder = client, folder
        self._lock = threading.Lock()
        self._known: dict[str, Future[dict[str, Any]]] = {}

    def of(self, tests: CallTests, done: Callable[[dict[str, Any]], None]) -> None:
        """Call ``done`` with ``texts``, the messages, or with ``detail``, the reason why they cannot be had."""
        key = _values_key(tests)
        with self._lock:
            known = self._known.get(key)
            future = known or self._known.setdefault(key, Future())
        future.add_done_callback(lambda one: done(one.result()))
        if known is not None:
            return
        future.set_running_or_notify_cancel()
        if (texts := self._read(key)) is not None:
            future.set_result({"texts": texts})
            return

        def computed(found: dict[str, Any]) -> None:
            if "texts" in found:
                self._keep(key, found["texts"])
            future.set_result(found)

        limits = {"cpu": _PREPARED_SECONDS, "wall": _PREPARED_SECONDS, "memory": 0}
        self._client.submit({"compute": tests.prepared, "trusted": tests.trusted, "limits": limits}, computed)

    def _read(self, key: str) -> list[str] | None:
        if self._folder is None:
            return None
        try:
            found = json.loads(gzip.decompress(self._path(key).read_bytes()))
        except (OSError, ValueError, EOFError):
            return None
        whole = isinstance(found, dict) and found.get("key") == key and isinstance(found.get("texts"), list)
        return found["texts"] if whole else None

    def _keep(self, key: str, texts: list[str]) -> None:
        if self._folder is None:
            return
        with suppress(OSError):  # a full disk costs time, no verdict
            self._folder.mkdir(parents=True, exist_ok=True)
            if len(entries := list(self._folder.glob("*.json.gz"))) >= _MOST_PREPARED:
                entries.sort(key=lambda path: path.stat().st_mtime_ns)
                for path in entries[: len(entries) - _MOST_PREPARED + 1]:
                    path.unlink(missing_ok=True)
            data = json.dumps({"key": key, "texts": texts}).encode()
            write_atomic(self._path(key), gzip.compress(data, 1))

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{key[:40]}.json.gz"


def _values_key(tests: CallTests) -> str:
    whole = (judging_code(), tests.trusted, tests.prepared)
    return hashlib.sha256(repr(whole).encode("utf-8", "backslashreplace")).hexdigest()


SLOTS_PER_WORKER: Final = 2
"""Programs under way per core: a program and its tests spend half of the time waiting for each other."""

WALL: Final = 2.0
"""Wall seconds allowed per second of CPU time to a program that waits; what one that computes gets of a busy machine
does not matter."""

WALL_EXTRA: Final = 2.0

SLOWER: Final = 4.0
"""A program may take this many times as long as the reference program (the same factor as in EvalPlus,
evaluate.py)."""

_REFERENCE_SECONDS: Final = 10.0
"""The multiple of its limit that a reference program may take, to show how slow the machine is."""

_INTERPRETER: Final = 128
"""MiB of address space that Python itself takes, on top of the program's limit."""


class Sandbox(SandboxRunner):
    """Runs programs; those of the same task with the same text and tests run once."""

    def __init__(
        self,
        client: WorkerClient,
        *,
        isolated: bool,
        grader: Grader = "exact",
        program_seconds: float | None = None,
    ) -> None:
        """``program_seconds`` is the limit of every program, in place of the request's own."""
        self._client = client
        self._program_seconds = program_seconds
        self._isolated = isolated
        self._grader = grader
        self._lock = threading.Lock()
        self._known: dict[bytes, Future[RunProgramAnswer]] = {}
        self._references: dict[bytes, Future[float | None]] = {}
        self._values = PreparedValues(client, cache_folder("outputs") if isolated else None)

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
        """Return a future that will hold the answer."""
        if self._program_seconds is not None:
            request = replace(request, seconds=self._program_seconds)
        key = _key(request, request.program)
        with self._lock:
            if (known := self._known.get(key)) is not None:
                return known
            future = self._known[key] = Future()
        future.set_running_or_notify_cancel()
        self._judge(request, request.seconds, lambda found: self._second_chance(request, found, future))
        return future

    def close(self) -> None:
        """End the programs that are still running; nothing is left of them."""
        self._client.close()

    # One program

    def _judge(self, request: RunProgram, seconds: float, done: Callable[[RunProgramAnswer], None]) -> None:
        self._made(request, request.program, seconds, lambda job: self._run(request, job, done))

    def _made(
        self, request: RunProgram, program: str, seconds: float, done: Callable[[dict[str, Any]], None]
    ) -> None:
        """Give the job of a program, with what its tests need computed ahead."""
        job = _job(request, program, seconds)
        if not isinstance(request.tests, CallTests) or not request.tests.prepared:
            done(job)
            return
        self._values.of(
            request.tests,
            lambda found: done(
                {**job, "prepared": found["texts"]} if "texts" in found else {"fault": found["detail"]}
            ),
        )

    def _run(
        self, request: RunProgram, job: dict[str, Any], done: Callable[[RunProgramAnswer], None]
    ) -> None:
        if "fault" in job:
            done(RunProgramAnswer("fault", printable(job["fault"]), unsandboxed=not self._isolated))
            return

        def exact(found: dict[str, Any]) -> None:
            answer = RunProgramAnswer(
                **{**found, "detail": printable(found["detail"])}, unsandboxed=not self._isolated
            )
            if self._grader == "exact" or not isinstance(request.tests, CallTests):
                done(answer)
                return
            self._client.submit(
                {**job, "reference": True},
                lambda its: done(replace(answer, reference_outcome=its["outcome"])),
            )

        self._client.submit(job, exact)

    def _second_chance(
        self, request: RunProgram, found: RunProgramAnswer, future: Future[RunProgramAnswer]
    ) -> None:
        """Run a program again that ran out of time, where the reference program shows this machine to be slow."""
        measured = isinstance(request.tests, CallTests) and request.tests.prepared
        own = request.reference is None or request.program == request.reference
        if found.outcome != "timeout" or measured or own:
            future.set_result(found)
            return

        def again(reference: Future[float | None]) -> None:
            needed = reference.result()
            if needed is None or needed * SLOWER <= request.seconds:
                future.set_result(found)
            else:
                self._judge(request, needed * SLOWER, future.set_result)

        self._reference_seconds(request).add_done_callback(again)

    def _reference_seconds(self, request: RunProgram) -> Future[float | None]:
        """Return the CPU time of the reference program, None where it does not pass either."""
        assert request.reference is not None
        key = _key(request, request.reference)
        with self._lock:
            if (known := self._references.get(key)) is not None:
                return known
            future = self._references[key] = Future()
        future.set_running_or_notify_cancel()

        def done(found: dict[str, Any]) -> None:
            future.set_result(found["seconds"] if found["outcome"] == "passed" else None)

        self._client.submit(_job(request, request.reference, request.seconds * _REFERENCE_SECONDS), done)
        return future


def start(settings: SandboxSettings) -> Sandbox:
    """Start a sandbox of that kind, tested by ``check_isolation``; see ``engines.sandbox.open_sandbox``."""
    where = isolation_here(settings.kind)
    workers = settings.workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    slots = SLOTS_PER_WORKER * workers
    client = WorkerClient(where, slots, system_calls() if where.isolated else b"")
    if where.isolated:
        try:
            check_isolation(Sandbox(client, isolated=True).run)  # under the self-test's limits
        except BaseException:
            client.close()
            raise
    return Sandbox(
        client,
        isolated=where.isolated,
        grader=settings.grader,
        program_seconds=settings.program_seconds,
    )


def _job(request: RunProgram, program: str, seconds: float) -> dict[str, Any]:
    wall, memory = WALL * seconds + WALL_EXTRA, request.memory + _INTERPRETER
    limits = {"cpu": seconds, "wall": wall, "memory": memory}
    if isinstance(request.tests, InputOutputTests):
        tests: dict[str, Any] = {"pairs": [list(pair) for pair in request.tests.pairs]}
    else:
        tests = {
            "code": request.tests.code,
            "trusted": request.tests.trusted,
            "names": list(request.tests.names),
            "reference": False,
            "prepared": None,
        }
    return {"program": program, "limits": limits, **tests}


def _key(request: RunProgram, program: str) -> bytes:
    """Return a key that is equal where two requests have the same answer."""
    whole = (request.task, program, request.tests, request.seconds, request.memory)
    return hashlib.sha256(repr(whole).encode("utf-8", "backslashreplace")).digest()


def printable(text: str) -> str:
    """Return the text with control characters and lone surrogates as Python writes them.

    A program may have put them there to disturb a terminal or a file.
    """
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
