"""Stops the timer that would end it and goes on for ever."""

KIND = "call"
import signal


def add(a, b):
    signal.setitimer(signal.ITIMER_REAL, 0)
    while True:
        pass
