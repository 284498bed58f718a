"""The things that hostile programs may not reach: a file, an environment variable, open ports; and their traces."""

from __future__ import annotations

import os
import select
import shutil
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = "TOUCHSTONE_CANARY"
SECRET: Final = "the-canary-has-sung-7f3a91"
MARK: Final = "touchstone_attack"
"""The prefix of the files that hostile programs leave."""


@dataclass(frozen=True, slots=True)
class Outside:
    """A file that anyone may read and write, and sockets that anyone of this machine may reach."""

    file: Path
    port: int
    sockets: tuple[socket.socket, ...]

    def touched(self) -> list[str]:
        """The traces of what was done to it."""
        found = [f"{one.family.name} was reached" for one in select.select(self.sockets, [], [], 0)[0] if one]
        if self.file.read_text() != SECRET:
            found.append("the file was changed")
        return found


@contextmanager
def outside() -> Iterator[Outside]:
    """Sets all of it up, the environment variable too, and takes it away again."""
    places = ("/var/tmp", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="canary-", dir=next(one for one in places if Path(one).is_dir())))
    before = os.environ.get(NAME)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o777)
        file = folder / "file"
        file.write_text(SECRET)
        file.chmod(0o666)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = tcp.getsockname()[1]
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("0.0.0.0", port))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(f"\0{MARK}_{port}")
        unix.listen()
        os.environ[NAME] = SECRET
        try:
            yield Outside(file, port, (tcp, udp, unix))
        finally:
            os.environ.pop(NAME)
            if before is not None:
                os.environ[NAME] = before


def files_left() -> list[Path]:
    """Files of hostile programs' in the places where they try to leave some."""
    places = {".", "/", "/tmp", "/var/tmp", "/dev/shm", "/dev", "/run", "/root", "/home", "/etc", "/usr/lib"}
    places |= {*filter(None, sys.path), sysconfig.get_path("stdlib"), sys.prefix}
    return [path for place in places if Path(place).is_dir() for path in Path(place).glob(f"*{MARK}*")]


def descendants() -> dict[int, str]:
    """The processes that this one has started, and they: number and name."""
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            head, _, rest = (entry / "stat").read_text(errors="replace").rpartition(")")
        except OSError:
            continue
        # the name, in parentheses, may hold anything
        children.setdefault(int(rest.split()[1]), []).append((int(entry.name), head.partition("(")[2]))
    found, waiting = {}, [os.getpid()]
    while waiting:
        for pid, name in children.get(waiting.pop(), ()):
            found[pid] = name
            waiting.append(pid)
    return found


def namespaces(pids: Iterable[int]) -> set[str]:
    """The namespaces of processes, those of this one left out."""
    found = set()
    for pid in pids:
        for kind in ("pid", "user"):
            try:
                found.add(str(Path(f"/proc/{pid}/ns/{kind}").readlink()))
            except OSError:
                continue
    return found - {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "user")}


def all_processes() -> list[int]:
    """Every process of the machine that can be seen."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
