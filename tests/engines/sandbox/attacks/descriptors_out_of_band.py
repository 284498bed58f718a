"""Sends urgent bytes in the midst of its answers, which some readers leave out."""

KIND = "call"
import os
import socket
import struct

BODY = b'{"value": 5}'


def add(a, b):
    with socket.socket(fileno=os.dup(3)) as end:
        for one in struct.pack(">I", len(BODY)) + BODY:
            for flag in (socket.MSG_OOB, 0):
                try:
                    end.send(bytes([one]), flag)
                except OSError:
                    continue
    os._exit(0)
