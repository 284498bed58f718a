"""Programs of Python that start in hundredths of a second: forked from a process that has imported what they need.

``Forks`` starts that process. ``Forks.start`` is like ``subprocess.Popen`` of ``python ARGUMENTS``. A program that
starts ``sys.executable`` itself, as xdist and ``touchstone watch`` do, starts such a one too.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import io
import marshal
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from pytest_touchstone.core.hooks import load_plugins
from tests.support.distributions import remember_distributions
from tests.support.places import ROOT, SOURCE
from tests.support.project import ALONE, write_benchmark, write_rows

IMPORTED: Final = (
    *("xdist.dsession", "xdist.remote", "xdist.workermanage", "pytest_touchstone.cli.command"),
    *(
        "pytest_touchstone.plugin.batches",
        "pytest_touchstone.plugin.shards",
        "pytest_touchstone.results.merging",
    ),
)
"""What runs import besides those of the process that forks."""

BEFORE: Final = "FORK_BEFORE"
"""The variable with statements that a forked program runs first."""

UNUSED: Final = ("-u", "-I", "-S", "-E", "-B", "-P")
"""Options of Python that make no difference here."""

PYTHON: Final = """#!{python} -IS
import marshal, os, signal, socket, sys
sys.path.insert(0, "")
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({address!r})
blocked = list(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
asked = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ), blocked))
socket.send_fds(connection, [asked], [0, 1, 2])
pid = int(connection.recv(100))
nothing = os.open(os.devnull, os.O_RDWR)
for descriptor in (0, 1, 2):
    os.dup2(nothing, descriptor)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_SETMASK, ())
code = int(connection.recv(100) or -9)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if code != -9 else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class Fork:
    """A program that was forked: its process and, once it has ended, its exit code, negative for a signal."""

    def __init__(self, connection: socket.socket, output: Path) -> None:
        self._connection, self._output = connection, output
        self.pid = int(connection.recv(100))
        self.returncode: int | None = None

    def wait(self, timeout: float = 120.0) -> int:
        """Return the exit code. Raises ``subprocess.TimeoutExpired``, and then kills what hangs."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(100))
            except TimeoutError:
                os.killpg(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(f"forked; it printed: {self.output}", timeout) from None
            finally:
                self._connection.close()
        return self.returncode

    def ended(self, timeout: float) -> bool:
        """Return whether it ends within so many seconds."""
        if self.returncode is not None:
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            return bool(selector.select(timeout))

    def catches(self, number: signal.Signals) -> bool:
        """Return whether it has a handler of its own for a signal; not where it has ended."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return False
        return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)

    def kill(self, number: signal.Signals = signal.SIGKILL, *, group: bool = False) -> None:
        """Send it a signal, or all of its group as a terminal does; none where it has ended."""
        if not self.ended(0.0):
            with suppress(ProcessLookupError):  # it has ended just now
                (os.killpg if group else os.kill)(self.pid, number)

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self._output.read_text(encoding="utf-8", errors="backslashreplace")


class Forks:
    """The process that forks, which ends with this one; ``python`` is a program that stands for ``sys.executable``."""

    def __init__(self, folder: Path) -> None:
        self._address = str(folder / "forks")
        self._folder, self._number = folder, 0
        self.python = folder / "python"
        self.python.write_text(PYTHON.format(python=sys.executable, address=self._address))
        self.python.chmod(0o755)
        words = [sys.executable, "-m", "tests.support.forking", self._address, str(self.python)]
        # The test that asks first may have set these for what it runs; each fork is given its own.
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        paths = os.pathsep.join((str(SOURCE), str(ROOT)))
        self._server = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**variables, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"

    def start(
        self,
        *arguments: str,
        cwd: Path,
        before: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Fork:
        """Start ``python ARGUMENTS``, which first runs the statements ``before``, in a group of its own."""
        self._number += 1
        output = self._folder / f"output-{self._number}"
        variables = {**os.environ, **(environment or {}), BEFORE: before}
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self._address)
        with output.open("wb") as file, Path(os.devnull).open("rb") as nothing:
            asked = marshal.dumps((list(arguments), str(cwd), variables, []))
            descriptors = [nothing.fileno(), file.fileno(), file.fileno()]
            socket.send_fds(connection, [asked], descriptors)
        return Fork(connection, output)

    def close(self) -> None:
        """End the process that forks, and what it has forked."""
        self._server.communicate()


@functools.cache
def python() -> str:
    """The program that stands for ``sys.executable`` in all tests of this process."""
    folder = tempfile.TemporaryDirectory(prefix="forks-")
    forks = Forks(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(forks.close)
    return str(forks.python)


@functools.cache
def commands() -> Path:
    """A folder for PATH, with the commands ``touchstone`` and ``pytest``."""
    folder = Path(python()).with_name("commands")
    folder.mkdir()
    for name, module in {"touchstone": "pytest_touchstone.cli", "pytest": "pytest"}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {python()} -m {module} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def serve(address: str, python: str) -> None:
    """Fork the programs that are asked for, until standard input ends; the forked ones return from here too."""
    for name in IMPORTED:
        importlib.import_module(name)
    patch = pytest.MonkeyPatch()
    patch.setattr("os.fsync", lambda _: None)  # what tests write need not outlive a power cut
    remember_distributions(patch)
    # The asserts of plugins that are imported already are no longer rewritten.
    patch.setattr(AssertionRewritingHook, "_warn_already_imported", lambda *_: None)
    _run_once()
    gc.collect()
    gc.freeze()
    # Until a fork is what it becomes.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(address)
    listening.listen(50)
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listening, selectors.EVENT_READ)
        children: dict[int, tuple[int, socket.socket]] = {}
        os.write(1, b"ready\n")
        while True:
            for key, _ in selector.select():
                if selector.get_map().get(key.fd) != key:  # closed a moment ago
                    continue
                if key.fileobj == 0:
                    for pid, _ in children.values():
                        os.killpg(pid, signal.SIGKILL)
                    return
                if key.fileobj is listening:
                    connection, _ = listening.accept()
                    asked, descriptors, *_ = socket.recv_fds(connection, 1 << 20, 3)
                    if (pid := os.fork()) == 0:
                        _become(asked, descriptors, python)
                    for descriptor in descriptors:
                        os.close(descriptor)
                    with suppress(OSError):  # whoever asked may have been killed meanwhile
                        connection.send(str(pid).encode())
                    process = os.pidfd_open(pid)
                    children[process] = pid, connection
                    selector.register(process, selectors.EVENT_READ)
                    selector.register(connection, selectors.EVENT_READ, pid)
                elif key.fd in children:
                    pid, connection = children.pop(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    if connection in selector.get_map():
                        selector.unregister(connection)
                        with suppress(OSError):
                            connection.send(str(code).encode())
                    connection.close()
                else:  # nobody waits any more
                    selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)


def _become(asked: bytes, descriptors: Sequence[int], python: str) -> NoReturn:
    """Run a program of Python in this process, which was just forked, and end it."""
    code: Any = 0
    try:
        arguments, folder, variables, blocked = marshal.loads(asked)
        os.setsid()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        os.closerange(3, 256)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        sys.executable = python
        sys.path[:0] = ["", *(one for one in variables.get("PYTHONPATH", "").split(os.pathsep) if one)]
        time.tzset()
        exec(variables.pop(BEFORE, ""), {})
        _run([one for one in arguments if one not in UNUSED])
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(int(code or 0))


def _run(arguments: list[str]) -> None:
    how, sys.argv[:] = arguments[0], arguments[1:]
    if how == "-c":
        program, sys.argv[0:1] = sys.argv[0], ["-c"]
        exec(program, {"__name__": "__main__"})
    elif how == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv.insert(0, how)
        runpy.run_path(how, run_name="__main__")


def _run_once() -> None:
    """Run a benchmark twice, so that the libraries and templates of a run are loaded."""
    here, path = Path.cwd(), list(sys.path)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        write_benchmark(Path(folder, "test_sums.py"))
        write_rows(Path(folder), 20)
        os.chdir(folder)
        for _ in range(2):
            assert pytest.main(["--checkpoint", "fake:causal", "--eval-data", "data", "-q", *ALONE]) == 0
        os.chdir(here)
    del sys.modules["test_sums"]
    load_plugins.cache_clear()  # a program may have other packages
    sys.path[:] = path


if __name__ == "__main__":
    serve(*sys.argv[1:])
