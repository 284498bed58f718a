"""The restrictions of a program: new namespaces, an unprivileged user, limits, few system calls.

The system calls are made through ctypes: Python has none of them before 3.12. Sources: namespaces(7),
user_namespaces(7), mount(2), seccomp(2), prctl(2), getrlimit(2).
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
    """The limits of a program: ``cpu`` seconds, ``wall`` seconds unless it computes, ``memory`` MiB of address space,
    ``files`` MiB in /tmp and in one file, ``output`` MiB printed, ``processes`` (threads; it cannot fork)."""

    cpu: float = 3.0
    wall: float = 10.0
    memory: int = 1024
    files: int = 64
    output: int = 16
    processes: int = 64

    @property
    def longest(self) -> float:
        """The wall seconds after which no program is still there: one that has computed until then has used up its
        CPU time."""
        return max(self.wall, self.cpu / LEAST_SHARE)


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def drop_user(slot: int) -> None:
    """Become an unprivileged user, a different one per slot, where this process is root."""
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
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny", encoding="utf-8")
    (own / "uid_map").write_text(f"{NOBODY} {user} 1", encoding="utf-8")
    (own / "gid_map").write_text(f"{NOBODY} {group} 1", encoding="utf-8")


def read_only_files() -> None:
    """Make all files read-only and /proc empty, for this process and its children."""
    read_only = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    # On kernels before 5.12 this fails, and what is writable in the container stays writable: the self-test
    # reports it.
    _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, ctypes.byref(read_only), 32)
    hidden = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _call("mount", b"tmpfs", b"/proc", b"tmpfs", hidden, b"size=4k,nr_inodes=2,mode=555")


def empty_tmp(limits: ProgramLimits) -> None:
    """Mount an empty /tmp over the one that is there, until ``drop_tmp``."""
    size = f"size={limits.files}m,nr_inodes=4096,mode=1777".encode()
    _call("mount", b"tmpfs", b"/tmp", b"tmpfs", _MS_NOSUID | _MS_NODEV, size)


def drop_tmp() -> None:
    """Unmount the /tmp of ``empty_tmp``, with all that is in it."""
    _call("umount2", b"/tmp", _MNT_DETACH)


class ProcessNamespaces:
    """Makes one process namespace per child; this process must be the first one in a process namespace itself."""

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
    """Give up all privileges, set the limits, and forbid all system calls that the filter does not name."""
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
    plain = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in arguments]
    if getattr(_libc, name)(*plain) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
