"""Gives a socket of a pair a name by a trick, and sends to all such names that others may have."""

KIND = "call"
import socket
import time


def add(a, b):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in (one, other):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        end.setblocking(False)
    one.send(b"x")  # from now on it has a name: five digits
    other.send(b"x")
    mine = {one.getsockname(), other.getsockname()}
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        for number in range(64):
            name = b"\0%05x" % number
            for target in (name, b"\0touchstone_attack_@PORT@"):
                try:
                    one.sendto(b"passed", target) if target not in mine else None
                except OSError:
                    continue
                if target not in mine:
                    raise RuntimeError("ESCAPED: somebody was reached")
        time.sleep(0.01)
