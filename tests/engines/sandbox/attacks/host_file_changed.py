"""Writes to a file outside that it knows of, also through /proc and links."""

KIND = "call"
import os


def add(a, b):
    for name in ("@FILE@", "/proc/1/root@FILE@", "/proc/self/root@FILE@", "../../../../../..@FILE@"):
        for flags in (os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_CREAT):
            try:
                os.makedirs(os.path.dirname(name), exist_ok=True)
                os.write(os.open(name, flags), b"passed")
            except OSError:
                pass
