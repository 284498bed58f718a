"""Sleeps, which takes no CPU time."""

KIND = "call"
import time


def add(a, b):
    time.sleep(1_000_000)
