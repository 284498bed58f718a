"""A program that attempts what programs must not do, and prints which attempts succeeded.

It is never imported: ``self_test`` reads it as text and runs it in the sandbox. Outside of one it would do harm.
"""

import ctypes
import json
import os
import resource
import socket
import threading
from pathlib import Path

given = json.loads(input())
worked = []
libc = ctypes.CDLL(None, use_errno=True)


def attempt(name, action):
    """Note an action that succeeds, or whose result shows that it did."""
    try:
        if action() is not False:
            worked.append(name)
    except BaseException:
        return


def seen():
    return any(path.name.isdigit() and path.name != str(os.getpid()) for path in Path("/proc").iterdir())


def inherited():
    return any(os.environ.get(name) == value for name, value in given["environment"].items())


def signalled():
    return any(reached(process) for process in range(2, 400) if process != os.getpid())


def reached(process):
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def forked():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def connected(family, kind, address):
    with socket.socket(family, kind) as made:
        made.settimeout(1)
        made.connect(address)
        made.send(b"x")


def threads():
    stop = threading.Event()
    try:
        for _ in range(500):
            threading.Thread(target=stop.wait, daemon=True).start()
    finally:
        stop.set()


def filled():
    with Path("/tmp/flood").open("wb") as file:
        for _ in range(given["files"] + 64):
            file.write(bytes(2**20))


tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM
attempt("reading a file of the host", lambda: Path(given["file"]).read_bytes())
for folder in given["folders"]:
    attempt(f"writing to {folder}", (Path(folder) / "touchstone-probe").touch)
for folder, inner, _ in os.walk("/"):  # what a container or an old kernel leaves open, such as /dev/shm
    if folder == "/tmp" or folder.count("/") > 3:
        inner.clear()
    elif os.access(folder, os.W_OK):
        worked.append(f"writing to {folder}")
attempt("seeing the host's environment", inherited)
attempt("seeing other processes", seen)
attempt("signalling other processes", signalled)
attempt("signalling its parent", lambda: os.getppid() > 0 and reached(os.getppid()))
attempt("connecting to the host", lambda: connected(socket.AF_INET, tcp, ("127.0.0.1", given["port"])))
attempt("sending to a network", lambda: connected(socket.AF_INET, udp, ("192.0.2.1", 9)))
attempt("connecting to a local socket", lambda: connected(socket.AF_UNIX, tcp, given["local"]))
attempt("forking", forked)
attempt("executing", lambda: os.posix_spawn(given["interpreter"], ["python3", "-c", ""], {}))
attempt("starting 500 threads", threads)
attempt("becoming root", lambda: os.setuid(0))
attempt("raising a limit", lambda: resource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6)))
attempt("making a namespace", lambda: libc.unshare(0x10000000) == 0)
attempt("mounting", lambda: libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None) == 0)
attempt("tracing a process", lambda: libc.ptrace(16, 1, 0, 0) == 0)
attempt("taking more memory than allowed", lambda: bytearray(given["memory"] * 2**20))
attempt("writing more than allowed", filled)
print(*sorted(set(worked)), sep=", ")
