"""Gives threads stacks as large as there are numbers."""

KIND = "call"
import threading

held = []


def add(a, b):
    for size in (2**20, 2**26, 2**28, 2**30):
        threading.stack_size(size)
        try:
            for _ in range(100):
                held.append(threading.Thread(target=threading.Event().wait, daemon=True))
                held[-1].start()
        except RuntimeError:
            continue
