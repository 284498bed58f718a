"""Starts threads without end."""

KIND = "call"
import threading
import time


def add(a, b):
    count = 0
    while count < 5000:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        count += 1
    raise RuntimeError("ESCAPED: 5000 threads")
