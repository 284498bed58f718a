"""A small process that forks for others: starting Python anew for every program takes longer than most programs.

It holds no program and no test: what it forks for comes to the forked process by a connection of its own.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, Final

_MOST_DESCRIPTORS: Final = 8

_COMMON: Final = (
    *(
        "bisect",
        "collections",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "enum",
        "fractions",
        "functools",
    ),
    *("hashlib", "heapq", "itertools", "json", "math", "operator", "random", "re", "statistics", "string"),
    *("time", "types", "typing"),
)
"""What programs import most; they share its memory."""


class Zygote:
    """The handle of such a process; ``fork`` may be called by several threads."""

    def __init__(self, run: Callable[[dict[str, Any], list[int]], None], *, common: bool) -> None:
        """``run`` is called in every forked process, with the request and the descriptors, and does not return.
        With ``common`` the modules that programs often import are imported before."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _serve(theirs, run, common)
        theirs.close()

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Forks a process for a small request; it gets copies of the descriptors."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)


def _serve(requests: socket.socket, run: Callable[[dict[str, Any], list[int]], None], common: bool) -> None:
    code = 1
    try:
        _close_all_but(requests.fileno())
        signal.signal(
            signal.SIGCHLD, signal.SIG_IGN
        )  # nobody waits for what is forked here: it reports itself
        if common:
            for name in _COMMON:
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # collecting in a fork would copy the pages of all that was there before
        while True:
            message, descriptors, _, _ = socket.recv_fds(requests, 65536, _MOST_DESCRIPTORS)
            if not message:
                code = 0
                break
            if os.fork() == 0:
                requests.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                run(json.loads(message), list(descriptors))
                os._exit(1)
            for descriptor in descriptors:
                os.close(descriptor)
    finally:
        os._exit(code)


def _close_all_but(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 4096)
