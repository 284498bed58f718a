"""Changes the flags and options of all descriptors: non-blocking, appending, no buffer, other ends of life."""

KIND = "call"
import fcntl
import os
import socket
import struct

for fd in range(16):
    for flag in (os.O_NONBLOCK, os.O_APPEND, os.O_ASYNC, os.O_DIRECT):
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | flag)
        except OSError:
            continue
with socket.socket(fileno=os.dup(3)) as end:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF, socket.SO_RCVLOWAT, socket.SO_PASSCRED, 42, 44):
        try:
            end.setsockopt(socket.SOL_SOCKET, option, 1)
        except OSError:
            continue
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def add(a, b):
    return None
