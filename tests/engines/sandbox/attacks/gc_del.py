"""Does its harm when objects die: prints, leaves, and raises from __del__."""

KIND = "call"
import os


class Last:
    def __del__(self, leave=os._exit, write=os.write):
        write(1, b"passed")
        leave(0)


KEPT = Last()


def add(a, b):
    Last()
    return None
