"""Keeps memory in the kernel: full pipes and sockets."""

KIND = "call"
import os
import socket


def add(a, b):
    kept = []
    try:
        while len(kept) < 20_000:
            ends = os.pipe()
            os.set_blocking(ends[1], False)
            os.write(ends[1], b"x" * 65536)
            kept.append(ends)
    except OSError:
        pass
    try:
        while len(kept) < 20_000:
            pair = socket.socketpair()
            pair[0].setblocking(False)
            pair[0].send(b"x" * 65536)
            kept.append(pair)
    except OSError:
        return None
    raise RuntimeError("ESCAPED: 20,000 full pipes")
