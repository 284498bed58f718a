"""A server that answers byte by byte as it is told."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Scripted:
    """A server that sends the next of its replies to each request; an empty one after a reply ends the connection."""

    replies: list[bytes]
    base: str = ""
    connections: int = 0
    asked: list[bytes] = field(default_factory=list)

    def serve(self, request: socketserver.StreamRequestHandler) -> None:
        self.connections += 1
        while head := request.rfile.readline():
            lines = [head]
            while (line := request.rfile.readline()) not in (b"\r\n", b""):
                lines.append(line)
            told = dict(line.lower().rstrip().split(b": ", 1) for line in lines[1:])
            self.asked.append(b"".join(lines) + request.rfile.read(int(told.get(b"content-length", 0))))
            request.wfile.write(self.replies.pop(0))
            if self.replies and not self.replies[0]:
                self.replies.pop(0)
                return


@contextmanager
def scripted(*replies: bytes) -> Iterator[Scripted]:
    found = Scripted(list(replies))

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            found.serve(self)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        found.base = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
