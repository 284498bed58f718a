"""Blocks every signal that can be blocked and sleeps."""

KIND = "call"
import signal
import time

signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def add(a, b):
    time.sleep(1000)
