"""Answers with sixteen megabytes of empty lists, which take fifty times as much once read."""

KIND = "call"
import os
import struct


def add(a, b):
    body = b'{"value": ["l", [' + b",".join([b'["l",[]]'] * 1_800_000) + b"]]}"
    for fd in range(3, 16):
        try:
            view = memoryview(struct.pack(">I", len(body)) + body)
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            pass
