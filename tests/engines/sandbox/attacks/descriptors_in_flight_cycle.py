"""Sends sockets through themselves and closes them, so that only the kernel holds them."""

KIND = "call"
import socket


def add(a, b):
    for _ in range(20_000):
        try:
            one, other = socket.socketpair()
            for _ in range(3):
                socket.send_fds(one, [b"x"], [one.fileno(), other.fileno()] * 50)
        except OSError:
            pass
        one.close()
        other.close()
