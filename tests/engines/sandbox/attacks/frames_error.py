"""Answers a call with reports of errors that are none."""

KIND = "call"
import os
import struct


def add(a, b):
    for body in (
        b'{"error": {"types": [5, {}, null], "text": {}, "line": {}}}',
        b'{"error": {"types": ["type"]}}',
    ):
        for fd in range(3, 16):
            try:
                os.write(fd, struct.pack(">I", len(body)) + body)
            except OSError:
                pass
    os._exit(0)
