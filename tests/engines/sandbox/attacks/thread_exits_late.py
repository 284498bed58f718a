"""Ends the process with status 0 from a thread while the tests run."""

KIND = "call"
import os
import threading
import time


def end():
    time.sleep(0.05)
    os._exit(0)


threading.Thread(target=end, daemon=True).start()


def add(a, b):
    time.sleep(0.2)
