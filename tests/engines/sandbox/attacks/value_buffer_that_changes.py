"""Returns views of memory that a thread changes while they are read."""

KIND = "call"
import ctypes
import threading

held = (ctypes.c_long * 4)()


def change():
    while True:
        for place in range(4):
            held[place] = held[place] + 1


threading.Thread(target=change, daemon=True).start()


def add(a, b):
    return memoryview(held).cast("B").cast("l")[:1] if a == 2 else held
