"""Checks that the tests of a task can fail, by running them on wrong programs first.

    an empty program                              must not pass; tests that let it pass are unsound
    a program that raises                         the same
    a program that returns (prints) None          may pass where tests are thin: the task is named, and stays
    a program that returns its first argument,    the same
    or prints what it reads

All of them run in the same sandbox, under the same limits and the same test runner as the programs that are judged
later. The programs that a task's tests accepted are kept in the user's cache, by the hash of the task, its tests,
these programs, and the code that judges. Tests are tried once, and again whenever any of these change.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self

from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.core.requests import CallTests, RunProgram, RunProgramAnswer
from pytest_touchstone.engines.sandbox.cache import SingleFlight, TextFiles, judging_code, key_of
from pytest_touchstone.metrics.code.test_scripts import defined_classes, undefined_names

EMPTY: Final = "an empty program"
RAISES: Final = "a program that raises"
RETURNS_NONE: Final = "a program that returns None"
RETURNS_FIRST: Final = "a program that returns its first argument"
PRINTS_NONE: Final = "a program that prints None"
ECHOES: Final = "a program that prints what it reads"

UNSOUND: Final = (EMPTY, RAISES)
"""Tests that accept one of these show nothing about any program."""

_MOST_TASKS: Final = 20_000
"""The number of tasks in the cache, the newest."""

_FUNCTIONS: Final = {
    RAISES: 'raise RuntimeError("a wrong program")',
    RETURNS_NONE: "return None",
    RETURNS_FIRST: "return given[0] if given else next(iter(named.values()), None)",
}
_SCRIPTS: Final = {
    RAISES: 'raise RuntimeError("a wrong program")\n',
    PRINTS_NONE: "print(None)\n",
    ECHOES: "import sys\n\nsys.stdout.write(sys.stdin.read())\n",
}


class SandboxRunner(Protocol):
    """A runner of many programs at a time; use it in a ``with`` statement, or close it."""

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
        """Return a future that will hold the answer. May be called from any thread."""

    def close(self) -> None:
        """End the programs that are still running."""

    def run(self, request: RunProgram) -> RunProgramAnswer:
        """Return the answer of a request, waiting for it."""
        return self.submit(request).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WrongProgram(NamedTuple):
    """A wrong program: its description and its text."""

    name: str
    text: str


def wrong_programs(request: RunProgram) -> list[WrongProgram]:
    """Return programs that are wrong for any task; they define the names that the tests expect."""
    if not isinstance(request.tests, CallTests):
        return [WrongProgram(EMPTY, ""), *(WrongProgram(*script) for script in _SCRIPTS.items())]
    tests = request.tests
    names = dict.fromkeys([*tests.names, *undefined_names(tests.code, tests.trusted)])
    classes = defined_classes(request.reference or "")
    return [
        WrongProgram(EMPTY, ""),
        *(
            WrongProgram(
                name,
                "\n".join(
                    _wrong_definition(defined_name, body, defined_name in classes) for defined_name in names
                ),
            )
            for name, body in _FUNCTIONS.items()
        ),
    ]


def _wrong_definition(name: str, body: str, a_class: bool) -> str:
    """Return a function with a body, or a class whose every method has it."""
    if a_class or name[:1].isupper():
        init_body = body if body.startswith("raise") else "pass"
        return (
            f"class {name}:\n"
            f"    def __init__(self, *given, **named):\n        {init_body}\n\n"
            "    def __getattr__(self, name):\n"
            f"        def method(*given, **named):\n            {body}\n\n        return method\n"
        )
    return f"def {name}(*given, **named):\n    {body}\n"


class SelfCheckingSandbox(SandboxRunner):
    """A sandbox that tries a task's tests on wrong programs before it judges programs by them.

    If the tests are unsound, programs of the task have no verdict: their outcome is ``fault``. Every answer has in
    ``weak_tests`` the wrong programs that the task's tests accept.
    """

    def __init__(
        self, sandbox: SandboxRunner, kind: str, folder: Path | None = None, judged_by: str | None = None
    ) -> None:
        """Wrap a sandbox of a ``kind``.

        ``folder`` stores the findings (default: the user's cache); ``judged_by`` identifies the code that judges
        (default: ``judging_code()``).
        """
        self._sandbox, self._kind = sandbox, kind
        self._judged_by = judging_code() if judged_by is None else judged_by
        self._files = TextFiles(cache_folder("tests") if folder is None else folder, _MOST_TASKS)
        self._accepted_by_task: SingleFlight[RunProgram, tuple[str, ...]] = SingleFlight()

    def submit(self, request: RunProgram) -> Future[RunProgramAnswer]:
        """Return a future that will hold the answer."""
        future: Future[RunProgramAnswer] = Future()
        future.set_running_or_notify_cancel()
        accepted, judged = self._find_accepted(request), self._sandbox.submit(request)

        def settle(_: object) -> None:
            error = judged.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(_with_weak_tests(judged.result(), request, accepted.result()))

        accepted.add_done_callback(lambda _: judged.add_done_callback(settle))
        return future

    def close(self) -> None:
        """End the programs that are still running."""
        self._sandbox.close()
        self._files.prune()

    def _find_accepted(self, request: RunProgram) -> Future[tuple[str, ...]]:
        """Return the wrong programs that the tests of a request accept."""
        task = replace(request, program="")
        future, new = self._accepted_by_task.future(task)
        if not new:
            return future
        wrong = wrong_programs(request)
        settings = (request.task, request.tests, request.seconds, request.memory)
        key = key_of(self._judged_by, self._kind, *settings, wrong)
        if (cached := self._files.find(key)) is not None:
            future.set_result(tuple(cached))
            return future
        requests = [replace(task, program=program.text, reference=None) for program in wrong]
        judged = [self._sandbox.submit(wrong_request) for wrong_request in requests]

        def ended(index: int) -> None:
            """Wait for the verdict on a wrong program and those after it, then settle the future."""
            if index < len(judged):
                judged[index].add_done_callback(lambda _: ended(index + 1))
                return
            outcomes = ["fault" if verdict.exception() else verdict.result().outcome for verdict in judged]
            names = [program.name for program in wrong]
            accepted = tuple(
                name for name, outcome in zip(names, outcomes, strict=True) if outcome == "passed"
            )
            if "fault" not in outcomes:  # which says nothing about the tests
                self._files.keep(key, accepted)
            future.set_result(accepted)

        ended(0)
        return future


def _with_weak_tests(
    answer: RunProgramAnswer, request: RunProgram, accepted: tuple[str, ...]
) -> RunProgramAnswer:
    """Return the answer with the wrong programs that the tests accept; a fault if the tests are unsound."""
    if not accepted:
        return answer
    answer = replace(answer, weak_tests=accepted)
    if not (bad := [name for name in accepted if name in UNSOUND]):
        return answer
    detail = f"the tests of {request.task} are unsound: they accept {' and '.join(bad)}"
    return replace(answer, outcome="fault", detail=detail)
