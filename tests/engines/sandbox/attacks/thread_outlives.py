"""Leaves threads behind that print and write when the answer has long been given."""

KIND = "call"
import os
import threading
import time


def write():
    while True:
        for fd in (1, 2):
            try:
                os.write(fd, b"passed\n")
            except OSError:
                pass
        time.sleep(0.001)


for _ in range(5):
    threading.Thread(target=write).start()


def add(a, b):
    return None
