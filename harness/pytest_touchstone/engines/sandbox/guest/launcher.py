"""Forks programs, waits for their end from outside their namespaces, or ends them, and reports what they have used.

Starting Python for every program takes longer than most programs. So small processes serve requests, some of them by
forking. These processes hold no program and no test: those reach the forked process over a separate connection.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from . import framing, jail, program_host
from .jail import CORES, HERE, SHORTEST, cpu_seconds, process_clock

_MOST_DESCRIPTORS: Final = 8

_COMMON: Final = (
    *("bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions"),
    *("functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "random", "re", "statistics"),
    *("string", "time", "types", "typing"),
)

Request = tuple[dict[str, Any], list[int]]
"""A request, and the descriptors that came with it, which the receiver closes."""


def import_common() -> None:
    """Import the modules that programs import most; processes forked later share their memory."""
    for name in _COMMON:
        importlib.import_module(name)


class ForkServer:
    """A process forked to serve requests; several threads may use ``ask``."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        """``serve`` is called in the new process, which ends when ``serve`` returns."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            _be(serve, theirs)
        theirs.close()

    def ask(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Send a small request; the server gets copies of the descriptors. Raises ``OSError`` when it is gone."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)


def next_request(connection: socket.socket) -> Request | None:
    """Return the next request at the server's end of a connection, or None at the end."""
    message, descriptors, _, _ = socket.recv_fds(connection, 65536, _MOST_DESCRIPTORS)
    return (json.loads(message), list(descriptors)) if message else None


def fork_for_each(run: Callable[[dict[str, Any], list[int]], None]) -> Callable[[socket.socket], None]:
    """Return a ``serve`` that forks a process per request and calls ``run`` in it."""

    def serve(requests: socket.socket) -> None:
        # Nobody waits for the processes forked here: each reports its own end.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while (request := next_request(requests)) is not None:
            if os.fork() == 0:
                requests.close()  # further requests are not for it
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                run(*request)
                os._exit(1)
            for descriptor in request[1]:
                os.close(descriptor)

    return serve


def _be(serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(nothing, stream)
        os.closerange(3, connection.fileno())
        os.closerange(connection.fileno() + 1, 4096)
        gc.collect()
        gc.freeze()  # collecting in a forked process would copy all the pages it inherited
        serve(connection)
        code = 0
    finally:
        os._exit(code)


class Launcher:
    """A launcher of programs, one after the other.

    Its process is the first in a process namespace. It has all rights in its user namespace, and none outside.
    """

    def __init__(self, slot: int, system_calls: bytes, *, isolated: bool) -> None:
        self._slot, self._system_calls, self._isolated = slot, system_calls, isolated
        self._namespaces: jail.ProcessNamespaces | None = None

    def serve(self, requests: socket.socket) -> None:
        """Run the requested programs, one at a time; report a fault for every program."""
        fault = ""
        try:
            if self._isolated:
                self._isolate()
        except OSError as error:
            fault = str(error)
        while (request := next_request(requests)) is not None:
            asked, (report, *rest) = request
            try:
                if fault:
                    raise OSError(fault)
                outcome = self._launch(jail.ProgramLimits(**asked["limits"]), report, rest)
            except OSError as error:
                outcome = {"fault": str(error)}
            with suppress(framing.ConnectionClosed):
                framing.send(report, outcome)
            for descriptor in (report, *rest):
                with suppress(OSError):
                    os.close(descriptor)

    def _isolate(self) -> None:
        """Continue as a child in new namespaces."""
        jail.drop_user(self._slot)
        jail.enter_namespaces()
        if os.fork() != 0:
            os._exit(0)
        process_clock(os.getpid())  # where it cannot be read, no limit of CPU time would hold
        self._namespaces = jail.ProcessNamespaces()
        jail.read_only_files()

    def _launch(self, limits: jail.ProgramLimits, report: int, rest: list[int]) -> dict[str, Any]:
        """Fork the program, wait for its end, and report it.

        ``rest`` holds the connection of the program's side, and for a script also its input and output.
        """
        if self._namespaces is None:
            child = os.fork()
        else:
            jail.empty_tmp(limits)
            child = self._namespaces.fork()
        if child == 0:
            os.close(report)
            _run_as_program(rest, limits, self._system_calls, self._isolated)
        script = len(rest) > 1
        try:
            for descriptor in rest:
                os.close(descriptor)
            rest.clear()
            return _wait(child, report, limits, script=script)
        finally:
            if self._namespaces is not None:
                jail.drop_tmp()


def _run_as_program(
    descriptors: list[int], limits: jail.ProgramLimits, system_calls: bytes, isolated: bool
) -> None:
    """Become the program; does not return."""
    code = 1
    try:
        os.setsid()  # a signal to its process group would reach the launcher, even across namespaces
        jail.die_with_parent()
        connection, *streams = descriptors
        program_host.silence()
        for stream, descriptor in enumerate(streams):
            os.dup2(descriptor, stream)
        connection = _alone(connection)
        if isolated:
            _confine(connection, limits, system_calls)
        else:
            _limit_only(limits)
        if streams:
            code = program_host.run_script(connection)
        else:
            os.write(connection, HERE)
            program_host.serve(connection)
            code = 0
    except BaseException:
        pass  # whoever reads the connection sees that it has ended
    finally:
        os._exit(code)


def _confine(connection: int, limits: jail.ProgramLimits, system_calls: bytes) -> None:
    """Give up all that the program must not have. Report a failure to the reader, and raise it."""
    try:
        os.chdir("/tmp")
        jail.lock(limits, system_calls)
    except (OSError, ValueError) as error:  # of limits, resource raises ValueError
        framing.send(connection, {"types": [type(error).__name__], "text": str(error)})
        raise


def _alone(connection: int) -> int:
    """Close all descriptors but the standard streams; the connection becomes number 3."""
    if connection != 3:
        os.dup2(connection, 3)
    os.closerange(4, 4096)
    return 3


def _limit_only(limits: jail.ProgramLimits) -> None:
    """Set the limits without any isolation, as far as the system supports them."""
    for kind, most in ((resource.RLIMIT_CPU, int(2 * limits.cpu) + 2), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory * 2**20,) * 2)


def _wait(child: int, report: int, limits: jail.ProgramLimits, *, script: bool) -> dict[str, Any]:
    """Wait for the program's end. Kill it when its time is over, or when the other side has its answer.

    Wall time ends only a script that waits. One that computes is ended by its CPU time, however slowly a busy machine
    gives it that. Of a program that is called, the tests count the time in which they wait for it.
    """
    began = time.monotonic()
    ended = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
    why = ""
    while not why:
        passed, used = time.monotonic() - began, cpu_seconds(child)
        waits_until = max(limits.wall, used / jail.LEAST_SHARE) if script else math.inf
        if used >= limits.cpu or passed >= waits_until:
            why = "cpu" if used >= limits.cpu else "wall"
        else:
            # Even on all cores it cannot use up the remaining CPU time sooner than this.
            left = min(waits_until - passed, (limits.cpu - used) / CORES)
            why = _event(child, ended, report, max(SHORTEST, left))
    if why != "ended":
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    seconds = usage.ru_utime + usage.ru_stime
    return {
        # It may have ended beyond its time, and before this process had its turn to see that.
        "why": "cpu" if seconds > limits.cpu else why,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "seconds": seconds,
        "memory": usage.ru_maxrss // (2**20 if sys.platform == "darwin" else 1024),  # MiB
    }


def _event(child: int, ended: int | None, report: int, seconds: float) -> str:
    """Wait for at most ``seconds``.

    Return "ended", "stopped" if the other side has its answer, or "" for neither.
    """
    if ended is None:
        time.sleep(min(seconds, SHORTEST))
        return "ended" if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) else ""
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(report, select.POLLIN)  # nothing is ever sent: only its end counts
    ready = dict(poll.poll(seconds * 1000))
    return "ended" if ended in ready else "stopped" if ready else ""
