"""Small processes that serve requests, one kind of them by forking.

Starting Python for every program takes longer than most programs. These processes hold no program and no test: those
reach the forked process over a separate connection.
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
    *("bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions"),
    *("functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "random", "re", "statistics"),
    *("string", "time", "types", "typing"),
)

Request = tuple[dict[str, Any], list[int]]
"""A request, and the descriptors that came with it, which the receiver closes."""


def import_common() -> None:
    """Import the modules that programs import most; processes forked later share their memory."""
    for name in _COMMON:
        importlib.import_module(name)


class Server:
    """A process forked to serve requests; ``ask`` may be called by several threads."""

    def __init__(self, serve: Callable[[Requests], None]) -> None:
        """``serve`` is called in the new process, which ends when ``serve`` returns."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            _be(serve, theirs)
        theirs.close()

    def ask(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Send a small request; the server gets copies of the descriptors. Raises ``OSError`` when it is gone."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)


class Requests:
    """The server's end of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def next(self) -> Request | None:
        """Return the next request, None when there are no more."""
        message, descriptors, _, _ = socket.recv_fds(self._connection, 65536, _MOST_DESCRIPTORS)
        return (json.loads(message), list(descriptors)) if message else None

    def close(self) -> None:
        """Close the connection in processes forked from the server: further requests are not for them."""
        self._connection.close()


def fork_for_each(run: Callable[[dict[str, Any], list[int]], None]) -> Callable[[Requests], None]:
    """Return a ``serve`` that forks a process per request and calls ``run`` in it."""

    def serve(requests: Requests) -> None:
        # Nobody waits for the processes forked here: each reports its own end.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while (request := requests.next()) is not None:
            if os.fork() == 0:
                requests.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                run(*request)
                os._exit(1)
            for descriptor in request[1]:
                os.close(descriptor)

    return serve


def _be(serve: Callable[[Requests], None], connection: socket.socket) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(nothing, stream)
        os.closerange(3, connection.fileno())
        os.closerange(connection.fileno() + 1, 4096)
        gc.collect()
        gc.freeze()  # collecting in a forked process would copy all the pages it inherited
        serve(Requests(connection))
        code = 0
    finally:
        os._exit(code)
