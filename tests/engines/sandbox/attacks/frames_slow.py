"""Sends an answer byte by byte, so that it never is whole."""

KIND = "call"
import os
import time


def add(a, b):
    for byte in b"\0\0\1\0" + b" " * 256:
        for fd in range(3, 16):
            try:
                os.write(fd, bytes([byte]))
            except OSError:
                pass
        time.sleep(0.1)
