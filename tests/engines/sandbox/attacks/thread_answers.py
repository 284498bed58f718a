"""Has a thread change the answer while it is being written."""

KIND = "call"
import threading

ANSWER = [0]


def change():
    while True:
        ANSWER[:] = [5] * 1000
        ANSWER[:] = [0]


threading.Thread(target=change, daemon=True).start()


def add(a, b):
    return ANSWER
