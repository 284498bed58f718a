"""Lets others burn: children that never end use the CPU for it."""

KIND = "call"
import os
import time

for _ in range(4):
    try:
        if os.fork() == 0:
            while True:
                pass
    except OSError:
        break


def add(a, b):
    time.sleep(1000)
