"""Fork programs, wait for their end from outside their namespaces, or end them, and report what they have used."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from . import framing, jail, program_host
from .fork_server import Requests

_CORES: Final = os.cpu_count() or 1

_SHORTEST: Final = 0.01
"""The least number of seconds between two readings of the CPU time."""

_SCHEDULED: Final = 2
"""The scheduler's clock of a process: CPUCLOCK_SCHED in the kernel."""


class Launcher:
    """Runs programs one after the other. Its process is the first in a process namespace. It has all rights in its
    user namespace, and none outside."""

    def __init__(self, slot: int, system_calls: bytes, *, isolated: bool) -> None:
        self._slot, self._system_calls, self._isolated = slot, system_calls, isolated
        self._namespaces: jail.ProcessNamespaces | None = None

    def serve(self, requests: Requests) -> None:
        """Run the requested programs, one at a time; a fault is reported for every program."""
        fault = ""
        try:
            if self._isolated:
                self._isolate()
        except OSError as error:
            fault = str(error)
        while (request := requests.next()) is not None:
            asked, (report, *rest) = request
            try:
                if fault:
                    raise OSError(fault)
                found = self._launch(jail.Limits(**asked["limits"]), report, rest)
            except OSError as error:
                found = {"fault": str(error)}
            with suppress(framing.Closed):
                framing.send(report, found)
            for descriptor in (report, *rest):
                with suppress(OSError):
                    os.close(descriptor)

    def _isolate(self) -> None:
        """Go on as a child in new namespaces."""
        jail.drop_user(self._slot)
        jail.enter_namespaces()
        if os.fork() != 0:
            os._exit(0)
        self._namespaces = jail.ProcessNamespaces()
        jail.read_only_files()

    def _launch(self, limits: jail.Limits, report: int, rest: list[int]) -> dict[str, Any]:
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
            _be_program(rest, limits, self._system_calls, self._isolated)
        try:
            for descriptor in rest:
                os.close(descriptor)
            rest.clear()
            return _wait(child, report, limits)
        finally:
            if self._namespaces is not None:
                jail.drop_tmp()


def _be_program(descriptors: list[int], limits: jail.Limits, system_calls: bytes, isolated: bool) -> None:
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
            os.chdir("/tmp")
            jail.lock(limits, system_calls)
        else:
            _limit_only(limits)
        if streams:
            code = program_host.run_script(connection)
        else:
            program_host.serve(connection)
            code = 0
    except BaseException:
        pass  # whoever reads the connection sees that it has ended
    finally:
        os._exit(code)


def _alone(connection: int) -> int:
    """Close all descriptors but the standard streams; the connection is then number 3."""
    if connection != 3:
        os.dup2(connection, 3)
    os.closerange(4, 4096)
    return 3


def _limit_only(limits: jail.Limits) -> None:
    """Set the limits without any isolation, as far as the system has them."""
    for kind, most in ((resource.RLIMIT_CPU, int(2 * limits.cpu) + 2), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory * 2**20,) * 2)


def _wait(child: int, report: int, limits: jail.Limits) -> dict[str, Any]:
    """Wait for the program's end. Kill it when its time is over, or when the other side has its answer.

    Wall time ends only a program that waits. One that computes is ended by its CPU time, however slowly a busy machine
    gives it that.
    """
    began = time.monotonic()
    ended = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
    why = ""
    while not why:
        passed, used = time.monotonic() - began, _used(child)
        if passed >= limits.wall:
            used = max(used, _used_below(child))
        waits_until = max(limits.wall, used / jail.LEAST_SHARE)
        if used >= limits.cpu or passed >= waits_until:
            why = "cpu" if used >= limits.cpu else "wall"
        else:
            # Even on all cores it cannot use up the remaining CPU time sooner than this.
            left = min(waits_until - passed, (limits.cpu - used) / _CORES)
            why = _event(child, ended, report, max(_SHORTEST, left))
    if why != "ended":
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return {
        "why": why,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "seconds": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss // 1024,
    }


def _used(child: int) -> float:
    """Return the CPU time used by a process so far, over all its threads.

    It is read from the process's clock (clock_getcpuclockid(3)). RLIMIT_CPU counts whole ticks, which on a busy
    virtual machine can overstate the time by half.
    """
    if sys.platform != "linux":
        return 0.0
    try:
        return time.clock_gettime(~child << 3 | _SCHEDULED)
    except OSError:  # it has just ended
        return 0.0


def _used_below(child: int) -> float:
    """Return the CPU time used by a process and the processes below it, in whole ticks.

    Only a program without isolation can have any, and only there can they be read: an isolated one cannot fork, and
    the launcher's /proc is empty.
    """
    ticks, left = 0, [child]
    while left:
        own = Path(f"/proc/{left.pop()}")
        try:
            # user, system, and those of children that have ended
            ticks += sum(map(int, (own / "stat").read_text().rpartition(")")[2].split()[11:15]))
            left += [int(one) for task in own.glob("task/*/children") for one in task.read_text().split()]
        except OSError:  # it has just ended, or nothing can be read here
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def _event(child: int, ended: int | None, report: int, seconds: float) -> str:
    """Wait for at most that long.

    Return "ended", "stopped" where the other side has its answer, or "" for neither.
    """
    if ended is None:
        time.sleep(min(seconds, _SHORTEST))
        return "ended" if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) else ""
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(report, select.POLLIN)  # nothing is ever sent: only its end counts
    ready = dict(poll.poll(seconds * 1000))
    return "ended" if ended in ready else "stopped" if ready else ""
