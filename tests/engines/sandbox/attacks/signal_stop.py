"""Stops itself, so that whoever waits for its end waits for ever."""

KIND = "call"
import os
import signal


def add(a, b):
    os.kill(os.getpid(), signal.SIGSTOP)
