"""Lets a child go on in its place and changes what that child answers."""

KIND = "call"
import os
import signal

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork():
    while True:
        try:
            os.wait()
        except ChildProcessError:
            os._exit(0)


def add(a, b):
    return None
