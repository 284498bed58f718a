"""Says that its messages come from another process, whose time would then be counted."""

KIND = "call"
import os
import socket
import struct

BODY = b'!{"value": 5}'


def add(a, b):
    with socket.socket(fileno=os.dup(3)) as end:
        for process, user in (
            (1, 0),
            (2, 0),
            (os.getpid(), 0),
            (os.getppid(), os.getuid()),
            (1, os.getuid()),
        ):
            named = struct.pack("3i", process, user, user)
            try:
                end.sendmsg([BODY], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, named)])
            except OSError:
                continue
    while True:
        pass
