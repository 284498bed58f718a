"""Sends itself SIGKILL in the first call."""

KIND = "call"
import signal


def add(a, b):
    signal.raise_signal(signal.SIGKILL)
