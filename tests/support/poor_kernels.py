"""Kernels and containers that lack what the sandbox is made of, simulated by a filter of system calls.

``python -m tests.support.poor_kernels`` reads lists of ``LACKS`` from standard input, as JSON, and writes for each
what becomes of a sandbox there. The filter holds for good, so each is tried in a process of its own.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyseccomp
from pyseccomp import EQ, ERRNO, GE, MASKED_EQ, Arg

from pytest_touchstone.core.errors import SandboxError
from pytest_touchstone.engines.sandbox import open_sandbox
from pytest_touchstone.engines.sandbox.isolation import find_bubblewrap, interpreter_files
from tests.support.attack_tasks import attacks, request, right

_USER, _PID, _NET = 0x10000000, 0x20000000, 0x40000000
_PROC_FLAGS: Final = 14
"""nosuid, nodev, noexec: how bubblewrap mounts /proc, and nothing else."""

_SO_PASSCRED: Final = 16


def _namespaces(flag: int, number: int) -> list[Any]:
    return [(name, number, Arg(0, MASKED_EQ, flag, flag)) for name in ("unshare", "clone")]


LACKS: Final[dict[str, list[Any]]] = {
    "user namespaces, by a profile": _namespaces(_USER, errno.EPERM),
    "user namespaces, by max_user_namespaces=0": _namespaces(_USER, errno.ENOSPC),
    "process namespaces": _namespaces(_PID, errno.EPERM),
    "network namespaces": _namespaces(_NET, errno.EINVAL),
    "unshare": [("unshare", errno.ENOSYS)],
    "setns": [("setns", errno.ENOSYS)],
    "mounts": [("mount", errno.EPERM)],
    "a /proc of its own": [("mount", errno.EPERM, Arg(3, EQ, _PROC_FLAGS))],
    "mount_setattr": [("mount_setattr", errno.ENOSYS)],
    "umount2": [("umount2", errno.EPERM)],
    "pivot_root": [("pivot_root", errno.EPERM)],
    "seccomp": [("prctl", errno.EINVAL, Arg(0, EQ, 22)), ("seccomp", errno.ENOSYS)],
    "no_new_privs": [("prctl", errno.EINVAL, Arg(0, EQ, 38))],
    "capset": [("capset", errno.EPERM)],
    "other users": [("setresuid", errno.EPERM), ("setgroups", errno.EPERM), ("setresgid", errno.EPERM)],
    "limits": [("setrlimit", errno.EPERM), ("prlimit64", errno.EPERM, Arg(2, GE, 1))],
    "pidfd_open": [("pidfd_open", errno.ENOSYS)],
    "the clocks of other processes": [("clock_gettime", errno.EINVAL, Arg(0, GE, 2**31))],
    "memfd_create": [("memfd_create", errno.ENOSYS)],
    "the names of senders": [("setsockopt", errno.ENOPROTOOPT, Arg(2, EQ, _SO_PASSCRED))],
}
"""What a kernel or a container may lack: rules of system calls that fail, with their error."""


REFUSED: Final = frozenset(LACKS) - {"mount_setattr", "memfd_create"}
"""Those without which no program is run: all but two, whose place is taken by something else."""

ENGINE: Final = """\
#!{python}
import os, sys
words = sys.argv[1:]
if words[0] != "run":
    sys.exit(0)
given = dict(one.split("=", 1) for flag, one in zip(words, words[1:]) if flag == "--env")
guest = words[words.index("--volume") + 1].split(":")
start = words[words.index("python3") + 1 :]
command = [{bwrap!r}, "--die-with-parent", "--as-pid-1", "--clearenv"]
command += ["--unshare-pid", "--unshare-ipc", "--unshare-uts"]
for name, value in given.items():
    command += ["--setenv", name, value]
if {rootless}:
    command += ["--unshare-user", "--uid", "0", "--gid", "0"]
command += [] if {network} else ["--unshare-net"]
command += ["--cap-drop", "ALL"]
for right in {rights!r}:
    command += ["--cap-add", "CAP_" + right]
for path in ("/usr", "/etc", "/bin", "/lib", "/lib64", *{files!r}):
    command += ["--ro-bind", path, path] if os.path.exists(path) else []
command += ["--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm", "--proc", "/proc", "--perms", "1777"]
command += ["--tmpfs", "/tmp", "--perms", "1777", "--dir", "/var/tmp", "--ro-bind", *guest[:2]]
command += ["--remount-ro", "/"] if "--read-only" in words and not {writable} else []
os.execv({bwrap!r}, [*command, {python!r}, *start])
"""
"""A container engine as the sandbox sees one, made of bubblewrap; ``ENGINES`` are those that differ from it."""

ENGINES: Final[dict[str, dict[str, Any]]] = {
    "an engine as it should be": {},
    "a rootless engine, with one user": {"rootless": True},
    "an engine that gives no SYS_ADMIN": {"rights": ("SETUID", "SETGID")},
    "an engine that gives no other users": {"rights": ("SYS_ADMIN",)},
    "an engine that gives the host's network": {"network": True},
    "an engine that leaves its files writable": {"writable": True},
}


def engine(folder: Path, **differs: Any) -> None:
    """Put a container engine that is made of bubblewrap into a folder."""
    python = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    given: dict[str, Any] = {"rootless": False, "network": False, "writable": False}
    given |= {"rights": ("SYS_ADMIN", "SETUID", "SETGID"), "python": str(python)} | differs
    files = [str(path) for path in interpreter_files(python)]
    (folder / "docker").write_text(ENGINE.format(bwrap=find_bubblewrap(), files=files, **given))
    (folder / "docker").chmod(0o755)


def lack(names: list[str]) -> None:
    """Take these from this process and all that come after it."""
    made = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
    for name in names:
        for call, number, *arguments in LACKS[name]:
            with suppress(FileExistsError):  # which fails already, with the error of another name
                made.add_rule(ERRNO(number), call, *arguments)
    made.load()


def tried(names: list[str], kind: Any, hostile: list[str], file: str, port: int) -> dict[str, Any]:
    """The refusal of a sandbox, or the verdicts on hostile programs and on a right one after them."""
    if names:
        lack(names)
    try:
        with open_sandbox(kind, workers=1) as sandbox:
            chosen = [one for one in attacks() if one.name in hostile]
            begun = {
                one.name: sandbox.submit(request(one.task, one.program(file, port, "NAME"))) for one in chosen
            }
            answers = {name: future.result(120.0) for name, future in begun.items()}
            after = sandbox.run(right("add", "after all of them"))
    except SandboxError as error:
        return {"refused": str(error)}
    return {
        "answers": {name: (one.outcome, one.detail) for name, one in answers.items()},
        "after": after.outcome,
    }


def _in_a_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work returns, or the exception that it ends with, from a process of its own."""
    mine, its = socket.socketpair()
    if (child := os.fork()) == 0:
        try:
            said = work()
        except BaseException as error:
            said = {"raised": f"{type(error).__name__}: {error}"}
        its.sendall(json.dumps(said).encode())
        os._exit(0)
    its.close()
    with mine:
        parts = list(iter(lambda: mine.recv(2**16), b""))
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(b"".join(parts))
    return found


def main() -> None:
    """Try each of the lists that standard input has."""
    given = json.load(sys.stdin)
    more = (given["kind"], given["hostile"], given["file"], given["port"])
    for names in given["lists"]:
        print(json.dumps(_in_a_child(lambda names=names: tried(names, *more))), flush=True)  # type: ignore[misc]


if __name__ == "__main__":
    main()
