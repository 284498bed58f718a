"""Writes the beginning of an answer that says it is four gigabytes long, and waits."""

KIND = "call"
import os
import time


def add(a, b):
    for fd in range(3, 256):
        try:
            os.write(fd, b"\xff\xff\xff\xff{")
        except OSError:
            pass
    time.sleep(1000)
