"""Forks a daemon by the module under os, which is left as it was."""

KIND = "call"
import os
import posix
import time

if posix.fork() == 0:
    posix.setsid()
    time.sleep(30)
    os._exit(0)


def add(a, b):
    return None
