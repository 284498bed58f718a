"""Asks for calls without end, and never reads what comes back."""

KIND = "call"
import os
import struct

BODY = b'{"callback": 0, "arguments": ["t", []], "keywords": ["d", []]}'


def add(a, b):
    while True:
        for fd in range(3, 16):
            try:
                os.write(fd, (struct.pack(">I", len(BODY)) + BODY) * 100)
            except OSError:
                pass
