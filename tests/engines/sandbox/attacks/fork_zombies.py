"""Leaves children that have ended and that no one has asked after."""

KIND = "call"
import os


def add(a, b):
    for _ in range(200):
        try:
            if os.fork() == 0:
                os._exit(0)
        except OSError:
            break
