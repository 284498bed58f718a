"""Waits for itself."""

KIND = "call"
import threading

lock = threading.Lock()


def add(a, b):
    with lock, lock:
        return None
