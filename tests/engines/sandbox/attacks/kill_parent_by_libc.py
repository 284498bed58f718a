"""Kills its parent only, who waits for its result."""

KIND = "call"
import ctypes
import os

if os.getppid() > 1:
    ctypes.CDLL(None).kill(os.getppid(), 9)


def add(a, b):
    return None
