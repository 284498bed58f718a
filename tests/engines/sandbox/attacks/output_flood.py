"""Prints without end to both outputs."""

KIND = "call"
import os


def add(a, b):
    while True:
        for fd in (1, 2):
            try:
                os.write(fd, b"passed\n" * 10_000)
            except OSError:
                pass
