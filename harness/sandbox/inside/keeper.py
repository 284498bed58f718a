"""Waits outside of a program's namespaces for its end, or ends it, and says what it has used."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any, Final

from . import agent, frames, jail

_CORES: Final = os.cpu_count() or 1

_SHORTEST: Final = 0.01
"""Seconds between two looks at the time used."""

_SCHEDULED: Final = 2
"""The clock of what the scheduler has given a process: CPUCLOCK_SCHED of the kernel."""


def keep(request: dict[str, Any], descriptors: list[int], system_calls: bytes, isolated: bool) -> None:
    """Forks the program in namespaces of its own, waits for its end and reports it; does not return.

    ``descriptors``: where to report; the connection of the program's side; for a script also what it reads from
    and prints to.
    """
    report, *rest = descriptors
    try:
        limits = jail.Limits(**request["limits"])
        if isolated:
            jail.drop_user(request["slot"])
            jail.enter_namespaces()
        jail.die_with_parent()  # last: a change of user takes it back
        child = os.fork()
        if child == 0:
            os.close(report)
            _be_program(rest, limits, system_calls, isolated)
        for descriptor in rest:
            os.close(descriptor)
        frames.send(report, _wait(child, report, limits))
    except BaseException as error:
        with suppress(frames.Closed):
            frames.send(report, {"fault": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _be_program(descriptors: list[int], limits: jail.Limits, system_calls: bytes, isolated: bool) -> None:
    """Becomes the program; does not return."""
    code = 1
    try:
        os.setsid()  # a signal to its process group would reach the keeper, whatever the namespaces
        jail.die_with_parent()
        connection, *streams = descriptors
        agent.silence()
        for stream, descriptor in enumerate(streams):
            os.dup2(descriptor, stream)
        connection = _alone(connection)
        if isolated:
            jail.private_files(limits)
            jail.lock(limits, system_calls)
        else:
            _limit_only(limits)
        if streams:
            code = agent.run_script(connection)
        else:
            agent.serve(connection)
            code = 0
    except BaseException:
        pass  # whoever reads the connection sees that it ended
    finally:
        os._exit(code)


def _alone(connection: int) -> int:
    """Closes every other descriptor than the standard streams; the connection is then number 3."""
    if connection != 3:
        os.dup2(connection, 3)
    os.closerange(4, 4096)
    return 3


def _limit_only(limits: jail.Limits) -> None:
    """The limits without any isolation, as far as the system has them."""
    for kind, most in ((resource.RLIMIT_CPU, int(2 * limits.cpu) + 2), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory * 2**20,) * 2)


def _wait(child: int, report: int, limits: jail.Limits) -> dict[str, Any]:
    """How the program ended; it is killed when its time is over, or when the other side says that it has its
    answer.
    """
    deadline = time.monotonic() + limits.wall
    ended = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
    why = ""
    while not why:
        wall, cpu = deadline - time.monotonic(), limits.cpu - _used(child)
        if wall <= 0 or cpu <= 0:
            why = "cpu" if cpu <= 0 else "wall"
        else:
            # It cannot use up what is left sooner than this, on all cores.
            why = _event(child, ended, report, max(_SHORTEST, min(wall, cpu / _CORES)))
    if why != "ended":
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return {
        "why": why,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "seconds": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss // 1024,
    }


def _used(child: int) -> float:
    """The CPU time of a process so far, of all its threads.

    By its clock (clock_getcpuclockid(3)); what RLIMIT_CPU goes by is counted in whole ticks, on a busy virtual
    machine up to half as much again.
    """
    if sys.platform != "linux":
        return 0.0
    try:
        return time.clock_gettime(~child << 3 | _SCHEDULED)
    except OSError:  # it has just ended
        return 0.0


def _event(child: int, ended: int | None, report: int, seconds: float) -> str:
    """Waits at most so long; "ended", "stopped" where the other side has its answer, or "" for neither."""
    if ended is None:
        time.sleep(min(seconds, _SHORTEST))
        return "ended" if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) else ""
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(report, select.POLLIN)  # nothing is ever sent: it is the end of it that counts
    ready = dict(poll.poll(seconds * 1000))
    return "ended" if ended in ready else "stopped" if ready else ""
