"""Puts other files in the place of every descriptor."""

KIND = "call"
import os

null = os.open("/dev/null", os.O_RDWR)
for fd in range(64):
    if fd != null:
        os.dup2(null, fd)


def add(a, b):
    return None
