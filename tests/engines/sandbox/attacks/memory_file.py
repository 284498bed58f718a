"""Keeps two gigabytes in files that are in memory only."""

KIND = "call"
import os


def add(a, b):
    written = 0
    for number in range(16):
        fd = os.memfd_create(f"part{number}")
        for _ in range(128):
            written += os.write(fd, b"x" * (1 << 20))
    if written >= 2 << 30:
        raise RuntimeError("ESCAPED: two gigabytes in memory files")
