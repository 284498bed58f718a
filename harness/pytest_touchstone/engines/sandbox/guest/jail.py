"""The restrictions of a program: new namespaces, an unprivileged user, limits, few system calls; and its clock, read
from outside of it.

The system calls are made through ctypes: Python has none of them before 3.12. Sources: namespaces(7),
user_namespaces(7), mount(2), seccomp(2), prctl(2), getrlimit(2).
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import framing

NOBODY: Final = 65534
"""The user as which a program sees itself."""

FIRST_USER: Final = 61000
"""The first of the users that programs run as if the sandbox itself runs as root."""

_NEW_NS, _NEW_UTS, _NEW_IPC = 0x00020000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PID, _NEW_NET, _MNT_DETACH = 0x10000000, 0x20000000, 0x40000000, 2
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER: Final = 2
_MOUNT_SETATTR, _MOUNT_ATTR_RDONLY, _AT_FDCWD, _AT_RECURSIVE = 442, 1, -100, 0x8000
_CAPABILITY_VERSION: Final = 0x20080522
_KILL: Final = 9

LEAST_SHARE: Final = 0.1
"""A program that has had less than this part of a core, once its wall time is over, is taken to wait."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """The limits of a program.

    ``cpu`` seconds, ``wall`` seconds unless it computes, ``memory`` MiB of address space, ``files`` MiB in /tmp and in
    one file, ``output`` MiB printed, ``processes`` (threads; it cannot fork).
    """

    cpu: float = 3.0
    wall: float = 10.0
    memory: int = 1024
    files: int = 64
    output: int = 16
    processes: int = 64

    @property
    def longest(self) -> float:
        """The wall seconds after which every program has ended: one that computes has used up its CPU time by then."""
        return max(self.wall, self.cpu / LEAST_SHARE)


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def drop_user(slot: int) -> None:
    """Become an unprivileged user, a different one per slot, if this process is root."""
    if os.getuid() == 0:
        user = FIRST_USER + slot
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self, and with it uid_map, belongs to root


def enter_namespaces() -> None:
    """Move this process into new user, mount, IPC, network and host-name namespaces, and its next child into a process
    namespace.

    Processes are counted per user namespace, so one program does not use up another's limit. A socket of a pair can
    get a name, by which programs beside each other would find each other if they shared a network namespace.
    """
    user, group = os.getuid(), os.getgid()
    _call("unshare", _NEW_USER | _NEW_PID | _NEW_NS | _NEW_IPC | _NEW_NET | _NEW_UTS)
    process_folder = Path("/proc/self")
    (process_folder / "setgroups").write_text("deny", encoding="utf-8")
    (process_folder / "uid_map").write_text(f"{NOBODY} {user} 1", encoding="utf-8")
    (process_folder / "gid_map").write_text(f"{NOBODY} {group} 1", encoding="utf-8")


def read_only_files() -> None:
    """Make all files read-only and /proc empty, for this process and its children."""
    read_only = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    # On kernels before 5.12 this fails, and what is writable in the container stays writable: the self-test
    # reports it.
    _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, ctypes.byref(read_only), 32)
    hidden = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _call("mount", b"tmpfs", b"/proc", b"tmpfs", hidden, b"size=4k,nr_inodes=2,mode=555")


def empty_tmp(limits: ProgramLimits) -> None:
    """Mount an empty /tmp over the existing one, until ``drop_tmp``."""
    size = f"size={limits.files}m,nr_inodes=4096,mode=1777".encode()
    _call("mount", b"tmpfs", b"/tmp", b"tmpfs", _MS_NOSUID | _MS_NODEV, size)


def drop_tmp() -> None:
    """Unmount the /tmp of ``empty_tmp``, with all its files."""
    _call("umount2", b"/tmp", _MNT_DETACH)


class ProcessNamespaces:
    """A factory of process namespaces, one per child; this process must itself be the first in its namespace."""

    def __init__(self) -> None:
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def fork(self) -> int:
        """Fork as ``os.fork`` does; the child is the first process of a new namespace."""
        _call("unshare", _NEW_PID)
        child = -1
        try:
            child = os.fork()
        finally:
            if child != 0:
                _call("setns", self._own, _NEW_PID)
        return child


def die_with_parent() -> None:
    """Make this process end when the one that forked it does, on Linux."""
    if sys.platform == "linux":
        _call("prctl", _PR_SET_PDEATHSIG, _KILL, 0, 0, 0)


def lock(limits: ProgramLimits, system_calls: bytes) -> None:
    """Give up all privileges, set the limits, and forbid all system calls that the filter does not allow."""
    megabyte = 2**20
    for kind, most in (
        (resource.RLIMIT_CPU, int(2 * limits.cpu) + 2),  # the launcher, with a better clock, ends it earlier
        (resource.RLIMIT_AS, limits.memory * megabyte),
        (resource.RLIMIT_FSIZE, limits.files * megabyte),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))
    _drop_capabilities()
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if system_calls:
        kept = ctypes.create_string_buffer(system_calls, len(system_calls))
        made = _Filter(len(system_calls) // 8, ctypes.cast(kept, ctypes.c_void_p).value)
        _call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(made), 0, 0)


def _drop_capabilities() -> None:
    header = _CapabilityHeader(_CAPABILITY_VERSION, 0)
    _call("capset", ctypes.byref(header), (ctypes.c_uint32 * 6)())


def _call(name: str, *arguments: Any) -> None:
    plain = [ctypes.c_ulong(argument) if isinstance(argument, int) else argument for argument in arguments]
    if getattr(_libc, name)(*plain) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


# The time that a program takes


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
    """Return the CPU time used by a process so far, or 0 for a process that has ended."""
    try:
        return process_clock(process) if sys.platform == "linux" else 0.0
    except OSError:
        return 0.0


def give_names(connection: socket.socket) -> None:
    """Let the kernel add the sender's process id to messages from a connection, on Linux."""
    if hasattr(socket, "SO_PASSCRED"):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


class ProgramClock:
    """A clock of the wall time during which somebody waits for a program.

    Wall time ends only a program that waits, too. A program that computes is ended by its CPU time, by the launcher,
    however slowly a busy machine gives it that.
    """

    def __init__(self, connection: int, wall: float) -> None:
        """Wait until the program's process exists. Raises ``Closed`` if it has ended before."""
        self._wall, self._waited = wall, 0.0
        self._limit, self._until, self._began = 0.0, float("inf"), 0.0
        self._process = _sender(connection)

    def limit(self, seconds: float) -> None:
        """Limit the program to ``seconds`` of CPU time from now on, for a single request.

        One that has less than ``LEAST_SHARE`` of a core meanwhile waits, and ends, too.
        """
        self._limit, self._until, self._began = seconds, cpu_seconds(self._process) + seconds, self._waited

    def unlimit(self) -> None:
        """Restore the limit of the program's whole time."""
        self._until = float("inf")

    @contextmanager
    def limited(self, seconds: float | None) -> Iterator[None]:
        """Limit the program to ``seconds`` of CPU time within the context; None changes nothing."""
        if seconds is None:
            yield
            return
        self.limit(seconds)
        try:
            yield
        finally:
            self.unlimit()

    def wait(self, descriptor: int, event: int) -> None:
        """Wait for an event at the program's connection. Raises ``TooLate`` when the program's time is up."""
        poll = select.poll()
        poll.register(descriptor, event)
        began = time.monotonic()
        try:
            while not poll.poll(self._left(time.monotonic() - began) * 1000):
                pass
        finally:
            self._waited += time.monotonic() - began

    def _left(self, passed: float) -> float:
        """Return the seconds until the next check."""
        passed += self._waited
        left = self._wall - passed
        if left <= 0:
            left = cpu_seconds(self._process) / LEAST_SHARE - passed
            if left <= 0:
                raise framing.DeadlinePassed(f"still there after {self._wall:g} s")
        if self._until < float("inf"):
            computes = self._until - cpu_seconds(self._process)
            if computes <= 0:
                raise framing.DeadlinePassed(
                    f"more CPU time on one input than its limit of {self._limit:.2g} s"
                )
            if passed - self._began > self._limit / LEAST_SHARE:
                raise framing.DeadlinePassed(f"still there after {self._limit / LEAST_SHARE:g} s")
            # Even on all cores it cannot use up the remaining CPU time sooner than this.
            left = min(left, computes / CORES)
        return max(SHORTEST, left)


def _sender(connection: int) -> int:
    """Return the id, in this process's namespace, of the process that announces itself."""
    end = socket.socket(fileno=connection)
    try:
        position, extra, _, _ = end.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
    except OSError as error:
        raise framing.ConnectionClosed(str(error)) from None
    finally:
        end.detach()
    if position != HERE:
        raise framing.ConnectionClosed("the program's process has not begun")
    for _, kind, data in extra:
        if kind == getattr(socket, "SCM_CREDENTIALS", None):
            return int(_CREDENTIALS.unpack(data)[0])
    return 0
