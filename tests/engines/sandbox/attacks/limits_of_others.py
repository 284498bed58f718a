"""Lowers the limits of every other process, so that they fail."""

KIND = "call"
import os
import resource


def add(a, b):
    for who in range(1, 300):
        if who != os.getpid():
            try:
                resource.prlimit(who, resource.RLIMIT_CPU, (0, 0))
            except OSError:
                continue
            raise RuntimeError(f"ESCAPED: limits of {who}")
