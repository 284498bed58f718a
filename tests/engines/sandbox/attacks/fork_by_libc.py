"""Forks a daemon by the C library, where os.fork has been taken away."""

KIND = "call"
import ctypes
import os
import time

libc = ctypes.CDLL(None)
if libc.fork() == 0:
    libc.setsid()
    time.sleep(30)
    os._exit(0)


def add(a, b):
    return None
