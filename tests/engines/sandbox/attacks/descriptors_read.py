"""Reads whatever waits in every descriptor, where the tests might be."""

KIND = "call"
import os


def add(a, b):
    found = b""
    for fd in range(256):
        try:
            os.set_blocking(fd, False)
            found += os.read(fd, 1 << 20)
            found += os.pread(fd, 1 << 20, 0)
        except OSError:
            pass
    if b"assert" in found or b"== 5" in found:
        raise RuntimeError("ESCAPED: read the tests")
