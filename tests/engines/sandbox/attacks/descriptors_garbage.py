"""Writes noise into every descriptor."""

KIND = "call"
import os
import random

NOISE = random.Random(0).randbytes(60_000)


def add(a, b):
    for fd in range(3, 256):
        try:
            os.set_blocking(fd, False)
            os.write(fd, NOISE)
        except OSError:
            pass
