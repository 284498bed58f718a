"""Kills and stops its process group before anything is asked."""

KIND = "call"
import os
import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
for which in (signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
    for function in (lambda one: os.kill(0, one), lambda one: os.killpg(os.getpgrp(), one)):
        try:
            function(which)
        except OSError:
            pass


def add(a, b):
    return None
