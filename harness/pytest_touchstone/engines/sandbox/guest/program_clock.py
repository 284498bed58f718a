"""The time that a program takes, read from outside of it."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Final

from . import framing, jail

HERE: Final = b"!"
"""The byte that the process of a program writes before it runs the program."""

CORES: Final = os.cpu_count() or 1

SHORTEST: Final = 0.01
"""The least number of seconds between two readings of the CPU time."""

_SCHEDULED: Final = 2
"""The scheduler's clock of a process: CPUCLOCK_SCHED in the kernel."""

_CREDENTIALS: Final = struct.Struct("3i")


def process_clock(process: int) -> float:
    """Return the CPU time used by a process so far, over all its threads, by its clock (clock_getcpuclockid(3)).

    RLIMIT_CPU counts whole ticks, which on a busy virtual machine can overstate the time by half. Raises ``OSError``
    where there is no such process, or none has a clock.
    """
    return time.clock_gettime(~process << 3 | _SCHEDULED)


def cpu_seconds(process: int) -> float:
    """Return the same, and 0 for a process that has ended."""
    try:
        return process_clock(process) if sys.platform == "linux" else 0.0
    except OSError:
        return 0.0


def cpu_seconds_below(process: int) -> float:
    """Return the CPU time used by a process and the processes below it, in whole ticks.

    Only a program without isolation can have any, and only there can they be read: an isolated one cannot fork, and
    the launcher's /proc is empty.
    """
    ticks, left = 0, [process]
    while left:
        own = Path(f"/proc/{left.pop()}")
        try:
            # user, system, and those of children that have ended
            ticks += sum(map(int, (own / "stat").read_text().rpartition(")")[2].split()[11:15]))
            left += [int(one) for task in own.glob("task/*/children") for one in task.read_text().split()]
        except OSError:  # it has just ended, or nothing can be read here
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def give_names(connection: socket.socket) -> None:
    """Have the kernel add the sender's process to what is received from a connection, on Linux."""
    if hasattr(socket, "SO_PASSCRED"):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


class ProgramClock:
    """Waits for a program: the wall time that is counted is only that in which somebody waits for it.

    Wall time ends only a program that waits too. One that computes is ended by its CPU time, by the launcher, however
    slowly a busy machine gives it that.
    """

    def __init__(self, connection: int, wall: float) -> None:
        """Wait until the program's process is there. Raises ``Closed`` where it has ended before."""
        self._wall, self._waited = wall, 0.0
        self._limit, self._until = 0.0, float("inf")
        self._process = _sender(connection)

    def limit(self, seconds: float) -> None:
        """Give the program so much CPU time from now on, until the next limit; it is asked for one thing."""
        self._limit, self._until = seconds, cpu_seconds(self._process) + seconds

    def unlimit(self) -> None:
        """Give it the limit of all its time alone."""
        self._until = float("inf")

    def wait(self, descriptor: int, event: int) -> None:
        """Wait for an event at the program's connection. Raises ``TooLate`` when the program's time is over."""
        poll = select.poll()
        poll.register(descriptor, event)
        began = time.monotonic()
        try:
            while not poll.poll(self._left(time.monotonic() - began) * 1000):
                pass
        finally:
            self._waited += time.monotonic() - began

    def _left(self, passed: float) -> float:
        """Return the seconds after which to look again."""
        passed += self._waited
        left = self._wall - passed
        if left <= 0:
            used = max(cpu_seconds(self._process), cpu_seconds_below(self._process))
            left = used / jail.LEAST_SHARE - passed
            if left <= 0:
                raise framing.TooLate(f"still there after {self._wall:g} s")
        if self._until < float("inf"):
            computes = self._until - cpu_seconds(self._process)
            if computes <= 0:
                raise framing.TooLate(f"more CPU time on one input than its limit of {self._limit:.2g} s")
            # Even on all cores it cannot use up the remaining CPU time sooner than this.
            left = min(left, computes / CORES)
        return max(SHORTEST, left)


def _sender(connection: int) -> int:
    """Return the process, in this one's namespace, that says it is there."""
    end = socket.socket(fileno=connection)
    try:
        said, extra, _, _ = end.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
    except OSError as error:
        raise framing.Closed(str(error)) from None
    finally:
        end.detach()
    if said != HERE:
        raise framing.Closed("the program's process has not begun")
    for _, kind, data in extra:
        if kind == getattr(socket, "SCM_CREDENTIALS", None):
            return int(_CREDENTIALS.unpack(data)[0])
    return 0
