"""The system calls that a program may make, as a filter for the kernel (seccomp(2)), made with libseccomp.

Everything that is not named here fails with EPERM, including new calls of future kernels. Forking, executing, network
sockets, tracing, mounting, System V memory and anonymous files (which no limit counts) are not named.
"""

from __future__ import annotations

import errno
import tempfile
from typing import Any, Final

from pytest_touchstone.core.errors import SandboxError

_CLONE_THREAD: Final = 0x00010000

_ALLOWED: Final = (
    # files
    *("read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2"),
    *("open", "openat", "openat2", "creat", "close", "close_range", "lseek", "_llseek", "sendfile"),
    *("copy_file_range", "stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs", "access"),
    *("faccessat", "faccessat2", "getdents", "getdents64", "getcwd", "chdir", "fchdir", "readlink"),
    *("readlinkat", "dup", "dup2", "dup3", "fcntl", "flock", "fsync", "fdatasync", "truncate", "ftruncate"),
    *("fallocate", "fadvise64", "umask", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename"),
    *("renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "chmod", "fchmod", "fchmodat"),
    *("utime", "utimes", "utimensat", "futimesat", "pipe", "pipe2", "socketpair", "poll", "ppoll", "select"),
    *("pselect6", "eventfd", "eventfd2", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait"),
    *("epoll_pwait", "epoll_pwait2", "sendto", "recvfrom", "sendmsg", "recvmsg", "shutdown", "getsockopt"),
    *("setsockopt", "getsockname", "getpeername"),
    # memory
    *("brk", "mmap", "mmap2", "munmap", "mremap", "mprotect", "madvise", "msync", "mincore", "membarrier"),
    # threads and time
    *("futex", "futex_waitv", "set_robust_list", "get_robust_list", "set_tid_address", "rseq", "gettid"),
    *("getcpu", "sched_yield", "sched_getaffinity", "sched_getparam", "sched_getscheduler"),
    *("sched_get_priority_max", "sched_get_priority_min", "nanosleep", "clock_nanosleep", "clock_gettime"),
    *("clock_getres", "gettimeofday", "time", "times", "getitimer", "setitimer", "alarm", "timer_create"),
    *("timer_settime", "timer_gettime", "timer_delete", "timerfd_create", "timerfd_settime"),
    *("timerfd_gettime", "pause", "arch_prctl"),
    # signals: there is nobody but itself in its process namespace
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigsuspend", "rt_sigtimedwait"),
    *("sigaltstack", "kill", "tkill", "tgkill", "signalfd", "signalfd4", "restart_syscall"),
    # itself
    *("getpid", "getppid", "getpgid", "getpgrp", "getsid", "getuid", "geteuid", "getgid", "getegid"),
    *("getgroups", "getresuid", "getresgid", "getrlimit", "getrusage", "getpriority", "sysinfo", "uname"),
    *("getrandom", "wait4", "waitid", "waitpid", "exit", "exit_group"),
)

_IOCTLS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: what opening a file in Python asks for."""


def system_calls() -> bytes:
    """Return the filter, as the kernel takes it. Raises ``SandboxError`` where libseccomp is missing."""
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise SandboxError(
            f"system calls cannot be filtered ({error}); install the extra 'code' "
            "(pip install 'pytest-touchstone[code]') and the system's libseccomp2"
        ) from None
    made = pyseccomp.SyscallFilter(defaction=pyseccomp.ERRNO(errno.EPERM))
    for name in _ALLOWED:
        _allow(pyseccomp, made, name)
    for number in _IOCTLS:
        _allow(pyseccomp, made, "ioctl", pyseccomp.Arg(1, pyseccomp.EQ, number))
    _allow(pyseccomp, made, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLONE_THREAD, _CLONE_THREAD))
    # clone3 hides its flags from the filter; "there is no such call" makes libc take clone
    made.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    # limits may be read, but not set
    _allow(pyseccomp, made, "prlimit64", pyseccomp.Arg(2, pyseccomp.EQ, 0))
    made.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)  # a tree: every system call of a program goes through it
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()


def _allow(pyseccomp: Any, made: Any, name: str, *arguments: Any) -> None:
    try:
        made.add_rule(pyseccomp.ALLOW, name, *arguments)
    except (ValueError, RuntimeError, OSError):
        return  # this machine's architecture has no such call
