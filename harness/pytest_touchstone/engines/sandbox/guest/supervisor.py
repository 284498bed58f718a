"""Takes jobs from the harness and reports their results; the first process in the sandbox.

A job is one program with its tests. Every slot is a thread that runs one job at a time. It has a process forked for
the program and, if the tests call the program, one for the tests. It connects the two and waits for the end.

What a program prints is compared by the rule of CodeContests (google-deepmind/code_contests,
execution/tester_sandboxer.cc, OutputsMatch), whose problems have no judge programs, or by that of LiveCodeBench
(lcb_runner/evaluation/testing_util.py, grade_stdio).
"""

from __future__ import annotations

import os
import queue
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from . import framing, jail, judge, launcher, test_runner
from .jail import give_names
from .launcher import ForkServer, fork_for_each, import_common
from .values import describe_exception, shorten

PRECISION: Final = 1e-5
"""The absolute difference from which on two numbers are not the same."""

_SPACE: Final = re.compile("[ \n\t\r\v]+")
_LOWER: Final = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def same_output(expected: str, printed: str) -> bool:
    """Return whether both have the same words, split at spaces, tabs and line ends.

    The case of ASCII letters does not matter. Where any words differ, all that are numbers count as such: two are the
    same if they differ by less than ``PRECISION``, and infinite ones are the same as none.
    """
    expected_words, printed_words = _words(expected), _words(printed)
    return expected_words == printed_words or (
        len(expected_words) == len(printed_words) and all(map(_same_word, expected_words, printed_words))
    )


def _words(text: str) -> list[str]:
    return [word for word in _SPACE.split(text.translate(_LOWER)) if word]


def _same_word(expected: str, printed: str) -> bool:
    try:
        return abs(_number(expected) - _number(printed)) < PRECISION
    except ValueError:
        return expected == printed


def _number(word: str) -> float:
    """Return the word as absl's SimpleAtod reads it, which takes neither the digits of other scripts nor
    underscores."""
    if not word.isascii() or "_" in word:
        raise ValueError(word)
    return float(word)


def same_lines(expected: str, printed: str) -> bool:
    """Return whether both have the same lines, stripped; two of numbers alone may be written differently.

    Of a long output no more is split than what is expected: one part more shows that they differ.
    """
    expected_lines = expected.strip().split("\n")
    printed_lines = printed.strip().split("\n", len(expected_lines))
    return len(expected_lines) == len(printed_lines) and all(map(_same_line, expected_lines, printed_lines))


def _same_line(expected: str, printed: str) -> bool:
    if expected.strip() == printed.strip():
        return True
    words = expected.split()
    printed_words = printed.split(maxsplit=len(words))
    try:
        return len(words) == len(printed_words) and all(
            Decimal(word) == Decimal(printed_word)
            for word, printed_word in zip(words, printed_words, strict=True)
        )
    except InvalidOperation:  # a word that is no number, or a comparison with a signalling NaN
        return False


_SAME: Final = {"words": same_output, "lines": same_lines}
"""The rules by which outputs are compared."""

_JOBS_PER_TEST_PROCESS: Final = 64
"""Jobs per test process, so that the state that tests leave behind does not build up for ever."""
_GRACE: Final = 2.0
"""Extra seconds for the tests, beyond the program's."""

_MAX_ERROR_BYTES: Final = 2**16
"""The size limit, in bytes, of a script's report of an exception: reading a longer one, which may be a number of a
million digits, would keep this process from all other programs."""

_MEMORY_SHARE: Final = 0.9
"""The share of its limit from which on a program's memory explains an end that Python does not."""

_MISTAKEN: Final = ("ended by signal", "SystemError")
"""The ends of programs for which Python 3.11 had no memory left to raise ``MemoryError``, as in deep recursion."""

_LAST_MOMENT: Final = 0.2
"""Seconds that a program has to exit by itself once its connection is closed."""


def main() -> None:
    """Serve jobs from standard input on standard output until there are no more."""
    settings = framing.receive(0, longest=test_runner.LONGEST_JOB)
    calls, isolated = bytes.fromhex(settings["system_calls"]), bool(settings["isolated"])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes forked here
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # numbers of programs and tests have no limit but memory and time
    import_common()

    def tests(request: dict[str, Any], descriptors: list[int]) -> None:
        test_runner.serve(descriptors[0], request["slot"], calls if isolated else b"")

    launchers = [
        ForkServer(launcher.Launcher(slot, calls, isolated=isolated).serve)
        for slot in range(int(settings["slots"]))
    ]
    Supervisor(launchers, ForkServer(fork_for_each(tests))).serve()


class TestProcess:
    """The process of a slot's tests.

    It judges jobs one after the other. Another is forked once it has ended or has judged ``_JOBS_PER_TEST_PROCESS``.
    """

    def __init__(self, server: ForkServer, slot: int) -> None:
        self._server, self._slot = server, slot
        self._connection = self._fork()
        self._left = _JOBS_PER_TEST_PROCESS

    def judge(self, job: dict[str, Any], asking: socket.socket, deadline: float) -> dict[str, Any]:
        """Return the verdict on a job whose program answers at the other end of ``asking``."""
        if not self._left:
            self._renew()
        self._left -= 1
        try:
            socket.send_fds(self._connection, [b"j"], [asking.fileno()])
            asking.close()  # otherwise the program's end of it would not be seen
            framing.send(self._connection.fileno(), job, wait=framing.until(deadline))
            verdict = framing.receive(
                self._connection.fileno(), longest=test_runner.LONGEST_JOB, wait=framing.until(deadline)
            )
        except framing.DeadlinePassed:
            verdict = {"outcome": "timeout", "detail": "the tests took too long"}
            self._renew()
        except (framing.ConnectionClosed, OSError):
            verdict = {
                "outcome": "timeout",
                "detail": "the tests were ended: comparing the answers took too long",
            }
            self._renew()
        return verdict if isinstance(verdict, dict) else {}

    def _renew(self) -> None:
        """Drop the process, which then exits, and have another forked."""
        self._connection.close()
        self._connection = self._fork()
        self._left = _JOBS_PER_TEST_PROCESS

    def _fork(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        with theirs:
            self._server.ask({"slot": self._slot}, [theirs.fileno()])
        return mine


class Supervisor:
    """The slots and their work."""

    def __init__(self, launchers: list[ForkServer], tests: ForkServer) -> None:
        self._launchers = launchers
        self._tests = [TestProcess(tests, slot) for slot in range(len(launchers))]
        self._jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._output = threading.Lock()

    def serve(self) -> None:
        """Work until standard input ends; programs that are still running then end with this process."""
        for slot in range(len(self._launchers)):
            threading.Thread(target=self._work, args=(slot,), daemon=True).start()
        self._say({"ready": os.getpid()})
        try:
            while True:
                self._jobs.put(framing.receive(0, longest=test_runner.LONGEST_JOB))
        except framing.ConnectionClosed:
            os._exit(0)

    def _say(self, message: Any) -> None:
        with self._output:
            framing.send(1, message)

    def _work(self, slot: int) -> None:
        while True:
            job = self._jobs.get()
            try:
                result = self._runner_of(job)(job, slot)
            except BrokenPipeError:
                os._exit(1)  # a server of this process is gone: the harness starts another supervisor
            except BaseException as error:
                result = {"outcome": "fault", "detail": f"{type(error).__name__}: {error}"}
            self._say({"id": job["id"], **result})

    def _runner_of(self, job: dict[str, Any]) -> Callable[[dict[str, Any], int], dict[str, Any]]:
        if "compute" in job:
            return self._compute
        return self._run_scripted if "pairs" in job else self._run_called

    def _compute(self, job: dict[str, Any], slot: int) -> dict[str, Any]:
        """Return the values that a task's own code computes, in a process of tests; no program is there."""
        limits = jail.ProgramLimits(**job["limits"])
        asking, nobody = socket.socketpair()
        with nobody, asking:
            message = {"compute": job["compute"], "trusted": job["trusted"], "cpu": limits.cpu}
            return self._tests[slot].judge(message, asking, time.monotonic() + limits.wall)

    def _run_called(self, job: dict[str, Any], slot: int) -> dict[str, Any]:
        """Run a program and the tests that call it."""
        limits = jail.ProgramLimits(**job["limits"])
        asking, asked = socket.socketpair()
        give_names(asking)
        reported, reporting = socket.socketpair()
        try:
            self._launchers[slot].ask({"limits": asdict(limits)}, [reporting.fileno(), asked.fileno()])
            asked.close()
            reporting.close()
            keys = ("program", "code", "trusted", "names", "reference", "prepared", "call_seconds")
            message = {key: job[key] for key in keys}
            message |= {"cpu": limits.cpu + _GRACE, "wall": limits.wall}
            # The program's time, and then that of tests which a busy machine gives as little of a core.
            longest = limits.longest + message["cpu"] / jail.LEAST_SHARE
            verdict = self._tests[slot].judge(message, asking, time.monotonic() + longest)
            if verdict["outcome"] == "crashed":
                # Its connection closes a moment before the program has ended, and how it ended is worth
                # knowing.
                select.select([reported], [], [], _LAST_MOMENT)
            reported.shutdown(socket.SHUT_WR)
            return _merge_report(verdict, self._report(reported, limits), limits)
        finally:
            for connection in (asking, asked, reported, reporting):
                connection.close()

    def _report(self, reported: socket.socket, limits: jail.ProgramLimits) -> dict[str, Any]:
        try:
            report = framing.receive(
                reported.fileno(), wait=framing.until(time.monotonic() + limits.longest + _GRACE)
            )
        except (framing.ConnectionClosed, framing.DeadlinePassed):
            return {"fault": "the launcher of the program gave no report"}
        return report if isinstance(report, dict) else {}

    # Programs that read and print

    def _run_scripted(self, job: dict[str, Any], slot: int) -> dict[str, Any]:
        """Run a program on every input, until it prints something other than what is expected."""
        seconds = 0.0
        for index, (text, expected) in enumerate(job["pairs"]):
            result, printed = self._run_script(job, slot, text)
            seconds += result["seconds"]
            if result["outcome"] == "passed" and not _SAME[job["rule"]](expected, printed):
                shown = shorten(" ".join(printed.split()))
                result |= {"outcome": "wrong", "detail": f"printed {shown!r}"}
            if result["outcome"] != "passed":
                detail = f"test {index + 1}: {result['detail']}"
                return {**result, "detail": detail, "seconds": seconds, "tests": index}
        return {"outcome": "passed", "detail": "", "seconds": seconds, "tests": len(job["pairs"])}

    def _run_script(self, job: dict[str, Any], slot: int, text: str) -> tuple[dict[str, Any], str]:
        limits = jail.ProgramLimits(**job["limits"])
        with ExitStack() as opened:
            ends = (*socket.socketpair(), *socket.socketpair())
            mine, theirs, reported, reporting = map(opened.enter_context, ends)
            read, feeding = os.pipe()
            program_input = opened.enter_context(os.fdopen(read, "rb"))
            threading.Thread(target=_write_input, args=(feeding, text.encode()), daemon=True).start()
            printed_by, write = os.pipe()
            opened.callback(os.close, printed_by)
            program_output = opened.enter_context(os.fdopen(write, "wb"))
            program_ends = (reporting, theirs, program_input, program_output)
            self._launchers[slot].ask({"limits": asdict(limits)}, [end.fileno() for end in program_ends])
            for end in program_ends:
                end.close()
            with suppress(
                framing.ConnectionClosed, framing.DeadlinePassed
            ):  # its report says why it did not read
                deadline = time.monotonic() + limits.longest
                framing.send(mine.fileno(), {"program": job["program"]}, wait=framing.until(deadline))
            printed = _read_output(printed_by, limits)
            if printed is None:
                reported.shutdown(socket.SHUT_WR)  # the launcher sees this and ends the program
                detail = f"printed more than {limits.output} MiB"
                return {"outcome": "crashed", "detail": detail, "seconds": 0.0}, ""
            report = self._report(reported, limits)
            verdict = {"outcome": "passed", "detail": ""}
            if report.get("code") != 0:
                verdict = {"outcome": "crashed", "detail": judge.NO_ANSWER}
                with suppress(framing.ConnectionClosed, framing.DeadlinePassed):
                    until = framing.until(time.monotonic() + _GRACE)
                    error = framing.receive(mine.fileno(), longest=_MAX_ERROR_BYTES, wait=until)
                    verdict = describe_exception(error) if isinstance(error, dict) else verdict
            return _merge_report(verdict, report, limits), printed.decode("utf-8", "replace")


def _write_input(descriptor: int, content: bytes) -> None:
    """Write a program's input, as far as it reads it, and close the descriptor."""
    with suppress(OSError), os.fdopen(descriptor, "wb") as pipe:
        pipe.write(content)


def _read_output(descriptor: int, limits: jail.ProgramLimits) -> bytes | None:
    """Return what a program prints until it closes its output or its time is over; None where that is too much."""
    wait = framing.until(time.monotonic() + limits.longest + _GRACE)
    printed = bytearray()
    with suppress(framing.DeadlinePassed):
        while len(printed) <= limits.output * 2**20:
            wait(descriptor, select.POLLIN)
            if not (chunk := os.read(descriptor, 2**20)):
                return bytes(printed)
            printed += chunk
        return None
    return bytes(printed)


def _merge_report(
    verdict: dict[str, Any], report: dict[str, Any], limits: jail.ProgramLimits
) -> dict[str, Any]:
    """Return the verdict together with the program's end, which explains a missing answer."""
    result = {"tests": 0, **verdict, "seconds": float(report.get("seconds", 0.0))}
    if verdict["outcome"] != "passed" or report.get("why") == "cpu":
        result |= _explain_end(verdict, report, limits)
    return result


def _explain_end(
    verdict: dict[str, Any], report: dict[str, Any], limits: jail.ProgramLimits
) -> dict[str, Any]:
    """Return the parts of a failed program's verdict that the launcher's report knows better."""
    why, ended_by, code = report.get("why"), report.get("signal"), report.get("code")
    if "fault" in report:
        return {"outcome": "fault", "detail": str(report["fault"])}
    if why == "cpu":
        return {
            "outcome": "timeout",
            "detail": f"{report['seconds']:.1f} s of CPU time, limit {limits.cpu:g} s",
        }
    if why == "wall":
        return {"outcome": "timeout", "detail": f"still there after {limits.wall:g} s"}
    changes = {}
    if verdict["outcome"] == "crashed" and why == "ended" and verdict["detail"].startswith(judge.NO_ANSWER):
        if ended_by == signal.SIGKILL:  # the first process in a namespace cannot be killed from inside
            return {"outcome": "memory", "detail": "ended by the kernel, which had no memory left"}
        changes = {"detail": f"ended by signal {ended_by}" if ended_by else f"ended with exit code {code}"}
    detail = {**verdict, **changes}["detail"]
    if report.get("memory", 0) >= _MEMORY_SHARE * limits.memory and detail.startswith(_MISTAKEN):
        return {
            "outcome": "memory",
            "detail": f"{detail}, with {report['memory']} of {limits.memory} MiB in use",
        }
    return changes


if __name__ == "__main__":
    sys.exit("the supervisor is started by pytest_touchstone.engines.sandbox")
